"""The groups of a topic's records, as the results of a query.

First a query for all records that match fills the groups, then a record is made of each of them;
both take as many slices as they need, and see the state at the moment of the command. Where the
groups are followed afterwards, what has changed meanwhile is made good in the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from server.sow.ordering import Ordering, Placed, Ranking

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.message_types.base import MessageType
    from server.sow.query import Query
    from server.sow.records import Record
    from server.subscriptions.aggregate import Aggregate
    from server.views.group_records import GroupRecords

_AT_ONCE: Final = 1000
"""Groups whose records are made in a slice."""


class Ranked:
    """Which groups are wanted, and in which order.

    Args:
        message_type: how their records are read.
        order_by: the order; without one they stay as they come.
        start: how many are passed over first.
        stop: how many are passed over or returned, None for all.
    """

    def __init__(
        self,
        message_type: MessageType,
        order_by: Sequence[OrderTerm],
        start: int,
        stop: int | None,
    ) -> None:
        self._ordering: Final = Ordering(order_by)
        self._extract: Final = message_type.extractor(self._ordering.fields)
        self._start: Final = start
        self._stop: Final = stop
        self._records: Final[list[Record]] = []
        self._ranking: Final = Ranking(stop)

    def add(self, records: Sequence[Record]) -> None:
        """Add records."""
        first = len(self._records)
        self._records.extend(records)
        values = (self._extract(record.body) for record in records)
        self._ranking.add(
            [Placed(self._ordering.key(one), place) for place, one in enumerate(values, first)]
        )

    def wanted(self) -> Iterator[Record]:
        """The records that are wanted, in order."""
        places = islice(self._ranking.rows(), self._start, self._stop)
        return (self._records[place] for place in places)


class AggregateQuery:
    """A query for the groups of a topic: each step does a slice of the work.

    Args:
        scan: finds the records that match.
        groups: takes them.
        ranked: puts the records of groups in order.
        follower: follows the groups afterwards; None if nobody does.

    Attributes:
        topic_matches: the records that were there to be tested.
        matches: the groups, when all have been found.
    """

    def __init__(
        self, scan: Query, groups: GroupRecords, ranked: Ranked, follower: Aggregate | None
    ) -> None:
        self.topic_matches: Final = scan.topic_matches
        self.matches = 0
        self._scan: Final = scan
        self._groups: Final = groups
        self._ranked: Final = ranked
        self._follower: Final = follower
        self._steps: Final[Generator[list[Record], None, None]] = self._run()

    def __iter__(self) -> Iterator[list[Record]]:
        """The slices of work that are left; each gives records, perhaps none."""
        return self._steps

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._steps.close()
        self._scan.close()
        if self._follower is None:
            self._groups.drop()

    def _run(self) -> Generator[list[Record], None, None]:
        groups = self._groups
        for records in self._scan:
            groups.gather(records)
            yield []
        self.matches = len(groups)
        while made := groups.settle(_AT_ONCE):
            self._ranked.add(made)
            yield []
        wanted = self._ranked.wanted()
        while results := list(islice(wanted, _AT_ONCE)):
            yield results
        while self._follower is not None and self._follower.catch_up():
            yield []
