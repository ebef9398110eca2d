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
    from server.storage.views.aggregation import Aggregation
    from server.storage.views.groups import Group
    from server.storage.views.projection import Projection
    from server.topics.subscriptions.delivery.envelope import Envelope

_GROUP_BYTES: Final = 1200
"""Bytes of a group with its record, without accumulators and values."""
_ACCUMULATOR_BYTES: Final = 300
_VALUE_BYTES: Final = 150
"""Bytes of a value that an accumulator stores."""
_MAX_VALUES: Final = 5_000
"""Number of stored values after which a time slice makes no more records of groups."""
_STORING_ACCUMULATORS: Final[tuple[object, ...]] = (
    DistinctValues,
    MaximumValue,
    MinimumValue,
    DistinctTexts,
)
"""Accumulators that store values."""


class GroupRecords:
    """The groups of one client, and their records.

    Args:
        aggregation: groups the records of one topic, which may arrive in any order.
        projection: the projection.
        topic: the topic's name, which is also that of the records.
        charge_memory: charges bytes of memory to the client; negative to release.
        owner: the client's name, and the scheduler of work in time slices on its behalf.
    """

    __slots__ = (
        "_aggregation",
        "_bytes_per_group",
        "_bytes_per_row",
        "_charge_memory",
        "_charged_bytes",
        "_client",
        "_pending_timestamps",
        "_records",
        "_scheduler",
        "_topic",
    )

    def __init__(
        self,
        aggregation: Aggregation,
        projection: Projection,
        topic: str,
        charge_memory: Callable[[int], None],
        owner: tuple[str, Scheduler],
    ) -> None:
        self._client, self._scheduler = owner
        self._aggregation: Final = aggregation
        self._topic: Final = topic
        self._charge_memory: Final = charge_memory
        self._bytes_per_group: Final = _GROUP_BYTES + _ACCUMULATOR_BYTES * len(
            projection.accumulator_specs
        )
        self._bytes_per_row: Final = _VALUE_BYTES * sum(
            kept.make in _STORING_ACCUMULATORS for kept in projection.accumulator_specs
        )
        self._pending_timestamps: Final[dict[Group, int]] = {}  # of groups that have no record yet
        self._records: Final[dict[str, Record]] = {}
        self._charged_bytes: Final[dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._pending_timestamps) + len(self._records)

    def find_record(self, key: str) -> Record | None:
        """Return the record of a group; None if there is none."""
        return self._records.get(key)

    def records(self) -> Sequence[Record]:
        """Return all current records."""
        return list(self._records.values())

    # ---- gathering

    def add_records(self, records: Sequence[Record]) -> None:
        """Add records to groups, in their state when the gathering began."""
        pending_timestamps = self._pending_timestamps
        for record in records:
            change = RecordChange(record.key, record.topic, None, record)
            for group in self._aggregation.apply_change(0, change, None):
                pending_timestamps[group] = max(pending_timestamps.get(group, 0), record.timestamp)
                self._update_memory_charge(
                    group.sow_key, self._bytes_per_group + self._bytes_per_row * group.row_count
                )

    def build_records(self, limit: int) -> Sequence[Record]:
        """Make the records of some gathered groups, and return them; none if all groups have one.

        Args:
            limit: the maximum number of groups; fewer if they store very many values.
        """
        groups: list[Group] = []
        values = 0
        for group in islice(self._pending_timestamps, limit):
            groups.append(group)
            values += group.row_count if self._bytes_per_row else 0
            if values >= _MAX_VALUES:
                break
        return [self._build_record(group, self._pending_timestamps.pop(group)) for group in groups]

    # ---- following

    def apply_change(self, change: RecordChange, origin: Envelope) -> Iterator[RecordChange]:
        """Apply a change of a record of the topic, and yield the changes of the groups' records.

        Args:
            change: the change of the record.
            origin: the origin of the change.
        """
        timestamp = to_nanoseconds(origin.received_s)
        for group in dict.fromkeys(self._aggregation.apply_change(0, change, origin)):
            key = group.sow_key
            previous = self._records.get(key)
            if self._aggregation.remove_if_empty(group):
                yield RecordChange(key, self._topic, previous, self._build_record(group, timestamp))
            else:
                self._update_memory_charge(key, 0)
                yield RecordChange(key, self._topic, self._records.pop(key, None), None)

    def free(self) -> None:
        """Free all groups and records incrementally; the client does not need them any more."""
        self._charge_memory(-sum(self._charged_bytes.values()))
        contents = (
            self._pending_timestamps,
            self._records,
            self._charged_bytes,
            self._aggregation.groups,
        )
        self._scheduler.queue_task(LazyFree(self._client, *contents))

    def _build_record(self, group: Group, timestamp: int) -> Record:
        key = group.sow_key
        record = Record(key, self._aggregation.build_body(group), self._topic, timestamp)
        self._records[key] = record
        self._update_memory_charge(
            key, self._bytes_per_group + self._bytes_per_row * group.row_count + len(record.body)
        )
        return record

    def _update_memory_charge(self, key: str, size: int) -> None:
        """Update the memory charged for a group."""
        self._charge_memory(size - self._charged_bytes.get(key, 0))
        if size:
            self._charged_bytes[key] = size
        else:
            self._charged_bytes.pop(key, None)
