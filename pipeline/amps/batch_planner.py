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
from pipeline.amps.connection import (
    NOT_FOUND,
    UNREACHABLE_ERRORS,
    RetryPause,
    data_loss,
    explained,
    session,
)
from pipeline.amps.limits import BatchLimits
from pipeline.amps.log_measure import LogMeasure, measure
from pipeline.amps.offsets import LogOffset, bookmark_of, measured, ranges_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed

_MIN_IDLE_WAIT_S: Final = 0.03
"""Seconds to wait if there is nothing, before returning to Spark, which asks again."""
_MAX_IDLE_WAIT_S: Final = 0.25
_IDLE_BACKOFF_FACTOR: Final = 1.2
"""Back-off: the wait grows while there is nothing, because each request costs the server."""
_MAX_ADVANCE_INTERVAL_S: Final = 60.0
"""Seconds after which a stream advances past messages of other topics: that is a micro-batch."""
_MAX_KEPT_ROWS: Final = 10_000
_MAX_KEPT_BYTES: Final = 1 << 20
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
        self._exit_stack = ExitStack()
        self._client: Client | None = None
        self._start_positions: dict[str, str] = {}
        """The places in the log for bookmarks that are times."""
        self._stops_at_end = False
        self._end_position: str | None = None
        self._retry_pause = RetryPause(options)
        self._last_advance_s = time.monotonic()
        self._idle_wait_s = _MIN_IDLE_WAIT_S
        self._planned_measure: LogMeasure | None = None

    def stop_at_end(self) -> None:
        """Stop at the end that the log has at the next request."""
        self._stops_at_end, self._end_position = True, None

    def close(self) -> None:
        """Close the connection."""
        self._client = None
        self._exit_stack.close()

    def next_end(self, start: LogOffset, limits: BatchLimits) -> LogOffset:
        """Return the end of the next micro-batch; its start if there is nothing.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        while True:
            try:
                end = self._find_next_end(start, limits)
            except UNREACHABLE_ERRORS as error:
                self._handle_disconnect(error)
                if self._stops_at_end:
                    continue
                return start
            except ClientError as error:
                raise explained(self._options, error, bookmark_of(start)) from None
            self._retry_pause.reset()
            if end is not start:
                self._last_advance_s, self._idle_wait_s = time.monotonic(), _MIN_IDLE_WAIT_S
                return end
            if not self._stops_at_end:
                time.sleep(self._idle_wait_s)
                self._idle_wait_s = min(self._idle_wait_s * _IDLE_BACKOFF_FACTOR, _MAX_IDLE_WAIT_S)
                return start
            if self._end_position is not None and self._has_reached_end(start):
                return start
            time.sleep(_MIN_IDLE_WAIT_S)

    def measure_backlog(self) -> LogMeasure | None:
        """Return the amount after the last planned micro-batch; None if it is unknown.

        If the stream has a filter, messages that do not match count as well: to tell them apart,
        the server would have to read them.
        """
        planned_measure = self._planned_measure
        if planned_measure is None or planned_measure.is_whole:
            return planned_measure and planned_measure.after_reading()
        try:
            return self._measure_range(planned_measure.end, NOW, is_filtered=False)
        except ClientError:
            return None

    def small_batch_messages(self, end: LogOffset) -> list[list[Message]] | None:
        """Return the messages of each range of a micro-batch if few; otherwise tasks read them."""
        ranges = ranges_of(end)
        if end["bytes"] > _MAX_KEPT_BYTES or sum(range_.rows for range_ in ranges) > _MAX_KEPT_ROWS:
            return None
        try:
            return [self._read_range(range_.span) for range_ in ranges]
        except ClientError:  # tasks wait for an unavailable server, and report the error
            self.close()
            return None

    def _read_range(self, span: str) -> list[Message]:
        read = replayed(
            self._open_client(), self._options, span, command_options=self._command_options
        )
        return [message for messages in read for message in messages]

    def _find_next_end(self, start: LogOffset, limits: BatchLimits) -> LogOffset:
        place = bookmark_of(start)
        if self._stops_at_end and self._end_position is None:
            self._end_position = self._measure_range(NOW, NOW).end
        if is_now(place):  # it would move at each start, and skip the messages published until then
            self._planned_measure = self._measure_range(NOW, NOW)
            return measured(self._planned_measure)
        measured_range = self._measure_range(
            self._start_positions.get(place, place),
            self._end_position or NOW,
            rows=limits.max_rows,
            size=limits.max_bytes,
            parts=self._options.partitions,
        )
        if "|" not in place:
            self._start_positions.setdefault(place, measured_range.begin)
        if measured_range.lost_text and self._options.fail_on_data_loss:
            raise data_loss(self._options, place, measured_range.lost_text)
        self._planned_measure = measured_range
        if measured_range.rows and (
            self._stops_at_end or limits.is_enough(measured_range, self._last_advance_s)
        ):
            return measured(measured_range)
        is_due = (
            self._stops_at_end or time.monotonic() - self._last_advance_s >= _MAX_ADVANCE_INTERVAL_S
        )
        if (
            not measured_range.rows
            and is_due
            and measured_range.end not in (place, self._start_positions.get(place))
        ):
            return measured(measured_range)
        return start

    def _has_reached_end(self, start: LogOffset) -> bool:
        place = bookmark_of(start)
        reached, last = self._start_positions.get(place, place), self._end_position or ""
        if reached.partition("|")[0] != last.partition("|")[0] and not self._has_position(last):
            return True
        return int(reached.split("|")[1]) >= int(last.split("|")[1])

    def _has_position(self, place: str) -> bool:
        """Return whether the log still has a place: each run of the server has its own places."""
        try:
            self._measure_range(place, NOW, rows=1)
        except CommandError as error:
            if error.reason != NOT_FOUND:
                raise
            return False
        return True

    def _measure_range(
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
            self._open_client(),
            self._options,
            f"{bracket}{begin}:{end}]",
            command_options=self._command_options,
            rows=rows,
            size=size,
            parts=parts,
            is_filtered=is_filtered,
        )

    def _open_client(self) -> Client:
        if self._client is None:
            self._client = self._exit_stack.enter_context(session(self._options, "follow"))
        return self._client

    def _handle_disconnect(self, error: ClientError) -> None:
        """Close, and wait before the next attempt, or give up."""
        self.close()
        self._retry_pause.wait(error)
