"""Query results from the groups of a topic's records.

First a query for all matching records fills the groups, then a record is made of each group. Both
take as many time slices as they need, and read the state at the moment of the command. If a
subscription follows the groups afterwards, changes of the meantime are applied at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from server.storage.sow.query.record_order import RecordOrder, RowSorter
from server.util.task import split_into_chunks

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.message_types.base import MessageType
    from server.storage.sow.query.query import OpenQuery
    from server.storage.sow.records import Record
    from server.storage.views.group_records import GroupRecords
    from server.topics.subscriptions.aggregate_subscription import AggregateSubscription

_BATCH_SIZE: Final = 100
"""Records that are gathered, or records of groups that are made, in a time slice."""


class GroupOrder:
    """Selects and orders the records of groups.

    Args:
        message_type: the message type of the records.
        order_by: the order; without one they keep the order in which they are added.
        start: the number of records to skip.
        stop: the number of records to skip or return, None for all.
    """

    def __init__(
        self,
        message_type: MessageType,
        order_by: Sequence[OrderTerm],
        start: int,
        stop: int | None,
    ) -> None:
        self._record_order: Final = RecordOrder(order_by, message_type)
        self._extract: Final = message_type.extractor(self._record_order.fields)
        self._records: Final[dict[int, Record]] = {}
        self._added_count = 0
        self._sorter: Final = RowSorter(start, stop)

    def add(self, records: Sequence[Record]) -> None:
        """Add records."""
        positions = range(self._added_count, self._added_count + len(records))
        self._added_count = positions.stop
        self._records.update(zip(positions, records, strict=True))
        values = (self._extract(record.body) for record in records)
        self._sorter.add(self._record_order.make_sort_rows(values, positions))

    def drain_selected(self) -> Iterator[Sequence[Record]]:
        """Yield the selected records, in order and in slices, some of which may be empty."""
        for positions in self._sorter.slices(_BATCH_SIZE):
            yield [self._records.pop(position) for position in positions]


class GroupCollector:
    """Gathers the groups of the records that a query finds: each step does a slice of the work.

    Args:
        scan: finds the records that match.
        groups: receives them.
    """

    def __init__(self, scan: OpenQuery, groups: GroupRecords) -> None:
        self._scan: Final = scan
        self._groups: Final = groups

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Yield per slice of work the records of groups, perhaps none."""
        for records in self._scan:
            for chunk in split_into_chunks(records, _BATCH_SIZE):
                self._groups.add_records(chunk)
                yield []
        while built := self._groups.build_records(_BATCH_SIZE):
            yield built

    def close(self) -> None:
        """End the scan; harmless if it has ended."""
        self._scan.close()


class GroupIterator:
    """The existing groups, in their present state, in slices.

    Args:
        groups: the groups.
    """

    def __init__(self, groups: GroupRecords) -> None:
        self._records: Final = groups.records()

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Yield the records in slices."""
        for start in range(0, len(self._records), _BATCH_SIZE):
            yield self._records[start : start + _BATCH_SIZE]

    def close(self) -> None:
        """Do nothing: there is no scan to end."""


class AggregateQuery:
    """A query for groups: each step does a slice of the work.

    Args:
        collector: finds all groups.
        order: orders the records of groups.
        scan: the scan from which the groups are gathered.
        on_end: called when the query has ended, also after a failure.

    Attributes:
        matches: the number of groups, when all have been found.
    """

    def __init__(
        self,
        collector: GroupCollector,
        order: GroupOrder,
        scan: OpenQuery,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.matches = 0
        self._scan: Final = scan
        self._collector: Final = collector
        self._order: Final = order
        self._on_end: Final = on_end
        self._slices: Final[Generator[Sequence[Record], None, None]] = self._run()

    @property
    def topic_matches(self) -> int:
        """The number of records tested."""
        return self._scan.topic_matches

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Return the remaining slices of work; each yields records, perhaps none."""
        return self._slices

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._slices.close()
        self._collector.close()
        if self._on_end is not None:
            self._on_end()

    def _run(self) -> Generator[Sequence[Record], None, None]:
        for records in self._collector:
            self._order.add(records)
            self.matches += len(records)
            yield []
        yield from self._order.drain_selected()


class AggregateSubscriptionQuery:
    """A query for groups that a subscription follows afterwards.

    Args:
        query: the query.
        aggregate_subscription: follows the groups.
    """

    def __init__(self, query: OpenQuery, aggregate_subscription: AggregateSubscription) -> None:
        self._query: Final = query
        self._aggregate_subscription: Final = aggregate_subscription

    @property
    def topic_matches(self) -> int:
        """The number of records tested."""
        return self._query.topic_matches

    @property
    def matches(self) -> int:
        """The number of groups, when all have been found."""
        return self._query.matches

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Yield the records of the query in slices, then apply the changes of the meantime."""
        yield from self._query
        while self._aggregate_subscription.catch_up():
            yield []

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._query.close()
