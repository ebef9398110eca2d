"""Plans the micro-batches of a stream over the log of one server, and measures the rest.

The server counts the messages (`log_measure.py`), and each count ends at a place of its log. So
planning a micro-batch costs one request, however large it is. A stream also advances in the log
where nothing is published to its topic, and does not need the journals that it has passed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from amperage.client import NOW, Client, ClientError, CommandError, Message
from amperage.wire.bookmarks import is_now
from pipeline.amps.connection import NOT_FOUND, UNREACHABLE_ERRORS, data_loss, explained, session
from pipeline.amps.limits import BatchLimits
from pipeline.amps.log_measure import LogMeasure, measure
from pipeline.amps.offsets import LogOffset, bookmark_of, measured, ranges_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed

_PAUSE: Final = 0.2
"""Seconds between two attempts to reach an unavailable server."""
_IDLE: Final = 0.03
"""Seconds to wait if there is nothing, before returning to Spark, which asks again."""
_MAX_IDLE: Final = 0.25
_SLOWER: Final = 1.2
"""Back-off: the wait grows while there is nothing, because each request costs the server."""
_STRIDE: Final = 60.0
"""Seconds after which a stream advances past messages of other topics: that is a micro-batch."""
_ROWS_KEPT: Final = 10_000
_BYTES_KEPT: Final = 1 << 20
"""Limits of a micro-batch sent to its task as rows, so that no task has to connect for it."""


class BatchPlanner:
    """Plans micro-batches, over a persistent connection.

    Args:
        options: server, topic and filter.
        command_options: the options field of replays.
    """

    def __init__(self, options: AmpsOptions, command_options: str) -> None:
        self._options = options
        self._command_options = command_options
        self._open = ExitStack()
        self._client: Client | None = None
        self._begins: dict[str, str] = {}
        """The places in the log for bookmarks that are times."""
        self._ends = False
        self._last: str | None = None
        self._away_since: float | None = None
        self._moved_at = time.monotonic()
        self._idle = _IDLE
        self._planned: LogMeasure | None = None

    def stop_at_end(self) -> None:
        """Stop at the end that the log has at the next request."""
        self._ends, self._last = True, None

    def close(self) -> None:
        """Close the connection."""
        self._client = None
        self._open.close()

    def latest(self, start: LogOffset, limits: BatchLimits) -> LogOffset:
        """Return the end of the next micro-batch; its start if there is nothing.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        while True:
            try:
                end = self._latest(start, limits)
            except UNREACHABLE_ERRORS as error:
                self._lost(error)
                if self._ends:
                    continue
                return start
            except ClientError as error:
                raise explained(self._options, error, bookmark_of(start)) from None
            self._away_since = None
            if end is not start:
                self._moved_at, self._idle = time.monotonic(), _IDLE
                return end
            if not self._ends:
                time.sleep(self._idle)
                self._idle = min(self._idle * _SLOWER, _MAX_IDLE)
                return start
            if self._last is not None and self._has_reached_end(start):
                return start
            time.sleep(_IDLE)

    def behind(self) -> LogMeasure | None:
        """Return the amount after the last planned micro-batch; None if it is unknown.

        If the stream has a filter, messages that do not match count as well: to tell them apart,
        the server would have to read them.
        """
        planned = self._planned
        if planned is None or planned.is_whole:
            return planned and planned.passed()
        try:
            return self._measure(planned.end, NOW, is_filtered=False)
        except ClientError:
            return None

    def messages(self, end: LogOffset) -> list[list[Message]] | None:
        """Return the messages of each range of a micro-batch if few; otherwise tasks read them."""
        ranges = ranges_of(end)
        if end["bytes"] > _BYTES_KEPT or sum(one.rows for one in ranges) > _ROWS_KEPT:
            return None
        try:
            return [self._read(one.span) for one in ranges]
        except ClientError:  # tasks wait for an unavailable server, and report the error
            self.close()
            return None

    def _read(self, span: str) -> list[Message]:
        read = replayed(
            self._connected(), self._options, span, command_options=self._command_options
        )
        return [message for messages in read for message in messages]

    def _latest(self, start: LogOffset, limits: BatchLimits) -> LogOffset:
        place = bookmark_of(start)
        if self._ends and self._last is None:
            self._last = self._measure(NOW, NOW).end
        if is_now(place):  # it would move at each start, and skip the messages published until then
            self._planned = self._measure(NOW, NOW)
            return measured(self._planned)
        found = self._measure(
            self._begins.get(place, place),
            self._last or NOW,
            rows=limits.rows,
            size=limits.size,
            parts=self._options.partitions,
        )
        if "|" not in place:
            self._begins.setdefault(place, found.begin)
        if found.lost and self._options.fail_on_data_loss:
            raise data_loss(self._options, place, found.lost)
        self._planned = found
        if found.rows and (self._ends or limits.allow(found, self._moved_at)):
            return measured(found)
        is_due = self._ends or time.monotonic() - self._moved_at >= _STRIDE
        if not found.rows and is_due and found.end not in (place, self._begins.get(place)):
            return measured(found)
        return start

    def _has_reached_end(self, start: LogOffset) -> bool:
        place = bookmark_of(start)
        reached, last = self._begins.get(place, place), self._last or ""
        if reached.partition("|")[0] != last.partition("|")[0] and not self._has(last):
            return True
        return int(reached.split("|")[1]) >= int(last.split("|")[1])

    def _has(self, place: str) -> bool:
        """Return whether the log still has a place: each run of the server has its own places."""
        try:
            self._measure(place, NOW, rows=1)
        except CommandError as error:
            if error.reason != NOT_FOUND:
                raise
            return False
        return True

    def _measure(
        self,
        begin: str,
        end: str,
        *,
        rows: int | None = None,
        size: int | None = None,
        parts: int = 1,
        is_filtered: bool = True,
    ) -> LogMeasure:
        bracket = "(" if "|" in begin else "["  # a time includes itself
        return measure(
            self._connected(),
            self._options,
            f"{bracket}{begin}:{end}]",
            command_options=self._command_options,
            rows=rows,
            size=size,
            parts=parts,
            is_filtered=is_filtered,
        )

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._open.enter_context(session(self._options, "follow"))
        return self._client

    def _lost(self, error: ClientError) -> None:
        """Close, and wait before the next attempt, or give up."""
        self.close()
        now = time.monotonic()
        self._away_since = self._away_since or now
        if now - self._away_since > self._options.timeout:
            raise explained(self._options, error) from None
        time.sleep(_PAUSE)
