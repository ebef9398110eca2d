"""Converts samples to snapshots: counters are compared with those of the sample before.

A rate is the growth of a counter, divided by the time between two samples, as a whole number. There
is none at the first sample. An entry that is new since the sample before has counted from zero.

Source: AMPS Monitoring Guide, Statistics Types.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from server.statistics.resources import RESOURCES
from server.statistics.sample import StatisticsEntry, StatisticsSample, StatisticsSnapshot
from server.statistics.schema import Resource, StatisticValue
from server.statistics.timestamps import from_unix

_BATCH_SIZE: Final = 500
"""Entries that are processed before the thread releases the GIL, so that the engine may run."""


class _RatedEntry(NamedTuple):
    """An entry, with its rates and all its values."""

    entry: StatisticsEntry
    rates: tuple[StatisticValue, ...]
    values: tuple[StatisticValue, ...]


class EntryRates:
    """Completes the entries of one resource, sample after sample.

    An entry that has not changed, as most subscriptions never do, reuses its earlier values.
    """

    def __init__(self, resource: Resource) -> None:
        source_fields = [field.name for field in resource.source_fields]
        static_fields = [field.name for field in resource.static_fields]
        rates = [field for field in resource.dynamic_fields if field.cumulative_field]
        indexes = {
            name: at
            for at, name in enumerate(
                [*static_fields, *source_fields, *(rate.name for rate in rates)]
            )
        }
        self._counter_indexes = tuple(
            source_fields.index(field.cumulative_field) for field in rates
        )
        self._reorder = _picker([indexes[field.name] for field in resource.fields])
        self._previous: dict[str, _RatedEntry] = {}

    def complete(
        self, entries: list[StatisticsEntry], seconds: float
    ) -> dict[str, tuple[StatisticValue, ...]]:
        """Return all values by id, in the order of the resource's fields.

        Args:
            entries: of this sample.
            seconds: since the sample before; 0 if there is none.
        """
        now: dict[str, _RatedEntry] = {}
        for number, entry in enumerate(entries):
            if number % _BATCH_SIZE == _BATCH_SIZE - 1:
                time.sleep(0)
            before = self._previous.get(entry.id)
            if before is not None and before.entry is entry and not any(before.rates):
                now[entry.id] = before
            else:
                rates = self._rates(entry, before, seconds)
                values = self._reorder(entry.static_values + entry.dynamic_values + rates)
                now[entry.id] = _RatedEntry(entry, rates, values)
        self._previous = now
        return {identity: rated.values for identity, rated in now.items()}

    def _rates(
        self, entry: StatisticsEntry, before: _RatedEntry | None, seconds: float
    ) -> tuple[StatisticValue, ...]:
        if seconds <= 0:
            return (0,) * len(self._counter_indexes)
        if before is None or before.entry.static_values is not entry.static_values:
            return tuple(
                _rate(entry.dynamic_values[at], 0, seconds) for at in self._counter_indexes
            )
        dynamic_values = before.entry.dynamic_values
        return tuple(
            _rate(entry.dynamic_values[at], dynamic_values[at], seconds)
            for at in self._counter_indexes
        )


def _rate(now: StatisticValue, before: StatisticValue, seconds: float) -> int:
    if isinstance(now, str) or isinstance(before, str):
        return 0  # at least one of them is no number
    return max(0, round((now - before) / seconds))


def _picker(
    indexes: list[int],
) -> Callable[[tuple[StatisticValue, ...]], tuple[StatisticValue, ...]]:
    if len(indexes) == 1:
        [index] = indexes
        return lambda values: (values[index],)
    return itemgetter(*indexes)


class SampleRates:
    """Converts samples to snapshots; samples have to come in their order."""

    def __init__(self) -> None:
        self._entry_rates = {resource.path: EntryRates(resource) for resource in RESOURCES}
        self._elapsed: float | None = None
        self._timestamp = 0

    def complete(self, sample: StatisticsSample) -> StatisticsSnapshot:
        """Return the snapshot of a sample; no two in a row have the same timestamp."""
        seconds = 0.0 if self._elapsed is None else sample.elapsed - self._elapsed
        self._elapsed = sample.elapsed
        taken_at = from_unix(sample.taken_at)
        self._timestamp = taken_at + 1 if taken_at == self._timestamp else taken_at
        entries: Mapping[str, Mapping[str, tuple[StatisticValue, ...]]] = {
            path: self._entry_rates[path].complete(entries, seconds)
            for path, entries in sample.entries.items()
        }
        return StatisticsSnapshot(self._timestamp, entries)
