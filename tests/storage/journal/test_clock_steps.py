"""Times of entries while the wall clock is set, and what a replay from a moment finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.storage.journal import JournalTopic
from tests.storage.journal.support import START, Bench
from tests.support.waiting import wait_until

SECOND = 1_000_000
HOUR = 3600 * SECOND

SEQUENCES = [
    [0, -HOUR, 0],
    [HOUR, 0],
    [24 * HOUR, 0, -HOUR],
    [0, -24 * HOUR, 24 * HOUR, 0],
]
"""By how many microseconds the clock is ahead, each time for some entries."""


def settle(bench: Bench) -> None:
    """Wait until everything is on stable storage."""
    wait_until(lambda: bench.journal.durable_txid == bench.journal.last_txid)


class Trial:
    """A journal whose clock is set.

    Attributes:
        recorded: the true times of its entries, by their txids.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bench = Bench(directory)
        self.bench.journal.start()
        self.true = START
        self.ahead = 0
        self.recorded: dict[int, int] = {}
        self.append(1)  # and what the name of the topic stands for, at the same time
        self.recorded.clear()

    def set(self, ahead: int, *, tell: bool) -> None:
        """Set the clock; the journal is told of it, or has to find out."""
        step, self.ahead = ahead - self.ahead, ahead
        self.bench.clock.now += step
        if tell and step:
            self.bench.journal.record_clock_step(step / SECOND)

    def append(self, count: int) -> None:
        """Record some entries, a second apart."""
        topic = self.bench.journal.topic_handle("json", "t")
        for _ in range(count):
            self.true += SECOND
            self.bench.clock.now = self.true + self.ahead
            txid = self.bench.journal.append(topic, 7, 0, b"{}")
            self.recorded[txid] = self.true
        settle(self.bench)

    def reopen(self) -> None:
        """Begin anew with what is on the disk."""
        self.bench.journal.close()
        clock = self.bench.clock
        self.bench = Bench(self.directory, clock=clock)
        self.bench.journal.start()

    def check(self) -> None:
        """Check that each moment leads to the entry of that moment.

        What the log says of names and runs comes right before an entry, at the same time.
        """
        for txid, true in self.recorded.items():
            found = self.bench.journal.first_since(true + self.ahead)
            assert found is not None
            assert min(one for one in self.recorded if one >= found) == txid


@pytest.mark.parametrize("sequence", SEQUENCES, ids=str)
def test_a_moment_is_found_by_the_clock_as_it_is_set_now(
    tmp_path: Path, sequence: list[int]
) -> None:
    trial = Trial(tmp_path)
    for ahead in sequence:
        trial.set(ahead, tell=True)
        trial.append(5)
        trial.check()
    entries = list(trial.bench.journal.entries())
    told = [entry.timestamp for entry in entries if entry.topic == JournalTopic("json", "t")]
    true = [moment + sequence[number // 5] for number, moment in enumerate(trial.recorded.values())]
    assert told[1:] == true
    trial.reopen()
    trial.check()
    trial.append(5)
    trial.check()
    trial.bench.journal.close()


def test_steps_back_are_found_without_the_file_that_has_them(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    for ahead in (HOUR, 0):
        trial.set(ahead, tell=True)
        trial.append(5)
    trial.bench.journal.close()
    (tmp_path / "TEST.steps.ack").unlink()
    for txid in list(trial.recorded)[:6]:
        del trial.recorded[txid]  # the step is known up to the second between two entries
    trial.bench = Bench(tmp_path, clock=trial.bench.clock)
    trial.bench.journal.start()
    trial.check()
    trial.bench.journal.close()


def test_a_clock_that_was_set_back_while_nothing_ran(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.set(24 * HOUR, tell=True)
    trial.append(5)
    trial.set(0, tell=False)
    trial.bench.clock.now = trial.true
    trial.recorded.clear()
    trial.reopen()
    trial.append(5)
    trial.check()
    trial.reopen()
    trial.check()
    trial.bench.journal.close()


def test_a_clock_that_is_set_where_the_log_goes_on_in_another_file(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    for ahead in (HOUR, 0, -HOUR, 0):
        trial.append(5)
        trial.set(ahead, tell=True)
        topic, files = trial.bench.journal.topic_handle("json", "t"), len(trial.bench.journal.files)
        while len(trial.bench.journal.files) == files:
            trial.true += SECOND
            trial.bench.clock.now = trial.true + trial.ahead
            trial.bench.journal.append(topic, 7, 0, bytes(100_000))
    trial.append(5)
    trial.check()
    trial.reopen()
    trial.append(5)
    trial.check()
    trial.bench.journal.close()


def test_a_clock_that_goes_back_a_little_stands_still_in_the_log(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.journal.start()
    topic = bench.journal.topic_handle("json", "t")
    for step in (0, -SECOND // 2, SECOND // 4):
        bench.clock.now += step
        bench.journal.append(topic, 7, 0, b"{}")
    settle(bench)
    told = [entry.timestamp for entry in bench.journal.entries() if entry.topic.name == "t"]
    assert told == [START] * 3
    bench.journal.close()
    assert not (tmp_path / "TEST.steps.ack").exists()
