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
    """The conversion of ranges to those of a base unit.

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
    return [_family(list(group)) for _, group in groupby(distributions, key=lambda one: one.name)]


def _family(group: list[Distribution]) -> MetricFamily:
    first, scale = group[0], _SCALES[group[0].unit]
    read = [
        _HistogramCopy(one.entry, list(one.histogram.counts), one.histogram.total) for one in group
    ]
    told, rest = read[:MAX_HISTOGRAM_ENTRIES], read[MAX_HISTOGRAM_ENTRIES:]
    if rest:
        counts = [sum(column) for column in zip(*(one.counts for one in rest), strict=True)]
        told.append(_HistogramCopy(REST, counts, sum(one.total for one in rest)))
    sizes = scale.exponents if len(told) == 1 else scale.exponents[::2]
    samples = [line for one in told for line in _lines(one, scale, sizes)]
    about = f"{first.description[0].upper()}{first.description[1:]}."
    return MetricFamily(
        f"amperage_{first.name}_{scale.unit}", "histogram", about, samples, scale.unit
    )


def _lines(numbers: _HistogramCopy, scale: _Scale, sizes: range) -> list[MetricSample]:
    own = {"queue": numbers.queue} if numbers.queue else {}
    lines = []
    below = done = 0
    for size in sizes:
        below += sum(numbers.counts[done : size + 1])
        done = size + 1
        end = round(((1 << size) - scale.exponent_offset) * scale.factor, 6)
        lines.append(MetricSample("_bucket", labels({**own, "le": repr(end)}), below))
    count = sum(numbers.counts)
    total = round(numbers.total * scale.factor, 6)
    return [
        *lines,
        MetricSample("_bucket", labels({**own, "le": "+Inf"}), count),
        MetricSample("_count", labels(own), count),
        MetricSample("_sum", labels(own), total),
    ]
