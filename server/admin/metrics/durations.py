"""Distributions as histograms, in seconds or bytes.

The numbers have been counted by powers of two. A time in whole microseconds was truncated, so a
time in the range below 2**n was less than that; a number of bytes there is 2**n - 1 at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

from server.admin.metrics.exposition import MetricFamily, MetricSample, labels
from server.admin.metrics.families import REST
from server.statistics.histograms import Distribution

MAX_HISTOGRAM_ENTRIES: Final = 100
"""Entries listed one by one for each name, since each is a dozen series; others are summed up."""


class _Scale(NamedTuple):
    """The conversion of ranges to a base unit.

    Attributes:
        unit: the base unit.
        factor: converts a number to it.
        exponent_offset: the power of two minus the largest number of the range below it.
        exponents: the powers of two at which ranges end; smaller and larger ones are joined.
    """

    unit: str
    factor: float
    exponent_offset: int
    exponents: range


_SCALES: Final = {
    "microseconds": _Scale("seconds", 1e-6, 0, range(4, 28)),  # 16 us to 134 s
    "bytes": _Scale("bytes", 1.0, 1, range(6, 28)),  # 63 bytes to 128 MB
}


class _HistogramCopy(NamedTuple):
    """A copy of a histogram at a moment.

    Attributes:
        queue: its queue; empty if there is only one histogram.
        counts: see `Histogram`.
        total: see `Histogram`.
    """

    queue: str
    counts: list[int]
    total: int


def histograms(distributions: Iterable[Distribution]) -> list[MetricFamily]:
    """Return a family of the distributions of each name, which come one after another."""
    return [
        _family(list(group))
        for _, group in groupby(distributions, key=lambda distribution: distribution.name)
    ]


def _family(group: list[Distribution]) -> MetricFamily:
    first, scale = group[0], _SCALES[group[0].unit]
    copies = [
        _HistogramCopy(copy.entry, list(copy.histogram.counts), copy.histogram.total)
        for copy in group
    ]
    listed, rest = copies[:MAX_HISTOGRAM_ENTRIES], copies[MAX_HISTOGRAM_ENTRIES:]
    if rest:
        counts = [sum(column) for column in zip(*(copy.counts for copy in rest), strict=True)]
        listed.append(_HistogramCopy(REST, counts, sum(copy.total for copy in rest)))
    sizes = scale.exponents if len(listed) == 1 else scale.exponents[::2]
    samples = [line for copy in listed for line in _lines(copy, scale, sizes)]
    description = f"{first.description[0].upper()}{first.description[1:]}."
    return MetricFamily(
        f"amperage_{first.name}_{scale.unit}", "histogram", description, samples, scale.unit
    )


def _lines(histogram: _HistogramCopy, scale: _Scale, sizes: range) -> list[MetricSample]:
    queue_label = {"queue": histogram.queue} if histogram.queue else {}
    lines = []
    cumulative_count = next_index = 0
    for size in sizes:
        cumulative_count += sum(histogram.counts[next_index : size + 1])
        next_index = size + 1
        end = round(((1 << size) - scale.exponent_offset) * scale.factor, 6)
        lines.append(
            MetricSample("_bucket", labels({**queue_label, "le": repr(end)}), cumulative_count)
        )
    count = sum(histogram.counts)
    total = round(histogram.total * scale.factor, 6)
    return [
        *lines,
        MetricSample("_bucket", labels({**queue_label, "le": "+Inf"}), count),
        MetricSample("_count", labels(queue_label), count),
        MetricSample("_sum", labels(queue_label), total),
    ]
