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
_ENTRY_BYTES: Final = 400
"""Bytes that an entry takes."""
_RECHARGE_ENTRIES: Final = 1000
"""Entries that may be added or removed before the memory is charged anew."""


class PositionChange(NamedTuple):
    """The old and new position of a changed record.

    Attributes:
        old_position: its old position, None if it had none.
        new_position: its new position, None if it has left.
    """

    old_position: int | None
    new_position: int | None

    def crosses(self, boundary: int) -> bool:
        """Return True if the move took any record from one side of a position to the other."""
        if self.old_position is None or self.new_position is None:
            position = self.new_position if self.old_position is None else self.old_position
            return position is not None and position < boundary
        return (
            min(self.old_position, self.new_position)
            < boundary
            <= max(self.old_position, self.new_position)
        )


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
    CATCHING_UP = "all have been found; changes made meanwhile are being applied"
    COMPLETE = "it is in line with the topic"


class ResultSet:
    """The keys of the matching records, in order.

    Args:
        message_type: parses bodies.
        order_by: the order; if empty, that of the SOW keys.

    Attributes:
        number: unique among all result sets of the process.
    """

    __slots__ = (
        "_charged_entries",
        "_entries",
        "_extract",
        "_pages",
        "_pending_changes",
        "_record_order",
        "_sorted_entries",
        "_stage",
        "number",
    )

    def __init__(self, message_type: MessageType, order_by: Sequence[OrderTerm]) -> None:
        self.number: Final = next(_NUMBERS)
        self._pages: Final[list[Page]] = []
        self._charged_entries = 0  # entries charged to the pages
        self._record_order: Final = RecordOrder(order_by, message_type)
        self._extract: Final = message_type.extractor(self._record_order.fields)
        self._entries: Final[dict[str, _Entry]] = {}
        self._sorted_entries: Final[SortedList[_Entry]] = SortedList()
        self._stage = _Stage.FILLING
        self._pending_changes: Final[dict[str, _PendingRecordChange]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_complete(self) -> bool:
        """True if it is in line with the topic, so that pages can be cut from it."""
        return self._stage is _Stage.COMPLETE

    # ---- its pages

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes that it takes."""
        return _ENTRY_BYTES * len(self._entries)

    @property
    def has_pages(self) -> bool:
        """True if any page is cut from it."""
        return bool(self._pages)

    def attach(self, page: Page) -> None:
        """Notify a page of changes from now on."""
        self._pages.append(page)
        self._charge_pages()

    def detach(self, page: Page) -> None:
        """Stop notifying a page."""
        self._pages.remove(page)
        page.charge_memory(0)
        self._charge_pages()

    def _charge_pages(self) -> None:
        self._charged_entries = len(self._entries)
        for page in self._pages:
            page.charge_memory(_ENTRY_BYTES * self._charged_entries // len(self._pages))

    # ---- reading

    def position_of(self, key: str) -> int | None:
        """Return the position of a record; None if it does not match."""
        entry = self._entries.get(key)
        return None if entry is None else self._sorted_entries.bisect_left(entry)

    def keys_around(self, boundary: int) -> Iterator[str]:
        """Yield the keys on both sides of a position, if they exist."""
        for position in (boundary - 1, boundary):
            if 0 <= position < len(self._sorted_entries):
                yield self._sorted_entries[position][-1]

    def keys_in_range(self, start: int, stop: int) -> list[str]:
        """Return the keys in a range of positions, in order."""
        return [entry[-1] for entry in self._sorted_entries.islice(start, stop)]

    # ---- filling

    def fill(self, records: Sequence[Record]) -> None:
        """Add matching records, in their states at the start of the filling."""
        entries = {record.key: self._make_entry(record) for record in records}
        self._entries.update(entries)
        self._sorted_entries.update(entries.values())
        self._charge_pages()

    def finish_fill(self) -> None:
        """Record that all records have been found, so that waiting changes can be applied."""
        self._stage = _Stage.CATCHING_UP

    def catch_up(self, limit: int) -> bool:
        """Apply up to `limit` waiting changes; return True if there are more."""
        for key in list(islice(self._pending_changes, limit)):
            self._move_entry(key, self._pending_changes.pop(key))
        if not self._pending_changes:
            self._stage = _Stage.COMPLETE
        return bool(self._pending_changes)

    # ---- following

    def apply_change(
        self, record: Record | None, previous: Record | None, message: RecordMessage
    ) -> None:
        """Apply a change, and notify pages.

        Args:
            record: the new state; None if it does not match, or the record was removed.
            previous: the old state.
            message: the change, as subscribers see it.
        """
        key = message.key
        for page in self._pages:
            if not page.is_live:
                page.save_state(key, previous)
        if record is None and key not in self._entries and self.is_complete:
            return
        earlier = self._pending_changes.get(key)
        if earlier is not None:
            message = message.merge_earlier(earlier.message)
        change = _PendingRecordChange(record, message)
        if self._stage is _Stage.FILLING or earlier is not None:
            self._pending_changes[key] = change
        else:
            self._move_entry(key, change)

    def _move_entry(self, key: str, change: _PendingRecordChange) -> None:
        record, message = change
        entry = None if record is None else self._make_entry(record)
        known_entry = self._entries.get(key)
        old_position = new_position = None
        if entry != known_entry:
            if known_entry is not None:
                old_position = self._sorted_entries.bisect_left(known_entry)
                del self._sorted_entries[old_position]
                del self._entries[key]
            if entry is not None:
                new_position = self._sorted_entries.bisect_left(entry)
                self._sorted_entries.add(entry)
                self._entries[key] = entry
        if abs(len(self._entries) - self._charged_entries) >= _RECHARGE_ENTRIES:
            self._charge_pages()
        move = PositionChange(old_position, new_position)
        for page in self._pages:
            page.apply_change(key, message, move)

    def _make_entry(self, record: Record) -> _Entry:
        values = self._extract(record.body) if self._record_order.fields else ()
        return self._record_order.sort_key(values), len(record.key), record.key
