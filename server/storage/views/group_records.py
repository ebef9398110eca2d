"""The records of a client's own aggregation: one for each group, in memory.

The groups are built from records in any order, in time slices, and then updated by changes. Their
memory is accounted, because it is charged to the client (AMPS User Guide, Aggregated
Subscriptions). The figure is an estimate: bodies are counted, the rest is derived from the
projection and from the number of rows of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from server.storage.sow.records import Record, RecordChange, to_nanoseconds
from server.storage.views.aggregates import (
    DistinctTexts,
    DistinctValues,
    MaximumValue,
    MinimumValue,
)
from server.util.lazy_free import LazyFree

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.storage.views.aggregation import Aggregation, ChangeOrigin
    from server.storage.views.groups import Group
    from server.storage.views.projection import Projection

_GROUP: Final = 1200
"""Bytes of a group with its record, without accumulators and values."""
_ACCUMULATOR: Final = 300
_VALUE: Final = 150
"""Bytes of a value that an accumulator stores."""
_MAX_VALUES: Final = 5_000
"""Number of stored values after which a time slice makes no more records of groups."""
_KEEPING: Final[tuple[object, ...]] = (DistinctValues, MaximumValue, MinimumValue, DistinctTexts)
"""Accumulators that store values."""


class GroupRecords:
    """The groups of one client, and their records.

    Args:
        aggregation: groups the records of one topic, which may arrive in any order.
        projection: the projection.
        topic: the topic's name, which is also that of the records.
        hold: charges bytes of memory to the client; negative to release.
        owner: the client's name, and the scheduler of work in time slices on its behalf.
    """

    __slots__ = (
        "_aggregation",
        "_client",
        "_hold",
        "_moments",
        "_of_group",
        "_of_row",
        "_records",
        "_sizes",
        "_slices",
        "_topic",
    )

    def __init__(
        self,
        aggregation: Aggregation,
        projection: Projection,
        topic: str,
        hold: Callable[[int], None],
        owner: tuple[str, Scheduler],
    ) -> None:
        self._client, self._slices = owner
        self._aggregation: Final = aggregation
        self._topic: Final = topic
        self._hold: Final = hold
        self._of_group: Final = _GROUP + _ACCUMULATOR * len(projection.kept)
        self._of_row: Final = _VALUE * sum(kept.make in _KEEPING for kept in projection.kept)
        self._moments: Final[dict[Group, int]] = {}  # of groups that have no record yet
        self._records: Final[dict[str, Record]] = {}
        self._sizes: Final[dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._moments) + len(self._records)

    def find(self, key: str) -> Record | None:
        """Return the record of a group; None if there is none."""
        return self._records.get(key)

    def records(self) -> Sequence[Record]:
        """Return all current records."""
        return list(self._records.values())

    # ---- gathering

    def gather(self, records: Sequence[Record]) -> None:
        """Add records to groups, in their state when the gathering began."""
        moments = self._moments
        for record in records:
            change = RecordChange(record.key, record.topic, None, record)
            for group in self._aggregation.change(0, change, None):
                moments[group] = max(moments.get(group, 0), record.timestamp)
                self._reckon(group.sow_key, self._of_group + self._of_row * group.rows)

    def settle(self, most: int) -> Sequence[Record]:
        """Make the records of some gathered groups, and return them; none if all groups have one.

        Args:
            most: the maximum number of groups; fewer if they store very many values.
        """
        groups: list[Group] = []
        values = 0
        for group in islice(self._moments, most):
            groups.append(group)
            values += group.rows if self._of_row else 0
            if values >= _MAX_VALUES:
                break
        return [self._make(group, self._moments.pop(group)) for group in groups]

    # ---- following

    def take(self, change: RecordChange, origin: ChangeOrigin) -> Iterator[RecordChange]:
        """Apply a change of a record of the topic, and yield the changes of the groups' records.

        Args:
            change: the change of the record.
            origin: the origin of the change.
        """
        moment = to_nanoseconds(origin.received)
        for group in dict.fromkeys(self._aggregation.change(0, change, origin)):
            key = group.sow_key
            previous = self._records.get(key)
            if self._aggregation.settle(group):
                yield RecordChange(key, self._topic, previous, self._make(group, moment))
            else:
                self._reckon(key, 0)
                yield RecordChange(key, self._topic, self._records.pop(key, None), None)

    def drop(self) -> None:
        """Free all groups and records incrementally; the client does not need them any more."""
        self._hold(-sum(self._sizes.values()))
        contents = self._moments, self._records, self._sizes, self._aggregation.contents
        self._slices.queue(LazyFree(self._client, *contents))

    def _make(self, group: Group, moment: int) -> Record:
        key = group.sow_key
        record = Record(key, self._aggregation.body(group), self._topic, moment)
        self._records[key] = record
        self._reckon(key, self._of_group + self._of_row * group.rows + len(record.body))
        return record

    def _reckon(self, key: str, size: int) -> None:
        """Update the memory charged for a group."""
        self._hold(size - self._sizes.get(key, 0))
        if size:
            self._sizes[key] = size
        else:
            self._sizes.pop(key, None)
