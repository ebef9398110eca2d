"""A snapshot as families of metrics, by the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from server.admin.metrics.exposition import MetricFamily, counter, gauge, labels
from server.admin.metrics.table import ID, RATIO, SECONDS, Metric, MetricGroup
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import MeasurementKind, StatisticValue

MAX_LISTED_ENTRIES: Final = 1_000
"""Entries of a resource that are listed one by one at /metrics."""

REST: Final = "other"
"""The value of the labels of all further entries; summed up, they form one more entry."""

_Rows: TypeAlias = Mapping[str, tuple[StatisticValue, ...]]


@dataclass
class SeriesLimit:
    """The maximum number of series.

    Attributes:
        max_entries: how many entries of a resource are listed one by one.
        sums_rest: whether the others are summed up. Where entries come and go they are not: sums
            of counters would decrease.
        omitted_series: the number of series that are omitted.
    """

    max_entries: int = MAX_LISTED_ENTRIES
    sums_rest: bool = True
    omitted_series: int = field(default=0, init=False)

    def families(
        self, snapshot: StatisticsSnapshot, groups: Iterable[MetricGroup]
    ) -> list[MetricFamily]:
        """Return the families of some groups."""
        return [family for group in groups for family in self._group_families(snapshot, group)]

    def _group_families(
        self, snapshot: StatisticsSnapshot, group: MetricGroup
    ) -> list[MetricFamily]:
        entries = snapshot.entries.get(group.resource.path, {})
        rows = {name: row for name, row in entries.items() if name != group.excluded_entry}
        listed = list(rows.items())[: self.max_entries]
        rest = list(rows.values())[self.max_entries :]
        self.omitted_series += len(rest) * len(group.metrics)
        label_texts = _labels(group, listed)
        summed = [labels(dict.fromkeys(group.labels, REST))] if rest and self.sums_rest else []
        families = []
        for metric in group.metrics:
            column = _column(group, metric.field)
            values = [_number(row[column], metric.scale) for _, row in listed]
            if summed:
                values.append(
                    _combine(metric, [_number(row[column], metric.scale) for row in rest])
                )
            samples = zip([*label_texts, *summed], values, strict=True)
            families.append(_family(group, metric, samples))
        return families


def _column(group: MetricGroup, name: str) -> int:
    return [one.name for one in group.resource.fields].index(name)


def _labels(
    group: MetricGroup, entries: Iterable[tuple[str, tuple[StatisticValue, ...]]]
) -> list[str]:
    """Return the labels of each entry."""
    columns = {
        label: None if name == ID else _column(group, name) for label, name in group.labels.items()
    }
    return [
        labels(
            {
                label: identity if column is None else str(row[column])
                for label, column in columns.items()
            }
        )
        for identity, row in entries
    ]


def _number(value: StatisticValue, scale: float) -> float:
    """Return a value in the unit of its metric; 0 for a text."""
    if isinstance(value, str):
        return 0
    return value if scale == 1 else round(value * scale, 9)


def _combine(metric: Metric, values: list[float]) -> float:
    """Combine entries: ages and shares do not add up, so return their largest, else the sum."""
    return max(values) if metric.unit in (SECONDS, RATIO) else sum(values)


def _family(
    group: MetricGroup, metric: Metric, samples: Iterable[tuple[str, float]]
) -> MetricFamily:
    field = group.resource.fields[_column(group, metric.field)]
    make = counter if field.kind is MeasurementKind.CUMULATIVE else gauge
    description = field.description.removesuffix("; not in AMPS").replace("microseconds", "seconds")
    path = f"/amps/{group.resource.path}"
    return make(
        f"{group.prefix}_{metric.name}",
        f"{description[0].upper()}{description[1:]}; see {path}.",
        samples,
        metric.unit,
    )
