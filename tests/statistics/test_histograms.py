"""Distributions: what falls into which range, and what is counted while an instance works."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.statistics.histograms import distributions
from server.util.histogram import Histogram
from tests.engine.support import Core


@pytest.mark.parametrize(
    ("number", "place"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (1 << 63, 64), (1 << 70, 64)],
)
def test_a_number_counts_in_the_range_of_its_power_of_two(number: int, place: int) -> None:
    histogram = Histogram()
    histogram.add(number)
    assert [where for where, count in enumerate(histogram.counts) if count] == [place]


def test_the_sum_and_the_ends_of_all_numbers_are_known() -> None:
    histogram = Histogram()
    for number in (7, 3, 90):
        histogram.add(number)
    histogram.add(5, times=4)
    assert (sum(histogram.counts), histogram.total) == (7, 120)
    assert (histogram.minimum, histogram.maximum) == (3, 90)


def test_what_an_instance_does_is_distributed(tmp_path: Path) -> None:
    core = Core()
    core.record(tmp_path, "safe")
    publisher = core.log_on("publisher")
    sent = {"c": "publish", "t": "safe", "s": 1, "a": "persisted"}
    publisher.send(sent, b"{}")
    core.clock.time += 0.5
    core.commit()
    core.clock.advance(2)
    found = {one.name: one for one in distributions(core.engine)}
    assert sum(found["turn"].histogram.counts) > 0
    assert sum(found["log_write"].histogram.counts) > 0
    assert sum(found["log_write_size"].histogram.counts) > 0
    persisted = found["publish_to_persisted"].histogram
    assert (sum(persisted.counts), persisted.total) == (1, 500_000)
