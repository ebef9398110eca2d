"""The thread of one log target, and the bounded queue of lines before it.

A write to a pipe without a reader, to a stopped terminal or to a file on a hung disk blocks for as
long as that lasts. So each target has a thread of its own: a stalled target loses its own entries
when its queue is full, and delays nothing else. A failure is reported once, on standard error and
in the other targets; when the target recovers, a line gives the number of entries that are missing
before it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from server.log.catalogue import CATALOGUE, CatalogueMessage
from server.log.entry_buffer import MAX_BYTES, MAX_ENTRIES, TargetRequest, TargetRequestKind
from server.log.renderer import entry_logger
from server.log.targets import LogLine, LogTarget

MISSING: Final = CATALOGUE["01-0001"]
FAILED: Final = CATALOGUE["2C-0001"]

BATCH_SIZE: Final = 256
"""Maximum lines per write."""

_STALLED: Final = "it takes no data, and its queue is full"


@dataclass(slots=True)
class _Batch:
    lines: list[LogLine]
    size: int


@dataclass(slots=True)
class _Gap:
    """Entries that did not fit into the queue at this place."""

    entries: int


_Item: TypeAlias = _Batch | _Gap | TargetRequest


class TargetWriter:
    """Writes one target on a thread of its own, which ends with a request to close or remove it.

    Args:
        target: the target; used by this writer only from now on.
        clock: nanoseconds since the epoch, for entries about the target itself.
        thread_number: the thread number of these entries.
        report: called with this writer and an entry for the other targets, when this one fails.

    Attributes:
        target: the target.
        is_failing: whether a reported failure persists.
    """

    def __init__(
        self,
        target: LogTarget,
        clock: Callable[[], int],
        thread_number: int,
        report: Callable[[TargetWriter, LogLine], None],
    ) -> None:
        self.target: Final = target
        self.is_failing = False
        self._clock = clock
        self._thread_number = thread_number
        self._report = report
        self._logger = entry_logger()
        self._lost_entries = 0
        self._queue: deque[_Item] = deque()
        self._queued_entries = 0  # in the queue, including the ones being written
        self._queued_bytes = 0
        self._changed = threading.Condition()
        # A daemon thread: a write that blocks must not keep the process from ending.
        name = f"log target {target.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def append_lines(self, lines: Sequence[LogLine]) -> None:
        """Queue lines, or count the ones without room as lost. Never waits for the target."""
        size = sum(len(line.text) for line in lines)
        with self._changed:
            fitting = lines
            if not self._has_room(len(lines), size):
                fitting = self._fitting_prefix(lines)
                size = sum(len(line.text) for line in fitting)
            if fitting:
                self._append_batch(fitting, size)
            begins = self._append_gap(len(lines) - len(fitting))
            self._changed.notify()
        if begins:
            self._report_failure(_STALLED)

    def append_request(self, request: TargetRequest) -> None:
        """Queue a request; there is no limit for requests."""
        with self._changed:
            self._queue.append(request)
            self._changed.notify()

    def skip_entries(self, entries: int) -> None:
        """Count entries that are lost at this position of the queue."""
        with self._changed:
            self._append_gap(entries)
            self._changed.notify()

    def _has_room(self, entries: int, size: int) -> bool:
        if self._queue and isinstance(self._queue[-1], _Gap):
            # Hysteresis: a target that has lost entries gets more once half of its queue is
            # written, so that a slow one has few gaps.
            return self._queued_entries <= MAX_ENTRIES // 2 and self._queued_bytes <= MAX_BYTES // 2
        return (
            self._queued_entries + entries <= MAX_ENTRIES and self._queued_bytes + size <= MAX_BYTES
        )

    def _fitting_prefix(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Return the longest prefix of the lines that there is room for."""
        size = 0
        for count, line in enumerate(lines):
            size += len(line.text)
            if not self._has_room(count + 1, size):
                return lines[:count]
        return lines

    def _append_batch(self, lines: Sequence[LogLine], size: int) -> None:
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _Batch) and len(last.lines) + len(lines) <= BATCH_SIZE:
            last.lines += lines
            last.size += size
        else:
            self._queue.append(_Batch(list(lines), size))
        self._queued_entries += len(lines)
        self._queued_bytes += size

    def _append_gap(self, entries: int) -> bool:
        """Count lost entries; return whether a gap begins with them."""
        if not entries:
            return False
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _Gap):
            last.entries += entries
            return False
        self._queue.append(_Gap(entries))
        return True

    def _run(self) -> None:
        is_open = True
        while is_open:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                item = self._queue.popleft()
            if isinstance(item, TargetRequest):
                is_open = self._execute_request(item)
            elif isinstance(item, _Gap):
                self._lost_entries += item.entries
                self._write([])
            else:
                self._write(item.lines)
                with self._changed:
                    self._queued_entries -= len(item.lines)
                    self._queued_bytes -= item.size

    def _execute_request(self, request: TargetRequest) -> bool:
        """Execute a request; return whether the target is still open."""
        is_open = True
        if request.kind in (TargetRequestKind.CLOSE, TargetRequestKind.REMOVE):
            self._attempt(self.target.close)
            is_open = False
        elif request.kind in (TargetRequestKind.ALLOW_ROTATION, TargetRequestKind.ADD):
            self.target.may_rotate = True
        elif request.kind is TargetRequestKind.ROTATE:
            self._attempt(partial(self.target.rotate, self._clock()))
        request.finish(self.target)
        return is_open

    def _write(self, lines: Sequence[LogLine]) -> None:
        lost_entries, self._lost_entries = self._lost_entries, 0
        notice: list[LogLine] = []
        if lost_entries and MISSING.id not in self.target.excluded_ids:
            notice = [self._make_line(MISSING, count=lost_entries)]
        written_before = self.target.entries_written
        try:
            self.target.write([*notice, *lines])
        except OSError as problem:
            written = self.target.entries_written - written_before
            self._lost_entries = (
                len(notice) + len(lines) - written if written else lost_entries + len(lines)
            )
            self._report_failure(problem.strerror or str(problem))
        else:
            self.is_failing = False

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as problem:
            self._report_failure(problem.strerror or str(problem))

    def _report_failure(self, reason: str) -> None:
        """Report a failure of the target, once until it works again."""
        if self.is_failing:
            return
        self.is_failing = True
        target = self.target
        complain(
            f"{target.spec.location}: the log target {target.name} cannot be written: {reason}; "
            "entries for it are dropped until it can be written again"
        )
        self._report(self, self._make_line(FAILED, target=target.name, reason=reason))

    def _make_line(self, message: CatalogueMessage, **fields: object) -> LogLine:
        entry = (message, (), self._clock(), self._thread_number, fields)
        (line,) = self._logger.lines([entry])
        return line


def complain(sentence: str) -> None:
    """Print a problem of the log itself on standard error."""
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed as well
        print(f"ampServer: {sentence}", file=sys.stderr, flush=True)
