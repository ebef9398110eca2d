"""SOW files that are ahead of the transaction log after a power failure."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.recovery.test_kills import ELEMENTS
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

TOPICS = ("orders", "shared")


def publish(peer: RawPeer, topic: str, sequence: int, key: str, value: int) -> None:
    """Publish a record, and wait until it is safe."""
    body = json.dumps({"id": key, "value": value}).encode()
    peer.send({"c": "publish", "t": topic, "s": sequence, "a": "persisted"}, body)
    assert peer.receive_header()["s"] == sequence


def records(server: RunningServer) -> dict[str, dict[str, int]]:
    """What is in the topics."""
    with server.log_on("reader") as peer:
        return {
            topic: {one["id"]: one["value"] for one in query(peer, topic).messages}
            for topic in TOPICS
        }


def test_all_stores_are_set_back_to_the_log(tmp_path: Path) -> None:
    """What lost entries made, changed and deleted is undone in every topic, and stays so."""
    elements = ELEMENTS.format(flush="10us")
    (tmp_path / "shadows").mkdir()
    with running_server(tmp_path, elements=elements) as server, server.log_on("p") as peer:
        sequence = 0
        for topic in TOPICS:
            for key in ("kept", "changed", "deleted"):
                sequence += 1
                publish(peer, topic, sequence, key, 1)
        before = records(server)
        (journal,) = (path for path in tmp_path.glob("journal/*0.journal"))
        safe = journal.read_bytes()
        for topic in TOPICS:
            publish(peer, topic, sequence + 1, "changed", 2)
            publish(peer, topic, sequence + 2, "made", 2)
            sequence += 3
            delete = {"c": "sow_delete", "t": topic, "sow_keys": "", "a": "persisted"}
            peer.send(delete | {"s": sequence, "f": "/id = 'deleted'"})
            assert peer.receive_header()["s"] == sequence
        assert records(server) != before
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    for round_ in range(2):
        with running_server(tmp_path, elements=elements) as server:
            assert records(server) == before
            if round_ == 0:
                for topic, count in (("orders", 3), ("shared", 6)):
                    assert f"1D-0015 The records of topic {topic} of type json" in server.log()
                    assert f": {count} entries are missing there" in server.log()
            else:
                assert "1D-0015" not in server.log()
            server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements) as server:
        with server.connect() as peer:
            assert peer.log_on("p")["s"] == 6, "what is lost may be sent again"
            publish(peer, "orders", 7, "changed", 3)
        assert records(server)["orders"]["changed"] == 3


def test_a_log_that_lost_its_first_commit(tmp_path: Path) -> None:
    """Where the log began is not forgotten with it, so that the records are known to be ahead."""
    elements = ELEMENTS.format(flush="10us")
    with running_server(tmp_path, elements=elements) as server, server.log_on("p") as peer:
        (journal,) = (path for path in tmp_path.glob("journal/*0.journal"))
        safe = journal.read_bytes()
        publish(peer, "orders", 1, "made", 1)
        server.stop(signal.SIGKILL)
    journal.write_bytes(safe)
    with running_server(tmp_path, elements=elements) as server:
        assert records(server) == {"orders": {}, "shared": {}}
