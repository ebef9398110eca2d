"""Recorded samples: a whole sample, one value over time, and the list of their moments.

Source: AMPS User Guide, Time Range Selection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from server.admin.documents import over_time
from server.admin.documents.values import text_of
from server.admin.engine_calls import within_limit
from server.admin.http.messages import JSON, XML, HttpError, HttpRequest, HttpResponse
from server.admin.paths import split_path_format
from server.admin.time_range import TimeRange, read_moments
from server.admin.tree import INSTANCE, ROOT, TIMESTAMP_FIELD, SnapshotTree, TreeTarget
from server.statistics.reader import ReaderBusyError
from server.statistics.schema import ColumnType, MeasurementKind, StatisticValue
from server.statistics.timestamps import to_text

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.statistics.history import StatisticsHistory
    from server.statistics.statistics_thread import StatisticsThread

_Result = TypeVar("_Result")

_PAGE: Final = 10_000
"""Values per request to the database."""


class HistoryPages:
    """Answers from the recorded samples.

    Args:
        statistics: has recorded them.
        access: checks the requester's entitlement.
    """

    def __init__(self, statistics: StatisticsThread, access: AccessControl) -> None:
        self._statistics = statistics
        self._access = access

    async def query_history(self, query: Callable[[StatisticsHistory], _Result]) -> _Result:
        """Query the recorded samples.

        Raises:
            HttpError: the database is busy, or cannot be read.
        """
        try:
            return await within_limit(self._statistics.query(query), "The statistics database")
        except (ReaderBusyError, sqlite3.Error) as error:
            text = f"The statistics database cannot be read: {error}."
            raise HttpError(503, text, (("Retry-After", "10"),)) from None

    async def tree_at(self, timestamp: int) -> SnapshotTree:
        """Return the tree of the sample with a timestamp.

        Raises:
            HttpError: there is none.
        """
        snapshot = await self.query_history(lambda history: history.snapshot(timestamp))
        if snapshot is None:
            raise HttpError(
                404,
                f"No sample was taken at {to_text(timestamp)}, or it was removed: with t0 and "
                f"t1 the same, expected one of /{ROOT}/{INSTANCE}/{TIMESTAMP_FIELD}.",
            )
        return SnapshotTree(snapshot)

    async def series_response(
        self, tree: SnapshotTree, target: TreeTarget, form: str, time_range: TimeRange
    ) -> HttpResponse:
        """Return a leaf's values within a time.

        Args:
            tree: the last sample.
            target: the leaf, which may have gone.
            form: the form of the document.
            time_range: the time.

        Raises:
            HttpError: it is no leaf, or nothing is known of it.
        """
        if target.field is None:
            raise HttpError(
                400,
                f"{target.path} has many values, and a time range is for one of them: add its name,"
                f" or give t0 and t1 the same moment, one of /{ROOT}/{INSTANCE}/{TIMESTAMP_FIELD}.",
            )
        first_values = await self._first_values(tree, target, time_range)
        if not first_values and not tree.contains(target):
            raise HttpError(404, f"There are no samples of {target.path} within that time.")
        return HttpResponse(
            self._value_pages(tree, target, form, time_range, first_values),
            content_type=over_time.FORMS[form].content_type,
        )

    async def _first_values(
        self, tree: SnapshotTree, target: TreeTarget, time_range: TimeRange
    ) -> list[tuple[int, StatisticValue]]:
        """Return the first page of a leaf's values within a time."""
        resource, field = target.node.resource, target.field
        if resource is None or field is None:
            return []
        if time_range.points is not None:
            return await self._averages(tree, target, time_range, time_range.points)
        if not resource.table:  # a value that is not recorded never changes
            now, value = tree.snapshot.timestamp, tree.value(target)
            is_within = value is not None and time_range.first <= now <= time_range.last
            return [(now, value)] if is_within and value is not None else []
        return await self.query_history(
            lambda history: history.values(
                resource, target.id or "", field.name, time_range.first, time_range.last, _PAGE
            )
        )

    async def _averages(
        self, tree: SnapshotTree, target: TreeTarget, time_range: TimeRange, points: int
    ) -> list[tuple[int, StatisticValue]]:
        """Return the averages of a leaf in parts of a time.

        Raises:
            HttpError: it is no number that changes, or is not recorded.
        """
        resource, field = target.node.resource, target.field
        if resource is None or field is None:
            return []
        is_number = field.type is not ColumnType.TEXT and field.kind is not MeasurementKind.FIXED
        if not (is_number and resource.table):
            raise HttpError(400, f"{target.path} has no averages: leave out points.")
        last = tree.snapshot.timestamp if time_range.is_open else time_range.last

        def query(history: StatisticsHistory) -> list[tuple[int, float]]:
            first = time_range.first or next(iter(history.timestamps(limit=1)), 0)
            return history.averages(resource, target.id or "", field.name, first, last, points)

        averages = await self.query_history(query)
        is_whole = field.type is ColumnType.INTEGER
        return [(at, round(value) if is_whole else value) for at, value in averages]

    async def _value_pages(
        self,
        tree: SnapshotTree,
        target: TreeTarget,
        form: str,
        time_range: TimeRange,
        values: list[tuple[int, StatisticValue]],
    ) -> AsyncGenerator[bytes, None]:
        """Yield a leaf's values, page by page."""
        series_format, field = over_time.FORMS[form], target.field
        if field is None:
            return
        yield series_format.format_header(target).encode()
        separator = ""
        while values:
            texts = [
                series_format.format_value(to_text(timestamp), text_of(field, value))
                for timestamp, value in values
            ]
            yield (separator + series_format.separator.join(texts)).encode(errors="replace")
            separator = series_format.separator
            remaining = TimeRange(values[-1][0] + 1, time_range.last)
            values = (
                await self._first_values(tree, target, remaining) if len(values) == _PAGE else []
            )
        yield series_format.format_footer(target).encode()

    async def handle_timestamps_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Answer a request for the moments of samples.

        Raises:
            HttpError: the requester may not see them, or the request is invalid.
        """
        await self._access.require_access(requester, f"/{ROOT}/{INSTANCE}/{TIMESTAMP_FIELD}")
        time_range = read_moments(request.query) or TimeRange(0, 1 << 62)
        form = split_path_format(request.segments)[1]
        list_format = _TIMESTAMPS.get(form)
        if list_format is None:
            raise HttpError(404, f"There is no form {form!r} of this; expected json, xml or csv.")
        first_timestamps = await self._timestamps(time_range)
        return HttpResponse(
            self._timestamp_pages(list_format, time_range, first_timestamps),
            content_type=list_format.content_type,
        )

    async def _timestamps(self, time_range: TimeRange) -> list[int]:
        return await self.query_history(
            lambda history: history.timestamps(time_range.first, time_range.last, _PAGE)
        )

    async def _timestamp_pages(
        self, list_format: _TimestampListFormat, time_range: TimeRange, timestamps: list[int]
    ) -> AsyncGenerator[bytes, None]:
        yield list_format.header.encode()
        separator = ""
        while timestamps:
            texts = [list_format.line.format(to_text(timestamp)) for timestamp in timestamps]
            yield (separator + list_format.separator.join(texts)).encode()
            separator = list_format.separator
            remaining = TimeRange(timestamps[-1] + 1, time_range.last)
            timestamps = await self._timestamps(remaining) if len(timestamps) == _PAGE else []
        yield list_format.footer.encode()


class _TimestampListFormat(msgspec.Struct, frozen=True):
    """The format of a list of moments."""

    content_type: str
    header: str
    line: str
    separator: str
    footer: str


_TIMESTAMPS: Final = {
    "": _TimestampListFormat(over_time.FORMS[""].content_type, "", "{}\n", "", ""),
    "csv": _TimestampListFormat(over_time.FORMS["csv"].content_type, "", "{}\n", "", ""),
    "json": _TimestampListFormat(JSON, '{"amps":{"instance":{"timestamp":[', '"{}"', ",", "]}}}"),
    "xml": _TimestampListFormat(
        XML,
        "<amps>\n<instance>\n",
        "<timestamp>{}</timestamp>\n",
        "",
        "</instance>\n</amps>\n",
    ),
}
