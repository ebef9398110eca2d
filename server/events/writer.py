"""The thread that writes the log: it alone touches the targets.

It takes the whole backlog at a time, makes each entry's line once, and hands every target its
lines in large pieces. A target that fails costs nobody else anything: what it refuses is counted,
the failure is said once (on standard error and in the other targets), and it is tried again with
the next entries; when it recovers, its first line says how many entries are missing.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from server.events.backlog import Backlog, Dropped, Entry, Item, Request, RequestKind
from server.events.catalogue import CATALOGUE, Message
from server.events.entries import entry_logger
from server.events.targets import Line, Target

MISSING: Final = CATALOGUE["01-0001"]
FAILED: Final = CATALOGUE["2C-0001"]

CHUNK: Final = 256
"""Entries made into lines before they are written. Making lines keeps the interpreter busy, writing
lets the message path run; it also bounds the memory that a burst takes as text."""

_MANY: Final = 8
"""Entries that have come while others were being written from which on more are let come."""
_PAUSE_SECONDS: Final = 0.005
"""For how long. Each time that the writer wakes it takes the interpreter from the message path, and
each write wakes whoever watches the directory: in a flood, that costs more than the entries."""


class Writer:
    """What the writer's thread runs.

    Args:
        backlog: where entries come from.
        targets: where they may go.
        clock: nanoseconds since the epoch, for the writer's own entries.
        thread: the number under which the writer's own entries appear.
    """

    def __init__(
        self,
        backlog: Backlog,
        targets: Sequence[Target],
        clock: Callable[[], int],
        thread: int,
    ) -> None:
        """Take over the targets; `run` closes them at the end."""
        self._backlog = backlog
        self._targets = targets
        self._clock = clock
        self._thread = thread
        self._logger = entry_logger()
        self._failing: set[Target] = set()
        self._unwritten: Counter[Target] = Counter()

    def run(self) -> None:
        """Write what comes until a request to close has been carried out."""
        closing: Request | None = None
        while closing is None:
            items, dropped = self._backlog.take()
            closing = self._work_through(items)
            self._report_dropped(dropped)
            if len(items) >= _MANY and closing is None:
                self._backlog.let_more_come(_PAUSE_SECONDS)
        for target in self._targets:
            self._try(target, target.close)
        closing.done.set()

    def _work_through(self, items: Sequence[Item]) -> Request | None:
        """Write the entries and carry out the requests, up to a request to close.

        Returns:
            The request to close, which is left to the caller.
        """
        entries: list[Entry] = []
        for item in items:
            if not isinstance(item, Request):
                entries.append(item)
                if len(entries) == CHUNK:
                    self._write_out(entries)
                    entries = []
                continue
            self._write_out(entries)
            entries = []
            if item.kind is RequestKind.CLOSE:
                return item
            if item.kind is RequestKind.ALLOW_ROTATION:
                for target in self._targets:
                    target.rotates = True
            if item.kind is RequestKind.ROTATE:
                for target in self._targets:
                    self._try(target, partial(target.rotate, self._clock()))
            item.done.set()
        self._write_out(entries)
        return None

    def _report_dropped(self, dropped: Dropped) -> None:
        """Say what did not fit into the backlog after the entries that have just been written."""
        for targets, count in dropped.items():
            self._unwritten.update(dict.fromkeys(targets, count))
        for target in {target for targets in dropped for target in targets}:
            self._deliver(target, [])

    def _write_out(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        wanted: dict[Target, list[Line]] = {target: [] for target in self._targets}
        for entry, line in zip(entries, self._logger.lines(entries), strict=True):
            for target in entry[1]:
                wanted[target].append(line)
        for target, lines in wanted.items():
            if lines:
                self._deliver(target, lines)

    def _deliver(self, target: Target, lines: Sequence[Line]) -> None:
        missing = self._unwritten.pop(target, 0)
        notice: list[Line] = []
        if missing and MISSING.id not in target.excluded:
            notice = [self._own_line(MISSING, count=missing)]
        written_before = target.entries_written
        try:
            target.write([*notice, *lines])
        except OSError as problem:
            written = target.entries_written - written_before
            if written:
                self._unwritten[target] = len(notice) + len(lines) - written
            else:
                self._unwritten[target] = missing + len(lines)
            self._report_failure(target, problem)
        else:
            self._failing.discard(target)

    def _try(self, target: Target, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as problem:
            self._report_failure(target, problem)

    def _report_failure(self, target: Target, problem: OSError) -> None:
        """Say once, until the target works again, that it does not."""
        if target in self._failing:
            return
        self._failing.add(target)
        reason = problem.strerror or str(problem)
        complain(
            f"{target.spec.location}: the log target {target.name} cannot be written: {reason}; "
            "entries for it are dropped until it can be written again"
        )
        line = self._own_line(FAILED, target=target.name, reason=reason)
        for other in self._targets:
            if FAILED.id in other.wanted and other not in self._failing:
                self._deliver(other, [line])

    def _own_line(self, message: Message, **fields: object) -> Line:
        (line,) = self._logger.lines([(message, (), self._clock(), self._thread, fields)])
        return line


def complain(sentence: str) -> None:
    """Tell the operator about the log itself, where else it would go unnoticed."""
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed as well
        print(f"ampServer: {sentence}", file=sys.stderr, flush=True)
