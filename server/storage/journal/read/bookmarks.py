"""Bookmarks of subscriptions: the start and the end of a replay.

    0                            from the beginning (EPOCH)
    0|1|                         new messages from now on (NOW); browsers' libraries write 1|0|
    934814|44321|                after that message
    1|2|,3|4|                    after the earliest of those
    20200604T000000Z             from that time on
    [20200604T000000:0|1|)       from there to there; [ ] includes the end named, ( ) excludes it

A bookmark may name a position in this log: the log's number in place of a publisher's, and a txid.
Other logs do not know it. A client that sends one has everything before that position, so if a list
contains one, the other starts in it are ignored.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

MissingBookmarkPolicy: TypeAlias = Literal["epoch", "now", "fail"]
"""The start if no bookmark of the list is in the log (the option `bookmark_not_found`)."""

_NAMED: Final = re.compile(r"(\d{1,20})\|(\d{1,20})\|?", re.ASCII)
_MOMENT: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,6}))?Z?", re.ASCII)
_NOW: Final = ((0, 1), (1, 0))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class BookmarkError(ValueError):
    """A bookmark is malformed, or is not in the log; the text is a reason for the client."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The beginning of the log."""


@dataclass(frozen=True, slots=True)
class Now:
    """The end of the log, as it is when the subscription is placed."""


@dataclass(frozen=True, slots=True)
class EntryName:
    """An entry, by publisher and sequence."""

    client: int
    sequence: int


@dataclass(frozen=True, slots=True)
class LogTimestamp:
    """A time, in microseconds since the Unix epoch."""

    timestamp: int


BookmarkPoint: TypeAlias = Epoch | Now | EntryName | LogTimestamp


@dataclass(frozen=True, slots=True)
class BookmarkRequest:
    """A parsed bookmark.

    Attributes:
        starts: begin at the earliest of these.
        includes_start: an entry that is named as a start is delivered.
        ends: stop at the latest of these; empty for no end.
        includes_end: an entry that is named as an end is delivered.
    """

    starts: tuple[BookmarkPoint, ...]
    includes_start: bool = False
    ends: tuple[BookmarkPoint, ...] = ()
    includes_end: bool = False

    @property
    def needs_no_lookup(self) -> bool:
        """True if nothing has to be looked up in the log."""
        return all(isinstance(point, Epoch | Now) for point in self.starts + self.ends)


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A part of the log: a bookmark with its names resolved.

    Attributes:
        after_txid: the txid before the first one in the span.
        begin_timestamp: earlier entries are outside; microseconds since the Unix epoch.
        last_txid: the last txid in the span; None if it is not known, or there is no end.
        end_timestamp: entries of this time and later are outside; None if there is no such limit.
        end_entries: entries that end the span when they are recorded; they are not in the log yet.
        includes_end: such an entry is inside the span.
        start_warning: why the span does not begin at an entry that was named; empty if it does.
    """

    after_txid: int
    begin_timestamp: int = 0
    last_txid: int | None = None
    end_timestamp: int | None = None
    end_entries: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    includes_end: bool = False
    start_warning: str = ""


class BookmarkLog(Protocol):
    """The interface of the log that resolves names."""

    @property
    def first_txid(self) -> int:
        """The txid of the first entry."""

    def is_log_position(self, client: int) -> bool:
        """Return whether the first number of a bookmark stands for the log, not a publisher."""

    def find(self, client: int, sequence: int) -> int | None:
        """Return the txid of an entry, None if it is not in the log."""

    def find_damaged_entry(self, client: int, sequence: int) -> int | None:
        """Return the txid of a damaged entry that a name may belong to; None if there is none."""

    def last_common_txid(self, client: int, sequence: int) -> int | None:
        """Return the last entry that this log shares with a reader that names a lost entry.

        None if the name does not belong to a known lost entry.
        """

    def first_since(self, timestamp: int) -> int:
        """Return the txid of the first entry at a time or later; the next txid if none."""


def parse_bookmark(text: str) -> BookmarkRequest:
    """Parse the bookmark of a subscription.

    Raises:
        BookmarkError: it is malformed; the text names the expected form.
    """
    text = text.strip()
    if not text.startswith(("[", "(")):
        return BookmarkRequest(_points(text, text))
    if not text.endswith(("]", ")")):
        raise BookmarkError(f"the bookmark range '{text:.200}' must end with ']' or ')'")
    starts, colon, ends = text[1:-1].partition(":")
    if not colon:
        raise BookmarkError(f"the bookmark range '{text:.200}' must have the form [begin:end)")
    return BookmarkRequest(
        _points(starts, text), text[0] == "[", _points(ends, text), text[-1] == "]"
    )


def _points(text: str, bookmark: str) -> tuple[BookmarkPoint, ...]:
    points = tuple(_point(part.strip(), bookmark) for part in text.split(",") if part.strip())
    if not points:
        raise BookmarkError(f"the bookmark '{bookmark:.200}' is empty where a bookmark is expected")
    return points


def _point(text: str, bookmark: str) -> BookmarkPoint:
    if text == "0":
        return Epoch()
    if match := _NAMED.fullmatch(text):
        client, sequence = int(match[1]), int(match[2])
        return Now() if (client, sequence) in _NOW else EntryName(client, sequence)
    if match := _MOMENT.fullmatch(text):
        try:
            second = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            raise BookmarkError(f"'{text}' in the bookmark is not a moment in time") from None
        return LogTimestamp(
            (second - _EPOCH) // _MICROSECOND + int((match[2] or "0").ljust(6, "0"))
        )
    raise BookmarkError(
        f"'{text:.80}' in the bookmark '{bookmark:.200}' is not a bookmark: expected 0, 0|1|, "
        "a client hash and a sequence as in 934814|44321|, or a time as in 20200604T000000Z"
    )


def resolve_bookmark(
    request: BookmarkRequest, log: BookmarkLog, not_found: MissingBookmarkPolicy, now: int
) -> LogSpan:
    """Resolve a bookmark to a part of the log. See `resolve_bookmark_in_steps`."""
    steps = resolve_bookmark_in_steps(request, log, not_found, now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            span: LogSpan = end.value
            return span


def resolve_bookmark_in_steps(
    request: BookmarkRequest, log: BookmarkLog, not_found: MissingBookmarkPolicy, now: int
) -> Generator[None, None, LogSpan]:
    """Resolve a bookmark to a part of the log, in steps: one for each name in it.

    Args:
        request: the bookmark.
        log: resolves names.
        not_found: where to begin if none of the starts is in the log.
        now: the txid of the end of the log.

    Raises:
        BookmarkError: no start is in the log, and `not_found` is "fail".
    """
    starts: list[tuple[int, int]] = []
    missing: list[EntryName] = []
    warning = ""
    for point in _own_positions(request.starts, log) or request.starts:
        start = _find_start(point, request, log, now)
        if start is None and isinstance(point, EntryName):
            txid = log.find_damaged_entry(point.client, point.sequence)
            if txid is None:
                missing.append(point)
            else:
                start = txid - request.includes_start, 0
                warning = (
                    f"the entry of {_format_bookmark(point)} is damaged: begins at entry {txid}"
                )
        if start is not None:
            starts.append(start)
        yield
    if missing and not starts:
        if not_found == "fail":
            raise BookmarkError(f"bookmark not found: {_format_bookmark(missing[0])}")
        where = {"now": "end", "epoch": "beginning"}[not_found]
        warning = (
            f"{_format_bookmark(missing[0])} is not in the transaction log: begins at its {where}"
        )
    if starts or not_found == "now":
        # After the last entry that the reader and the log share, everything is new to the reader.
        common_txids = [
            (point, log.last_common_txid(point.client, point.sequence)) for point in missing
        ]
        lost_points = [(txid, point) for point, txid in common_txids if txid is not None]
        if lost_points and not starts:
            warning = (
                f"{_format_bookmark(lost_points[0][1])} is of entries that the transaction log has"
                " lost: begins behind those before them"
            )
        starts += [(txid, 0) for txid, _ in lost_points]
    default_txid = log.first_txid - 1 if not_found == "epoch" else now
    after, not_before = min(starts, default=(default_txid, 0))
    span = LogSpan(after, not_before, start_warning=warning)
    if not request.ends:
        return span
    return (yield from _with_end(span, request, log, now))


def _format_bookmark(point: EntryName) -> str:
    return f"{point.client}|{point.sequence}|"


def _own_positions(starts: Iterable[BookmarkPoint], log: BookmarkLog) -> list[EntryName]:
    """Return the places in this very log among the starts, those of lost entries included."""
    positions = [name for name in _entry_names(starts) if log.is_log_position(name.client)]
    return [position for position in positions if _is_known(position, log)]


def _is_known(entry: EntryName, log: BookmarkLog) -> bool:
    client, sequence = entry.client, entry.sequence
    return (
        log.find(client, sequence) is not None or log.last_common_txid(client, sequence) is not None
    )


def _find_start(
    point: BookmarkPoint, request: BookmarkRequest, log: BookmarkLog, now: int
) -> tuple[int, int] | None:
    """Return the txid before the start, and the time before which entries are outside."""
    match point:
        case Epoch():
            return log.first_txid - 1, 0
        case Now():
            return now - request.includes_start, 0
        case LogTimestamp(timestamp):
            # A time outside of a range is inclusive.
            exclusive = bool(request.ends) and not request.includes_start
            return log.first_since(timestamp + exclusive) - 1, timestamp + exclusive
        case EntryName(client, sequence):
            txid = log.find(client, sequence)
            return None if txid is None else (txid - request.includes_start, 0)


def _with_end(
    span: LogSpan, request: BookmarkRequest, log: BookmarkLog, now: int
) -> Generator[None, None, LogSpan]:
    excluded = not request.includes_end
    ends: list[int] = []
    for point in request.ends:
        match point:
            case Epoch():
                ends.append(log.first_txid - 1)
            case Now():
                ends.append(now - excluded)
            case EntryName(client, sequence):
                txid = log.find(client, sequence)
                if txid is not None:
                    ends.append(txid - excluded)
                yield
            case LogTimestamp():
                pass
    timestamps = [
        end.timestamp + (not excluded) for end in request.ends if isinstance(end, LogTimestamp)
    ]
    if timestamps:
        # The latest end counts: a txid, unless the time is later than that entry.
        end_timestamp = max(timestamps)
        if not ends or log.first_since(end_timestamp) - 1 >= max(ends):
            return replace(span, end_timestamp=end_timestamp)
    if ends:
        return replace(span, last_txid=max(ends))
    end_entries = {(name.client, name.sequence) for name in _entry_names(request.ends)}
    return replace(span, end_entries=frozenset(end_entries), includes_end=request.includes_end)


def _entry_names(points: Iterable[BookmarkPoint]) -> list[EntryName]:
    return [point for point in points if isinstance(point, EntryName)]
