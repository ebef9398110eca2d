"""Latencies since the last sample: they show when the instance was slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.resources import LATENCIES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from server.statistics.histograms import Distribution
    from server.statistics.schema import Resource, StatisticValue
    from server.util.histogram import Histogram

_SHARE: Final = 0.99


class LatenciesSource:
    """The latencies of the instance as a whole.

    Args:
        distributions: all distributions; only those of times, and of no entry, are used.
    """

    resource: Resource = LATENCIES

    def __init__(self, distributions: Iterable[Distribution]) -> None:
        self._deltas = [
            (
                distribution.name,
                (distribution.description,),
                _HistogramDelta(distribution.histogram),
            )
            for distribution in distributions
            if distribution.unit == "microseconds" and not distribution.entry
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for name, static_values, delta in self._deltas:
            yield StatisticsEntry(name, static_values, delta.take_delta())


class _HistogramDelta:
    """A histogram, and its values at the last reading."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._counts = [0] * len(histogram.counts)
        self._total = 0

    def take_delta(self) -> tuple[StatisticValue, ...]:
        """Return the moving values of an entry."""
        counts, total = list(self._histogram.counts), self._histogram.total
        new = [now - before for now, before in zip(counts, self._counts, strict=True)]
        spent = total - self._total
        self._counts, self._total = counts, total
        measured = sum(new)
        mean = round(spent / measured, 3) if measured else 0.0
        return sum(counts), mean, _percentile(new, measured), total


def _percentile(counts: list[int], measured: int) -> float:
    """Return the 99th percentile, as if the values of each range were spread evenly over it."""
    threshold = measured * _SHARE
    for number, count in enumerate(counts):
        if count and count >= threshold:
            low = 0 if number == 0 else 1 << (number - 1)
            return round(low + low * max(0.0, threshold) / count, 3)
        threshold -= count
    return 0.0
