"""A server finds a damaged entry in its log, and gets it back from another one.

Source: docs/replication.md. AMPS has nothing of the kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from server.storage.journal import JournalEntryKind
from server.storage.journal.format.layout import BODY_START, RECORD_SIZE
from server.storage.journal.inspection import JournalReader
from tests.recovery.large_messages import replay
from tests.replication.topologies import Topology, both
from tests.support.cluster import PAIR, Cluster, Instance, cluster
from tests.support.waiting import wait_until

COUNT: Final = 50
ALL: Final = list(range(1, COUNT + 1))
MISSING_ENTRY: Final = re.compile(r"entry \d+, \d+\|\d+\| of events")
THROUGH: Final = Topology("through", both(("A", "H"), ("H", "B"), is_sync=False), (("A",),))
"""What is published at A gets to B through H."""


def publish(instance: Instance) -> None:
    """Messages with and without numbers; some are too long for one piece."""
    with instance.server.log_on("publisher") as peer:
        for number in ALL:
            padding = "x" * (200_000 if number == 30 else 10)
            keys = {"s": number} if number <= 30 else {}
            peer.publish("events", f'{{"n":{number},"p":"{padding}"}}'.encode(), **keys)
        peer.flush()


def flip(instance: Instance, *numbers: int) -> None:
    """Flip a bit of messages in the journal of an instance."""
    (path,) = instance.directory.glob("journal/*0.journal")
    content = bytearray(path.read_bytes())
    for number in numbers:
        content[content.index(b'{"n":%d,' % number) + 2] ^= 1
    path.write_bytes(content)


def spoil(instance: Instance, *numbers: int, bodies: bool = False) -> None:
    """Lose the records of messages in the journal of an instance, or also the bodies."""
    (path,) = instance.directory.glob("journal/*0.journal")
    content = bytearray(path.read_bytes())
    places = {}
    for slot in JournalReader(path).slots():
        if (
            slot.row is not None
            and slot.entry is not None
            and slot.entry.kind == JournalEntryKind.PUBLISH
        ):
            places[json.loads(slot.entry.body)["n"]] = slot.offset, slot.row[BODY_START] + 2
    for number in numbers:
        record, within = places[number]
        content[record : record + RECORD_SIZE] = bytes(RECORD_SIZE)
        content[within] ^= bodies
    path.write_bytes(content)


def replayed(instance: Instance) -> list[int]:
    return replay(instance.server, "events")


def bookmarks(pair: Cluster, name: str) -> list[tuple[object, ...]]:
    """What the journal of an instance, which is down, says of messages."""
    (path,) = pair[name].directory.glob("journal/*0.journal")
    entries = (slot.entry for slot in JournalReader(path).slots())
    return [
        (one.txid, one.bookmark, one.topic, one.origin, one.source_txid, one.source, one.body)
        for one in entries
        if one is not None and one.kind == JournalEntryKind.PUBLISH
    ]


def has_all(instances: Cluster, *names: str) -> None:
    """Wait until instances have everything."""
    for name in names:
        instance = instances[name]
        wait_until(lambda: len(replayed(instance)) == COUNT, instances.logs)  # noqa: B023 - now


def is_mended(pair: Cluster, name: str, count: int) -> None:
    assert pair[name].server.logs("1E-0018", count), pair.logs()


@contextmanager
def ended(
    tmp_path: Path,
    topology: Topology = PAIR,
    *,
    without: str = "",
    end: Callable[[Instance], object] = Instance.stop,
) -> Iterator[Cluster]:
    """Instances that all have everything, but for one of them, and have ended."""
    with cluster(tmp_path, topology, elements="") as instances:
        there = [instance for instance in instances if instance.name != without]
        for instance in there:
            instance.start()
        publish(instances["A"])
        has_all(instances, *(instance.name for instance in there))
        for instance in there:
            end(instance)
        yield instances


def test_damaged_entries_come_back_from_the_other_server(tmp_path: Path) -> None:
    with ended(tmp_path) as pair:
        flip(pair["A"], 1, 30, 45)
        flip(pair["B"], 2, 31)
        pair.start()
        is_mended(pair, "A", 3)
        is_mended(pair, "B", 2)
        for name in ("A", "B"):
            assert replayed(pair[name]) == ALL
            pair[name].stop()
        pair.start()
        for name in ("A", "B"):
            assert replayed(pair[name]) == ALL
            assert "1D-0004" not in pair[name].server.log()


def test_entries_are_repaired_once_though_links_end(tmp_path: Path) -> None:
    """A link that is made anew requests nothing again that is being repaired."""
    damaged = range(31, 51)
    with ended(tmp_path) as pair:
        flip(pair["A"], *damaged)
        pair.start()
        for count in range(1, len(damaged)):
            wait_until(lambda: pair["A"].server.log().count("1E-0018") >= count, pair.logs)  # noqa: B023 - now
            pair.network.hang_up("A", "B")
        wait_until(lambda: pair["A"].server.log().count("1E-0018") >= len(damaged), pair.logs)
        assert replayed(pair["A"]) == ALL
        repaired = re.findall(r"1E-0018 Damaged entry (\d+)", pair["A"].server.log())
        assert len(repaired) == len(set(repaired)) == len(damaged), pair.logs()


def test_damaged_records_are_made_again(tmp_path: Path) -> None:
    """Alone and in a row, of messages published here and elsewhere; bookmarks are as before."""
    with ended(tmp_path) as pair:
        before = {name: bookmarks(pair, name) for name in ("A", "B")}
        spoil(pair["A"], 5, *range(20, 35), 48)
        spoil(pair["B"], 1, *range(8, 14), 42, 43, 50)
        pair.start()
        has_all(pair, "A", "B")
        for name in ("A", "B"):
            assert replayed(pair[name]) == ALL
            pair[name].stop()
        pair.start()
        for name in ("A", "B"):
            assert replayed(pair[name]) == ALL
            assert "1D-0004" not in pair[name].server.log()
        for name in ("A", "B"):
            pair[name].stop()
        assert before == {name: bookmarks(pair, name) for name in ("A", "B")}


def test_a_record_and_its_body_are_mended(tmp_path: Path) -> None:
    """Where the message was published, its number in the log says which it was."""
    with ended(tmp_path) as pair:
        spoil(pair["A"], 5, 45, bodies=True)
        pair.start()
        is_mended(pair, "A", 2)
        assert replayed(pair["A"]) == ALL


def test_records_that_nobody_has_are_named(tmp_path: Path) -> None:
    """The log says that they are lost."""
    with ended(tmp_path) as pair:
        spoil(pair["A"], 5)
        spoil(pair["B"], 5)
        pair.start()
        assert pair["A"].server.logs("1E-0023"), pair.logs()
        assert replayed(pair["A"]) == [one for one in ALL if one != 5]


def test_what_both_have_lost_stays_lost(tmp_path: Path) -> None:
    with ended(tmp_path) as pair:
        flip(pair["A"], 7, 8)
        flip(pair["B"], 7)
        pair.start()
        is_mended(pair, "A", 1)
        assert replayed(pair["A"]) == [one for one in ALL if one != 7]


def test_what_comes_again_is_not_put_back_too(tmp_path: Path) -> None:
    """An instance that has forgotten what it has gets what is damaged from its peer anyway."""
    with ended(tmp_path, end=Instance.kill) as pair:
        flip(pair["A"], *range(3, 9))
        for path in pair["A"].directory.glob("journal/*.ack"):
            path.unlink()
        pair.start()
        wait_until(lambda: len(set(replayed(pair["A"]))) == COUNT, pair.logs)
        with pair["A"].server.log_on("another") as peer:  # and what is published comes behind it
            peer.publish("events", b'{"n":51}', s=1)
            peer.flush()
        wait_until(lambda: len(replayed(pair["B"])) == COUNT + 1, pair.logs)
        for name in ("A", "B"):
            assert sorted(replayed(pair[name])) == [*ALL, COUNT + 1], pair.logs()


def test_who_sends_the_log_waits_for_what_can_be_mended(tmp_path: Path) -> None:
    """What is damaged here, and there at another instance, gets to a third one in its place."""
    with ended(tmp_path, THROUGH, without="B") as instances:
        flip(instances["H"], 1, 30, 45)
        for name in ("H", "B", "A"):
            instances[name].start()
        has_all(instances, "B")
        assert replayed(instances["B"]) == ALL
        assert "1E-0021" not in instances["H"].server.log()


def test_what_nobody_has_is_left_out_and_sent_when_it_is_found(tmp_path: Path) -> None:
    """It holds up nothing for long, and is not forgotten, whoever is started anew meanwhile."""
    with ended(tmp_path, THROUGH, without="B") as instances:
        hub, last = instances["H"], instances["B"]
        flip(hub, 5, 6, 40)
        hub.start()
        last.start()
        wait_until(lambda: len(replayed(last)) == COUNT - 3, instances.logs)
        # the log is written by a thread of its own, perhaps after the entries have arrived
        wait_until(lambda: len(MISSING_ENTRY.findall(hub.server.log())) == 3, hub.logs)
        last.stop()
        hub.stop()
        hub.start()
        last.start()
        instances["A"].start()
        has_all(instances, "H", "B")
        assert sorted(replayed(last)) == ALL
        assert replayed(hub) == ALL
        assert "1E-0021" not in hub.server.log()


def test_publishers_do_not_wait_for_ever_for_what_nobody_has(tmp_path: Path) -> None:
    """A sync destination is told what it does not get, and what comes behind is acknowledged."""
    with cluster(tmp_path, PAIR, elements="") as pair:
        pair["A"].start()
        with pair["A"].server.log_on("publisher") as peer:
            for number in (1, 2, 3):
                peer.publish("events", b'{"n":%d,"p":0}' % number, s=number)
            peer.flush()
        pair["A"].stop()
        flip(pair["A"], 2)
        pair.start()
        with pair["A"].server.log_on("another") as peer:
            ack = peer.ask({"c": "publish", "t": "events", "s": 1, "a": "persisted"}, b'{"n":4}')
            assert ack["status"] == "success"
        wait_until(lambda: pair["A"].server.log().count("1E-0021") == 1, pair.logs)
        assert replayed(pair["B"]) == [1, 3, 4]
