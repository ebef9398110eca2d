"""Publishers are told that their messages are stored when all before them are, and not sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from server.expressions import BUILTINS
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.store import RecordStoreError, StoreCallback
from server.storage.sow.topic_records import SowTopicRecords
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

FULL = RecordStoreError("no space left")


class Bench:
    """A publisher to a topic in the log, and to records that are stored when a test says so.

    Attributes:
        commits: the commits of the records, not done yet.
    """

    def __init__(self, directory: Path) -> None:
        self.core = Core()
        self.core.record(directory, "^log/")
        self.commits: list[StoreCallback | None] = []
        spec = topic_spec("/id", name="records")
        sow = SowTopicRecords(spec, self.core.types["json"], MemoryStore(), BUILTINS, None)
        self.core.engine.sow_registry.add(sow, self.commits.append)
        self.publisher: CorePeer = self.core.log_on("publisher")
        self.publisher.take_frames()

    def publish(self, topic: str, *numbers: int) -> None:
        for number in numbers:
            header = {"c": "p", "t": topic, "s": number, "a": "persisted"}
            self.publisher.send_bytes(frame(header, b'{"id":1}'))

    def settle(self, commit: int, problem: RecordStoreError | None) -> None:
        callback = self.commits[commit]
        assert callback is not None
        callback(problem)
        self.core.engine.flush()

    def acks(self) -> list[tuple[str, int]]:
        self.core.clock.advance(1.5)
        return [(header["status"], header["s"]) for header, _ in self.publisher.take_frames()]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([(0, None), (1, FULL), (2, None)], [("success", 1), ("failure", 2), ("success", 3)]),
        ([(2, None), (1, FULL), (0, None)], [("failure", 2), ("success", 3)]),
        ([(0, None), (1, None), (2, FULL)], [("success", 2), ("failure", 3)]),
        ([(1, None), (2, None)], []),
        ([(0, FULL)], [("failure", 1)]),
    ],
)
def test_what_is_not_stored_is_told_for_itself(
    tmp_path: Path,
    outcomes: Sequence[tuple[int, RecordStoreError | None]],
    expected: list[tuple[str, int]],
) -> None:
    """In whichever order it becomes known."""
    bench = Bench(tmp_path)
    bench.publish("records", 1, 2, 3)
    for commit, problem in outcomes:
        bench.settle(commit, problem)
    assert bench.acks() == expected
    bench.core.transaction_log.journal.close()


def test_nothing_is_told_before_it_is_durable(tmp_path: Path) -> None:
    """Nor is what comes while the one before it is written."""
    bench = Bench(tmp_path)
    log = bench.core.transaction_log
    bench.publish("log/a", 1)
    assert bench.acks() == []
    log.journal.commit()
    bench.publish("log/a", 2)
    log.advance_durable(log.journal.durable_txid)
    bench.core.engine.flush()
    assert bench.acks() == [("success", 1)]
    bench.core.commit()
    assert bench.acks() == [("success", 2)]
    log.journal.close()


def test_what_is_refused_at_once_is_told_behind_what_is_stored(tmp_path: Path) -> None:
    """Although what is stored is told once a second."""
    bench = Bench(tmp_path)
    bench.publish("records", 1)
    bench.settle(0, None)
    bench.publish("/AMPS/refused", 2)
    assert bench.acks() == [("success", 1), ("failure", 2)]
    bench.core.transaction_log.journal.close()


def test_very_many_wait_together_and_none_for_those_behind_it(tmp_path: Path) -> None:
    """One that may fail stands between those before and behind it."""
    bench = Bench(tmp_path)
    bench.publish("log/a", *range(1, 700))
    bench.publish("records", 700)
    bench.publish("log/a", 701)
    assert bench.acks() == []
    bench.core.commit()
    assert bench.acks() == [("success", 699)]
    bench.settle(0, None)
    assert bench.acks() == [("success", 701)]
    bench.core.transaction_log.journal.close()
