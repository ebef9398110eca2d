"""How long things have taken between two samples."""

from __future__ import annotations

import pytest

from server.statistics.histograms import Distribution
from server.statistics.latencies import LatenciesSource
from server.util.histogram import Histogram


def moving(source: LatenciesSource) -> tuple[object, ...]:
    """Count, mean, 99th percentile and total of the only entry."""
    (entry,) = source.entries()
    return entry.dynamic_values


def test_an_interval_knows_nothing_of_those_before() -> None:
    histogram = Histogram()
    source = LatenciesSource([Distribution("turn", "microseconds", "turns", "", histogram)])
    histogram.add(100, 10)
    assert moving(source)[:2] == (10, 100.0)
    histogram.add(700)
    assert moving(source)[:2] == (11, 700.0)
    assert moving(source) == (11, 0.0, 0.0, 1_700)


@pytest.mark.parametrize(
    ("numbers", "least", "most"),
    [
        ({0: 5}, 0, 0),
        ({1: 100}, 1, 2),
        ({100: 99, 5_000: 1}, 64, 128),
        ({100: 98, 5_000: 2}, 4_096, 8_192),
        ({100: 1_000}, 64, 128),
    ],
)
def test_of_a_hundred_ninety_nine_stay_within(
    numbers: dict[int, int], least: float, most: float
) -> None:
    histogram = Histogram()
    source = LatenciesSource([Distribution("turn", "microseconds", "turns", "", histogram)])
    for number, times in numbers.items():
        histogram.add(number, times)
    assert least <= moving(source)[2] <= most  # type: ignore[operator]  # figures are objects


def test_what_is_no_time_or_of_one_queue_is_left_out() -> None:
    histogram = Histogram()
    source = LatenciesSource(
        [
            Distribution("log_write_size", "bytes", "sizes", "", histogram),
            Distribution("held", "microseconds", "of a queue", "work", histogram),
        ]
    )
    assert list(source.entries()) == []
