"""The records of a topic that match a filter, in an order: what pages are cut from.

Theory of operation. A result set holds SOW keys, not records: each with what it sorts by, in a list
that finds, inserts, removes and counts in logarithmic time. A change of a record takes its key from
one position to another; a page learns these two positions, which tell whether anything has crossed
one of its ends.

A result set is filled by a query, which may take many slices and sees the state at its start. What
changes meanwhile waits, at most once for each record, until everything has been found and the first
page has been cut; then it is caught up with, again in slices. Once it is complete, a result set
serves any number of pages, and another page costs no query (AMPS User Guide, Paginated SOW and
Subscribe).

What it takes is reckoned up, by rule of thumb, and counts as memory of its pages' clients, in equal
parts (AMPS User Guide, Slow Client Management).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import count, islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from sortedcontainers import SortedList

from server.sow.ordering import Ordering, SortKey

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.message_types.base import MessageType
    from server.sow.records import Record
    from server.subscriptions.record_delivery import RecordMessage

_Entry: TypeAlias = tuple[SortKey, int, str]
"""What a record sorts by: its values, then its key as a number, which are in order of length."""


_NUMBERS: Final = count(1)
_SIZE: Final = 400
"""Bytes that an entry takes."""
_SHARED_LATE: Final = 1000
"""Entries that may come or go before what they take is shared out anew."""


class Move(NamedTuple):
    """Where a change has taken a record.

    Attributes:
        before: its position, None if it was in no place.
        now: its position now, None if it has left.
    """

    before: int | None
    now: int | None

    def crosses(self, boundary: int) -> bool:
        """Whether any record has got from one side of a position to the other by this."""
        if self.before is None or self.now is None:
            position = self.now if self.before is None else self.before
            return position is not None and position < boundary
        return min(self.before, self.now) < boundary <= max(self.before, self.now)


class Window(Protocol):
    """What is cut from a result set, and told of its changes: a page."""

    @property
    def is_live(self) -> bool:
        """Whether its client is told of changes as they come."""

    def hold(self, size: int) -> None:
        """Let bytes count as memory of its client, instead of those that have counted so far."""

    def keep(self, key: str, previous: Record | None) -> None:
        """Keep what a record was before it is changed; asked for until the page is live."""

    def take(self, key: str, message: RecordMessage, move: Move) -> None:
        """Follow a change of a record that matches, or did."""


class _Waiting(NamedTuple):
    """A change that has not been made yet.

    Attributes:
        record: what the record is now; None if it does not match, or is gone.
        message: what its subscribers are told.
    """

    record: Record | None
    message: RecordMessage


class _Stage(Enum):
    """How far the filling of a result set has got."""

    FILLING = "records are being found"
    CATCHING_UP = "all have been found; what changed meanwhile is being made good"
    COMPLETE = "it is what the topic is"


class ResultSet:
    """The keys of the records that match, in order.

    Args:
        message_type: how bodies are read.
        order_by: the order; without one it is that of the SOW keys.

    Attributes:
        number: tells it from all others that there have been.
    """

    __slots__ = (
        "_entries",
        "_extract",
        "_order",
        "_ordering",
        "_pages",
        "_shared",
        "_stage",
        "_waiting",
        "number",
    )

    def __init__(self, message_type: MessageType, order_by: Sequence[OrderTerm]) -> None:
        self.number: Final = next(_NUMBERS)
        self._pages: Final[list[Window]] = []
        self._shared = 0  # entries that have been shared out
        self._ordering: Final = Ordering(order_by, message_type)
        self._extract: Final = message_type.extractor(self._ordering.fields)
        self._entries: Final[dict[str, _Entry]] = {}
        self._order: Final[SortedList[_Entry]] = SortedList()
        self._stage = _Stage.FILLING
        self._waiting: Final[dict[str, _Waiting]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_complete(self) -> bool:
        """Whether it is what the topic is, so that pages can be cut from it."""
        return self._stage is _Stage.COMPLETE

    # ---- its pages

    @property
    def memory(self) -> int:
        """About how many bytes it takes."""
        return _SIZE * len(self._entries)

    @property
    def has_pages(self) -> bool:
        """Whether any page is cut from it."""
        return bool(self._pages)

    def attach(self, page: Window) -> None:
        """Let a page know of changes from now on."""
        self._pages.append(page)
        self._share()

    def detach(self, page: Window) -> None:
        """Let a page know of nothing more."""
        self._pages.remove(page)
        page.hold(0)
        self._share()

    def _share(self) -> None:
        self._shared = len(self._entries)
        for page in self._pages:
            page.hold(_SIZE * self._shared // len(self._pages))

    # ---- reading

    def position(self, key: str) -> int | None:
        """Where a record stands; None if it does not match."""
        entry = self._entries.get(key)
        return None if entry is None else self._order.bisect_left(entry)

    def around(self, boundary: int) -> Iterator[str]:
        """The keys on both sides of a position, as far as there are any."""
        for position in (boundary - 1, boundary):
            if 0 <= position < len(self._order):
                yield self._order[position][-1]

    def keys(self, start: int, stop: int) -> list[str]:
        """The keys of some positions, in order."""
        return [entry[-1] for entry in self._order.islice(start, stop)]

    # ---- filling

    def fill(self, records: Sequence[Record]) -> None:
        """Add records that match, as they were when the filling began."""
        entries = {record.key: self._entry(record) for record in records}
        self._entries.update(entries)
        self._order.update(entries.values())
        self._share()

    def filled(self) -> None:
        """Take note that all records have been found."""
        self._stage = _Stage.CATCHING_UP

    def catch_up(self, most: int) -> bool:
        """Make some of the changes that have waited; whether there are more."""
        for key in list(islice(self._waiting, most)):
            self._apply(key, self._waiting.pop(key))
        if not self._waiting:
            self._stage = _Stage.COMPLETE
        return bool(self._waiting)

    # ---- following

    def take(self, record: Record | None, previous: Record | None, message: RecordMessage) -> None:
        """Follow a change, and let pages know.

        Args:
            record: what the record is now; None if it does not match, or is gone.
            previous: what it was.
            message: what its subscribers are told.
        """
        key = message.key
        for page in self._pages:
            if not page.is_live:
                page.keep(key, previous)
        if record is None and key not in self._entries and self.is_complete:
            return
        earlier = self._waiting.get(key)
        if earlier is not None:
            message = message.since(earlier.message)
        waiting = _Waiting(record, message)
        if self._stage is _Stage.FILLING or earlier is not None:
            self._waiting[key] = waiting
        else:
            self._apply(key, waiting)

    def _apply(self, key: str, change: _Waiting) -> None:
        record, message = change
        entry = None if record is None else self._entry(record)
        known = self._entries.get(key)
        before = now = None
        if entry != known:
            if known is not None:
                before = self._order.bisect_left(known)
                del self._order[before]
                del self._entries[key]
            if entry is not None:
                now = self._order.bisect_left(entry)
                self._order.add(entry)
                self._entries[key] = entry
        if abs(len(self._entries) - self._shared) >= _SHARED_LATE:
            self._share()
        move = Move(before, now)
        for page in self._pages:
            page.take(key, message, move)

    def _entry(self, record: Record) -> _Entry:
        values = self._extract(record.body) if self._ordering.fields else ()
        return self._ordering.key(values), len(record.key), record.key
