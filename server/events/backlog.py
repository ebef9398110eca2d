"""What has been logged but not yet written: the only thing that loggers and the writer share.

Loggers append to a list; the writer takes the whole list and leaves an empty one. Both happen
under a lock that is held for a few instructions, so nobody ever waits for a device. The backlog
is bounded by entries and by bytes; what does not fit is counted, per group of targets, and the
count travels with the next list, so that those targets can say so.
"""

import queue
import threading
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

from server.events.catalogue import Message
from server.events.targets.base import Target

Entry: TypeAlias = tuple[Message, tuple[Target, ...], int, int, dict[str, object]]
"""Message, the targets that want it, nanoseconds since the epoch, thread number, fields."""

MAX_ENTRIES: Final = 65_536
MAX_BYTES: Final = 64 * 1024 * 1024


class RequestKind(Enum):
    """Requests to the targets, besides entries to write."""

    FLUSH = auto()
    ROTATE = auto()
    ALLOW_ROTATION = auto()
    CLOSE = auto()


class Request:
    """Work for the targets that is not an entry, done after everything logged before it.

    Attributes:
        done: set when all targets have carried it out.
    """

    __slots__ = ("_lock", "_unfinished", "done", "kind")

    def __init__(self, kind: RequestKind, targets: Sequence[Target]) -> None:
        """Wait for all of `targets`."""
        self.kind = kind
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._unfinished = list(targets)
        if not targets:
            self.done.set()

    @property
    def unfinished(self) -> Sequence[Target]:
        """The targets that have not carried it out yet."""
        with self._lock:
            return tuple(self._unfinished)

    def finish(self, target: Target) -> None:
        """Note that a target has carried it out."""
        with self._lock:
            self._unfinished.remove(target)
            if not self._unfinished:
                self.done.set()


Item: TypeAlias = Entry | Request
Dropped: TypeAlias = Counter[tuple[Target, ...]]


class Backlog:
    """A bounded list of entries, swapped whole.

    Args:
        max_entries: how many entries may wait.
        max_bytes: how many bytes of text in their fields may wait.
    """

    __slots__ = (
        "_bell",
        "_dropped",
        "_is_asked",
        "_items",
        "_lock",
        "_max_bytes",
        "_max_entries",
        "_waiting",
    )

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        """Start empty."""
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._items: list[Item] = []
        self._waiting = 0
        self._dropped: Dropped = Counter()
        # Reentrant, because a signal handler may log in the middle of another put.
        self._lock = threading.RLock()
        # Holds one ring for each time that the list became non-empty.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_asked = threading.Event()  # whether there is a request

    def put(self, entry: Entry) -> None:
        """Append an entry, or count it as dropped when the backlog is full. Never waits."""
        size = 0
        for value in entry[4].values():
            if type(value) is bytes or type(value) is str:
                size += len(value)
        with self._lock:
            if len(self._items) >= self._max_entries or self._waiting + size > self._max_bytes:
                self._dropped[entry[1]] += 1
                return
            self._waiting += size
            self._append(entry)

    def ask(self, request: Request) -> None:
        """Append a request; there is always room for it."""
        with self._lock:
            self._append(request)
            self._is_asked.set()

    def let_more_come(self, seconds: float) -> None:
        """Wait for more than one thing, unless something is asked for meanwhile."""
        self._is_asked.wait(seconds)

    def take(self) -> tuple[list[Item], Dropped]:
        """Wait until there is something, then take all of it, with what was dropped meanwhile."""
        self._bell.get()
        with self._lock:
            items, self._items = self._items, []
            dropped, self._dropped = self._dropped, Counter()
            self._waiting = 0
            self._is_asked.clear()
        return items, dropped

    def _append(self, item: Item) -> None:
        self._items.append(item)
        if len(self._items) == 1:
            self._bell.put(None)
