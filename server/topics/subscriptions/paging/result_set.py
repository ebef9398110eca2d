"""Result sets: the ordered records of a topic that match a filter. Pages are cut from them.

Theory of operation. A result set holds SOW keys, not records: each with its sort key, in a list
that finds, inserts, removes and counts in logarithmic time. A change of a record moves its key from
one position to another; pages get these two positions, which tell whether a record has crossed one
of their ends.

A result set is filled by a query, which may take many slices and sees the state at its start.
Changes wait meanwhile, at most one for each record, until all records have been found and the first
page has been cut; then they are applied, again in slices. Once it is complete, a result set serves
any number of pages, and another page costs no query (AMPS User Guide, Paginated SOW and Subscribe).

Its memory is estimated, and charged to the clients of its pages in equal parts (AMPS User Guide,
Slow Client Management).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import count, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sortedcontainers import SortedList

from server.storage.sow.query.record_order import RecordOrder, SortKey

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.message_types.base import MessageType
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.paging.page import Page

_Entry: TypeAlias = tuple[SortKey, int, str]
"""The sort key of a record: its values, then its SOW key in numeric order, by length and digits."""


_NUMBERS: Final = count(1)
_SIZE: Final = 400
"""Bytes that an entry takes."""
_SHARED_LATE: Final = 1000
"""Entries that may be added or removed before the memory is charged anew."""


class PositionChange(NamedTuple):
    """The old and new position of a changed record.

    Attributes:
        before: its old position, None if it had none.
        now: its new position, None if it has left.
    """

    before: int | None
    now: int | None

    def crosses(self, boundary: int) -> bool:
        """Return True if the move took any record from one side of a position to the other."""
        if self.before is None or self.now is None:
            position = self.now if self.before is None else self.before
            return position is not None and position < boundary
        return min(self.before, self.now) < boundary <= max(self.before, self.now)


class _PendingRecordChange(NamedTuple):
    """A change that is not applied yet.

    Attributes:
        record: the new state; None if it does not match, or the record was removed.
        message: the change, as subscribers see it.
    """

    record: Record | None
    message: RecordMessage


class _Stage(Enum):
    """The stages of filling a result set."""

    FILLING = "records are being found"
    CATCHING_UP = "all have been found; what changed meanwhile is being made good"
    COMPLETE = "it is what the topic is"


class ResultSet:
    """The keys of the matching records, in order.

    Args:
        message_type: parses bodies.
        order_by: the order; if empty, that of the SOW keys.

    Attributes:
        number: unique among all result sets of the process.
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
        self._pages: Final[list[Page]] = []
        self._shared = 0  # entries charged to the pages
        self._ordering: Final = RecordOrder(order_by, message_type)
        self._extract: Final = message_type.extractor(self._ordering.fields)
        self._entries: Final[dict[str, _Entry]] = {}
        self._order: Final[SortedList[_Entry]] = SortedList()
        self._stage = _Stage.FILLING
        self._waiting: Final[dict[str, _PendingRecordChange]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_complete(self) -> bool:
        """True if it is in line with the topic, so that pages can be cut from it."""
        return self._stage is _Stage.COMPLETE

    # ---- its pages

    @property
    def memory(self) -> int:
        """Estimated bytes that it takes."""
        return _SIZE * len(self._entries)

    @property
    def has_pages(self) -> bool:
        """True if any page is cut from it."""
        return bool(self._pages)

    def attach(self, page: Page) -> None:
        """Notify a page of changes from now on."""
        self._pages.append(page)
        self._share()

    def detach(self, page: Page) -> None:
        """Stop notifying a page."""
        self._pages.remove(page)
        page.hold(0)
        self._share()

    def _share(self) -> None:
        self._shared = len(self._entries)
        for page in self._pages:
            page.hold(_SIZE * self._shared // len(self._pages))

    # ---- reading

    def position(self, key: str) -> int | None:
        """Return the position of a record; None if it does not match."""
        entry = self._entries.get(key)
        return None if entry is None else self._order.bisect_left(entry)

    def around(self, boundary: int) -> Iterator[str]:
        """Yield the keys on both sides of a position, if they exist."""
        for position in (boundary - 1, boundary):
            if 0 <= position < len(self._order):
                yield self._order[position][-1]

    def keys(self, start: int, stop: int) -> list[str]:
        """Return the keys in a range of positions, in order."""
        return [entry[-1] for entry in self._order.islice(start, stop)]

    # ---- filling

    def fill(self, records: Sequence[Record]) -> None:
        """Add matching records, in their states at the start of the filling."""
        entries = {record.key: self._entry(record) for record in records}
        self._entries.update(entries)
        self._order.update(entries.values())
        self._share()

    def filled(self) -> None:
        """Record that all records have been found, so that waiting changes can be applied."""
        self._stage = _Stage.CATCHING_UP

    def catch_up(self, most: int) -> bool:
        """Apply up to `most` waiting changes; return True if there are more."""
        for key in list(islice(self._waiting, most)):
            self._apply(key, self._waiting.pop(key))
        if not self._waiting:
            self._stage = _Stage.COMPLETE
        return bool(self._waiting)

    # ---- following

    def take(self, record: Record | None, previous: Record | None, message: RecordMessage) -> None:
        """Apply a change, and notify pages.

        Args:
            record: the new state; None if it does not match, or the record was removed.
            previous: the old state.
            message: the change, as subscribers see it.
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
        waiting = _PendingRecordChange(record, message)
        if self._stage is _Stage.FILLING or earlier is not None:
            self._waiting[key] = waiting
        else:
            self._apply(key, waiting)

    def _apply(self, key: str, change: _PendingRecordChange) -> None:
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
        move = PositionChange(before, now)
        for page in self._pages:
            page.take(key, message, move)

    def _entry(self, record: Record) -> _Entry:
        values = self._extract(record.body) if self._ordering.fields else ()
        return self._ordering.key(values), len(record.key), record.key
