"""Plans micro-batches of a stream that may resume at another server.

The logs of several servers have different places, and may have another order. So the driver reads
the messages of a micro-batch (`log_follower.py`), and the offset identifies all of them
(`offsets.py`).
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from amperage.client import Message
from pipeline.amps.limits import BatchLimits
from pipeline.amps.log_follower import LogFollower
from pipeline.amps.log_measure import LogMeasure
from pipeline.amps.offsets import BatchPlan, LogOffset, bookmark_of, end_of, ranges_of
from pipeline.amps.options import AmpsOptions

_MAX_KEPT_ROWS: Final = 10_000
_MAX_KEPT_BYTES: Final = 8 << 20
"""Limits of the rows that may be sent to a task."""


class FailoverBatchPlanner:
    """Plans micro-batches by reading them.

    Args:
        options: servers, topic and filter.
        command_options: the options field of the subscription.
    """

    def __init__(self, options: AmpsOptions, command_options: str) -> None:
        self._options = options
        self._follower = LogFollower(options, command_options)
        self._last_batch: tuple[str, list[Message]] | None = None
        self._backlog: LogMeasure | None = None
        self._is_backlog_measured = True

    def stop_at_end(self) -> None:
        """See `BatchPlanner.stop_at_end`."""
        self._follower.stop_at_end()

    def close(self) -> None:
        """See `BatchPlanner.close`."""
        self._follower.close()

    def next_end(self, start: LogOffset, limits: BatchLimits) -> LogOffset:
        """See `BatchPlanner.next_end`."""
        plan = BatchPlan(has_digests=True)
        seen: list[Message] = []
        size = 0
        follower = self._follower
        for messages in follower.read_messages(bookmark_of(start), limits.max_rows, end_of(start)):
            plan.add([message.bookmark or "" for message in messages])
            size += sum(len(message.body) for message in messages)
            if plan.rows <= _MAX_KEPT_ROWS:
                seen += messages
            if limits.max_bytes is not None and size >= limits.max_bytes:
                break
        if not plan.rows:
            if self._backlog is not None and follower.is_at_end:
                self._backlog = self._backlog.after_reading()
            return start
        self._is_backlog_measured = False
        end = plan.offset(self._options.partitions)
        if follower.read_end is not None:
            end["read"] = list(follower.read_end)
        is_kept = len(seen) == plan.rows and size <= _MAX_KEPT_BYTES
        self._last_batch = (bookmark_of(end), seen) if is_kept else None
        return end

    def measure_backlog(self) -> LogMeasure | None:
        """See `BatchPlanner.measure_backlog`; counted by the server that the messages come from."""
        if not self._is_backlog_measured:
            self._backlog, self._is_backlog_measured = self._follower.measure_backlog(), True
        return self._backlog

    def small_batch_messages(self, end: LogOffset) -> list[list[Message]] | None:
        """See `BatchPlanner.small_batch_messages`."""
        if self._last_batch is None or self._last_batch[0] != bookmark_of(end):
            return None
        left = iter(self._last_batch[1])
        return [list(islice(left, range_.rows)) for range_ in ranges_of(end)]
