"""The buffer of entries that are logged but not yet written, shared by loggers and the writer.

Loggers append to a list; the writer takes the whole list and leaves an empty one. Both happen
under a lock that is held for a few instructions, so no logger ever waits for a device. The backlog
is bounded by entries and by bytes; entries that do not fit are counted, per group of targets, and
the counts are passed on with the next list, so that those targets can report the loss.
"""

import queue
import threading
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

from server.log.catalogue import CatalogueMessage
from server.log.targets.base import LogTarget

EventLogEntry: TypeAlias = tuple[
    CatalogueMessage, tuple[LogTarget, ...], int, int, dict[str, object]
]
"""Message, the targets that want it, nanoseconds since the epoch, thread number, fields."""

MAX_ENTRIES: Final = 65_536
MAX_BYTES: Final = 64 * 1024 * 1024


class TargetRequestKind(Enum):
    """Requests to the targets, besides entries to write."""

    FLUSH = auto()
    ROTATE = auto()
    ALLOW_ROTATION = auto()
    ADD = auto()
    """Write to these targets as well from now on."""
    REMOVE = auto()
    """Close these targets only, and write no more to them."""
    CLOSE = auto()


class TargetRequest:
    """A request to the targets, executed after everything logged before it.

    Attributes:
        kind: the request.
        targets: the targets.
        done: set when all targets have executed it.
    """

    __slots__ = ("_lock", "_unfinished", "done", "kind", "targets")

    def __init__(self, kind: TargetRequestKind, targets: Sequence[LogTarget]) -> None:
        """Start with all of `targets` unfinished."""
        self.kind = kind
        self.targets = tuple(targets)
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._unfinished = list(targets)
        if not targets:
            self.done.set()

    @property
    def unfinished(self) -> Sequence[LogTarget]:
        """The targets that have not executed it yet."""
        with self._lock:
            return tuple(self._unfinished)

    def finish(self, target: LogTarget) -> None:
        """Record that a target has executed it."""
        with self._lock:
            self._unfinished.remove(target)
            if not self._unfinished:
                self.done.set()


BufferItem: TypeAlias = EventLogEntry | TargetRequest
DropCounts: TypeAlias = Counter[tuple[LogTarget, ...]]


class EntryBuffer:
    """A bounded list of entries, swapped whole.

    `MAX_ENTRIES` limits the entries in it, `MAX_BYTES` the bytes of text in their fields.
    """

    __slots__ = ("_buffered_bytes", "_dropped", "_has_request", "_items", "_lock", "_wakeups")

    def __init__(self) -> None:
        """Start empty."""
        self._items: list[BufferItem] = []
        self._buffered_bytes = 0
        self._dropped: DropCounts = Counter()
        # Reentrant, because a signal handler may log during another put.
        self._lock = threading.RLock()
        # Holds one item for each time that the list became non-empty.
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._has_request = threading.Event()  # set if there is a request

    def append_entry(self, entry: EventLogEntry) -> None:
        """Append an entry, or count it as dropped if the backlog is full. Never waits."""
        size = 0
        for value in entry[4].values():
            if type(value) is bytes or type(value) is str:
                size += len(value)
        with self._lock:
            if len(self._items) >= MAX_ENTRIES or self._buffered_bytes + size > MAX_BYTES:
                self._dropped[entry[1]] += 1
                return
            self._buffered_bytes += size
            self._append_item(entry)

    def append_request(self, request: TargetRequest) -> None:
        """Append a request; there is no limit for requests."""
        with self._lock:
            self._append_item(request)
            self._has_request.set()

    def wait_for_more(self, seconds: float) -> None:
        """Wait for further entries to batch, at most `seconds`, or until there is a request."""
        self._has_request.wait(seconds)

    def take_batch(self) -> tuple[list[BufferItem], DropCounts]:
        """Wait for an item, then return all items, and the counts of entries dropped meanwhile."""
        self._wakeups.get()
        with self._lock:
            items, self._items = self._items, []
            dropped, self._dropped = self._dropped, Counter()
            self._buffered_bytes = 0
            self._has_request.clear()
        return items, dropped

    def _append_item(self, item: BufferItem) -> None:
        self._items.append(item)
        if len(self._items) == 1:
            self._wakeups.put(None)
