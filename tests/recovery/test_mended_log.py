"""A server finds a damaged entry in its log, and gets it back from the other one.

Source: docs/replication.md. AMPS has nothing of the kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.recovery.large_messages import replay
from tests.replication.topologies import Topology, both
from tests.support.cluster import Cluster, Instance, cluster
from tests.support.waiting import wait_until

COUNT: Final = 50
PAIR: Final = Topology("pair", both(("A", "B")), (("A", "B"),), {"A": "pair", "B": "pair"})


def publish(instance: Instance) -> None:
    """Messages with and without numbers; some are too long for one piece."""
    with instance.server.log_on("publisher") as peer:
        for number in range(1, COUNT + 1):
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


def replayed(instance: Instance) -> list[int]:
    return replay(instance.server, "events")


def is_mended(pair: Cluster, name: str, count: int) -> None:
    assert pair[name].server.logs("1E-0018", count), pair.logs()


def test_damaged_entries_come_back_from_the_other_server(tmp_path: Path) -> None:
    with cluster(tmp_path, PAIR, elements="") as pair:
        pair.start()
        publish(pair["A"])
        wait_until(lambda: len(replayed(pair["B"])) == COUNT, pair.logs)
        for name in ("A", "B"):
            pair[name].stop()
        flip(pair["A"], 1, 30, 45)
        flip(pair["B"], 2, 31)
        pair.start()
        is_mended(pair, "A", 3)
        is_mended(pair, "B", 2)
        for name in ("A", "B"):
            assert replayed(pair[name]) == list(range(1, COUNT + 1))
            pair[name].stop()
        pair.start()
        for name in ("A", "B"):
            assert replayed(pair[name]) == list(range(1, COUNT + 1))
            assert "1D-0004" not in pair[name].server.log()


def test_what_both_have_lost_stays_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, PAIR, elements="") as pair:
        pair.start()
        publish(pair["A"])
        wait_until(lambda: len(replayed(pair["B"])) == COUNT, pair.logs)
        for name in ("A", "B"):
            pair[name].stop()
            flip(pair[name], 7)
        flip(pair["A"], 8)
        pair.start()
        is_mended(pair, "A", 1)
        assert replayed(pair["A"]) == [one for one in range(1, COUNT + 1) if one != 7]


def test_what_comes_again_is_not_put_back_too(tmp_path: Path) -> None:
    """An instance that has forgotten what it has gets what is damaged from its peer anyway."""
    with cluster(tmp_path, PAIR, elements="") as pair:
        pair.start()
        publish(pair["A"])
        wait_until(lambda: len(replayed(pair["B"])) == COUNT, pair.logs)
        for name in ("A", "B"):
            pair[name].kill()
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
            assert sorted(replayed(pair[name])) == list(range(1, COUNT + 2)), pair.logs()
