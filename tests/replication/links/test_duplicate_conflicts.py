"""Two messages with one name: the log says so, once for each publisher and while."""

from __future__ import annotations

from amperage.wire.bookmarks import client_hash
from server.replication.core import DuplicateConflict
from server.replication.links.duplicate_conflicts import (
    CONFLICT_LOG_INTERVAL_S,
    DuplicateConflictLog,
)
from server.storage.journal import JournalTopic
from server.storage.journal.format.entry import NO_ORIGIN
from server.storage.journal.format.layout import crc32c
from server.util.rate_limited_log import MAX_CAUSES
from tests.engine.support import RecordingLog, SimulatedClock
from tests.replication.links.support import ORDERS, Instance, Network, destination

PUBLISHER = client_hash("publisher")


def conflict(client: int, sequence: int) -> DuplicateConflict:
    return DuplicateConflict(client, sequence, JournalTopic("json", "orders"))


def test_what_two_instances_have_under_one_name_is_logged_by_both() -> None:
    network = Network()
    a = network.instance("A", destination("B", port=2), listens=1)
    b = network.instance("B", destination("A", port=1), listens=2)
    ours, _ = network.connect(a, "B", b)
    network.settle()
    ours.close()
    network.settle()
    for instance, size in ((a, 10), (b, 20)):
        instance.publish(3, size=size)
        note(instance)
    network.connect(a, "B", b)
    network.settle()
    for instance, other in ((a, "B"), (b, "A")):
        assert instance.logs("1E-0006") == [
            {"other": other, "topic": "orders", "identity": PUBLISHER, "sequence": 1}
        ]
        assert instance.links.conflict_log.count == 3
    network.pass_time(CONFLICT_LOG_INTERVAL_S + 1, step=1)
    for instance, other in ((a, "B"), (b, "A")):
        (entry,) = instance.logs("1E-0010")
        assert (entry["other"], entry["count"], entry["sequence"]) == (other, 2, 3)
    assert len({tuple(one.bodies()) for one in (a, b)}) == 2


def note(instance: Instance) -> None:
    """Take note of what has been published, as the transaction log does."""
    log = instance.entries
    numbers = range(1, len(log.data) + 1)
    instance.replication.recent_entries.add_batch(
        PUBLISHER,
        numbers,
        list(map(crc32c, log.data)),
        (log.first_txid, log.last_txid),
        ORDERS,
        NO_ORIGIN,
    )


def test_of_many_the_log_has_their_number() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    conflicts = DuplicateConflictLog(clock, log)
    for sequence in range(1, 1001):
        conflicts.record_conflicts("B", [conflict(7, sequence)])
    assert [entry[0] for entry in log.entries] == ["1E-0006"]
    clock.advance(CONFLICT_LOG_INTERVAL_S)
    assert [(one, fields.get("count")) for one, fields in log.entries[1:]] == [("1E-0010", 999)]
    clock.advance(CONFLICT_LOG_INTERVAL_S)
    assert len(log.entries) == 2
    conflicts.record_conflicts("B", [conflict(7, 2000)])
    assert [entry[0] for entry in log.entries[2:]] == ["1E-0006"]


def test_of_very_many_publishers_the_last_ones_are_not_told_apart() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    conflicts = DuplicateConflictLog(clock, log)
    conflicts.record_conflicts(
        "B", [conflict(client, 1) for client in range(1, 10 * MAX_CAUSES + 1)]
    )
    assert len(log.entries) <= MAX_CAUSES + 1
    assert conflicts.count == 10 * MAX_CAUSES
    clock.advance(CONFLICT_LOG_INTERVAL_S)
    counts = [fields["count"] for one, fields in log.entries if one == "1E-0010"]
    assert counts == [9 * MAX_CAUSES - 1]
