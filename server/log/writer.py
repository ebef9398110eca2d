"""The thread that renders log entries to lines and queues them for the threads of the targets.

It takes the whole backlog at a time, renders each entry once, and queues the line for every target
that wants it. The targets' own threads write the lines (target_writer.py), so this thread never
waits for a device.
"""

from collections.abc import Callable, Sequence
from typing import Final

from server.log.entry_buffer import (
    BufferItem,
    EntryBuffer,
    EventLogEntry,
    TargetRequest,
    TargetRequestKind,
)
from server.log.renderer import entry_logger
from server.log.target_writer import BATCH_SIZE, FAILED, TargetWriter
from server.log.targets import LogLine, LogTarget

_BATCH_THRESHOLD: Final = 8
"""Entries taken at once from which on the writer pauses, to get larger batches."""
_PAUSE_SECONDS: Final = 0.005
"""Length of the pause. Each wake-up of the writer takes the GIL from the message path, and each
write wakes the watchers of the directory: in a flood, that costs more than the entries."""


class EventLogWriter:
    """The work of the writer's thread.

    Args:
        buffer: the source of entries.
        targets: all targets.
        clock: nanoseconds since the epoch, for entries about the targets themselves.
        thread: the thread number of these entries.
    """

    def __init__(
        self,
        buffer: EntryBuffer,
        targets: Sequence[LogTarget],
        clock: Callable[[], int],
        thread: int,
    ) -> None:
        """Start the threads of the targets, which end with a request to close."""
        self._buffer = buffer
        self._logger = entry_logger()
        self._clock = clock
        self._thread = thread
        self._writers: dict[LogTarget, TargetWriter] = {}
        self._add_writers(targets)

    def run(self) -> None:
        """Distribute entries and requests until a request to close has been distributed."""
        is_open = True
        while is_open:
            items, dropped = self._buffer.take_batch()
            is_open = self._process_items(items)
            for targets, count in dropped.items():
                for target in targets:
                    if writer := self._writers.get(target):
                        writer.skip_entries(count)
            if len(items) >= _BATCH_THRESHOLD and is_open:
                self._buffer.wait_for_more(_PAUSE_SECONDS)

    def _process_items(self, items: Sequence[BufferItem]) -> bool:
        """Distribute the entries and requests, up to a request to close.

        Returns:
            False after a request to close.
        """
        entries: list[EventLogEntry] = []
        for item in items:
            if not isinstance(item, TargetRequest):
                entries.append(item)
                if len(entries) == BATCH_SIZE:
                    self._distribute(entries)
                    entries = []
                continue
            self._distribute(entries)
            entries = []
            self._pass_on(item)
            if item.kind is TargetRequestKind.CLOSE:
                return False
        self._distribute(entries)
        return True

    def _pass_on(self, request: TargetRequest) -> None:
        """Queue a request for its targets; one that is removed has nothing left to execute."""
        if request.kind is TargetRequestKind.ADD:
            self._add_writers(request.targets)
        for target in request.targets:
            if writer := self._writers.get(target):
                writer.append_request(request)
            else:
                request.finish(target)
            if request.kind is TargetRequestKind.REMOVE:
                self._writers.pop(target, None)

    def _add_writers(self, targets: Sequence[LogTarget]) -> None:
        for target in targets:
            self._writers[target] = TargetWriter(
                target, self._clock, self._thread, self._report_failure
            )

    def _distribute(self, entries: Sequence[EventLogEntry]) -> None:
        if not entries:
            return
        lines_by_target: dict[LogTarget, list[LogLine]] = {target: [] for target in self._writers}
        for entry, line in zip(entries, self._logger.lines(entries), strict=True):
            for target in entry[1]:
                if target in lines_by_target:  # it may have been removed meanwhile
                    lines_by_target[target].append(line)
        for target, lines in lines_by_target.items():
            if lines:
                self._writers[target].append_lines(lines)

    def _report_failure(self, failed: TargetWriter, line: LogLine) -> None:
        """Report the failure of a target to the other targets."""
        for writer in self._writers.values():
            wants = FAILED.id in writer.target.selected_ids
            if writer is not failed and wants and not writer.is_failing:
                writer.append_lines([line])
