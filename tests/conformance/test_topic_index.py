"""Topic indexes of journals: made where the configuration says so, and used by replays."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until

TOPICS = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
TUNING = """
<Tuning><TransactionLog><TopicIndex>enabled</TopicIndex></TransactionLog></Tuning>
"""


def fill(peer: RawPeer) -> None:
    """Publish more than a journal file holds; few messages are to a topic of their own."""
    header = frame({"c": "publish", "t": "common"}, b'{"fill":"%s"}' % (b"x" * 600))
    for number in range(10):
        peer.socket.sendall(header * 2000)
        peer.send({"c": "publish", "t": "sparse"}, b'{"id":%d}' % number)
    assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["a"] == "persisted"


def replay(server: RunningServer) -> tuple[list[int], int]:
    """The messages of the sparse topic, and how many bytes the server has read for them."""
    with server.log_on("reader") as peer:
        before = bytes_read(server)
        peer.send(
            {
                "c": "subscribe",
                "cid": "r",
                "t": "sparse",
                "bm": "0",
                "a": "completed",
                "sub_id": "r",
            }
        )
        found = []
        while (message := peer.receive())[0]["c"] == "p":
            found.append(json.loads(message[1])["id"])
        return found, bytes_read(server) - before


def bytes_read(server: RunningServer) -> int:
    """What the server's process has read, from files and sockets."""
    text = Path(f"/proc/{server.process.pid}/io").read_text()
    return int(text.split("rchar:")[1].split()[0])


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    wait_until(path.exists, f"{path} has not been made")


def test_topic_indexes_are_made_and_used(tmp_path: Path) -> None:
    """Also of files that were full before; what is read for a sparse topic is little then."""
    index = tmp_path / "journal" / "test-instance.0000000000.topic.index"
    with running_server(tmp_path, elements=TOPICS) as server:
        with server.log_on("filler") as peer:
            fill(peer)
        wait_for(index.with_name("test-instance.0000000000.index.gz"))
        assert not index.exists()
        expected, all_records = replay(server)
        assert expected == list(range(10))
        server.stop()
    with running_server(tmp_path, elements=TOPICS + TUNING) as server:
        wait_for(index)
        found, few_records = replay(server)
        assert found == expected
        size = 20_000 * 96
        assert few_records < all_records - size // 4
        index.write_bytes(b"damaged")
        assert replay(server)[0] == expected
        server.stop()
