"""Samples are taken in slices, once per Interval, whatever else goes on or fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from server.statistics.collector import SLICE_SECONDS, StatisticsCollector
from server.statistics.resources import API, QUERIES
from server.statistics.sample import StatisticsEntry, StatisticsSample
from server.statistics.schema import Resource
from tests.engine.support import Core


class Numbers:
    """A source with some entries, that may fail after one of them."""

    def __init__(self, resource: Resource, count: int, fails_after: int | None = None) -> None:
        self.resource = resource
        self.count = count
        self.fails_after = fails_after

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `Source.entries`."""
        for number in range(self.count):
            if number == self.fails_after:
                raise RuntimeError("no more")
            yield StatisticsEntry(str(number), (), (number,))


class Collecting:
    """A collector, and what it has handed on.

    Attributes:
        samples: the samples.
    """

    def __init__(self, core: Core, *sources: Numbers) -> None:
        self.samples: list[StatisticsSample] = []
        turns, clock = core.engine.scheduler, core.clock
        self.collector = StatisticsCollector(
            1.0,
            self.samples.append,
            turns,
            clock,
            lambda: clock.time + clock.elapsed(),
            core.log,
        )
        self.collector.start(sources)

    def ids(self, resource: Resource) -> list[list[str]]:
        """The ids of a resource's entries, by sample."""
        return [[entry.id for entry in one.entries[resource.path]] for one in self.samples]


@pytest.fixture
def core() -> Core:
    return Core()


def until(core: Core, condition: Callable[[], bool]) -> int:
    """Make turns until something is so; how many that took."""
    for turns in range(10_000):
        if condition():
            return turns
        core.clock.turn()
    raise AssertionError("it never came")


def test_a_sample_is_taken_at_once_and_after_each_interval(core: Core) -> None:
    collecting = Collecting(core, Numbers(API, 1), Numbers(QUERIES, 2))
    began = core.clock.time
    core.clock.advance(2.5)
    assert [one.taken_at - began for one in collecting.samples] == pytest.approx([0, 1, 2])
    assert collecting.ids(API) == [["0"]] * 3
    assert collecting.ids(QUERIES) == [["0", "1"]] * 3


def test_a_large_sample_is_taken_in_slices(core: Core) -> None:
    core.clock.work_per_look = SLICE_SECONDS / 4
    collecting = Collecting(core, Numbers(API, 1_000))
    turns = until(core, lambda: bool(collecting.samples))
    assert turns > 10  # with a look each few entries, four to a slice
    assert len(collecting.ids(API)[0]) == 1_000


def test_others_have_their_turns_between_slices(core: Core) -> None:
    core.clock.work_per_look = SLICE_SECONDS / 4
    collecting = Collecting(core, Numbers(API, 1_000))
    peer = core.log_on("peer")
    core.clock.turn()
    assert not collecting.samples
    peer.send({"c": "flush", "cid": "1", "a": "completed"})
    assert peer.take_frames()[-1][0]["a"] == "completed"
    assert not collecting.samples


def test_an_interval_that_comes_too_early_is_skipped_and_counted(core: Core) -> None:
    collecting = Collecting(core, Numbers(API, 1_000))
    core.clock.work_per_look = SLICE_SECONDS
    core.clock.turn()
    core.clock.time += 1  # a whole Interval, in which there has been one turn
    core.clock.turn()
    assert collecting.samples == []
    assert collecting.collector.skipped_samples == 1
    until(core, lambda: bool(collecting.samples))
    assert len(collecting.ids(API)[0]) == 1_000


def test_a_source_that_fails_costs_its_own_entries_only(core: Core) -> None:
    collecting = Collecting(core, Numbers(API, 5, fails_after=2), Numbers(QUERIES, 1))
    core.clock.advance(1.5)
    assert collecting.ids(API) == [["0", "1"]] * 2
    assert collecting.ids(QUERIES) == [["0"]] * 2
    said = [fields for name, fields in core.log.entries if name == "01-0004"]
    assert said == [{"text": "statistics of instance/api", "error": "RuntimeError('no more')"}]


def test_a_collector_that_is_closed_hands_nothing_on(core: Core) -> None:
    core.clock.work_per_look = SLICE_SECONDS / 4
    collecting = Collecting(core, Numbers(API, 1_000))
    core.clock.turn()
    collecting.collector.close()
    core.clock.work_per_look = 0
    core.clock.advance(3)
    assert collecting.samples == []


def test_how_late_a_sample_was_begun_is_known(core: Core) -> None:
    core.clock.work_per_look = 0.25
    collecting = Collecting(core, Numbers(API, 1))
    until(core, lambda: bool(collecting.samples))
    assert collecting.collector.lag_s > 0
