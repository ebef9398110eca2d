"""A damaged SOW file: detected, said in the log, kept under another name, never served from.

Records come back from the transaction log where that covers the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server import RunningServer, running_configuration, running_server
from tests.support.sow import query

RECORDS = 60
SOW = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName></Topic>
  <Topic><Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>quotes.sow</FileName></Topic>
</SOW>
"""
LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def flip(content: bytearray) -> None:
    """One bit, in the middle of a record."""
    content[content.index(b'"id":30,') + 3] ^= 1


def wipe(content: bytearray) -> None:
    """A page of zeros, as lost writes leave it."""
    content[4096 : 2 * 4096] = bytes(4096)


def cut(content: bytearray) -> None:
    """Half of the file is missing."""
    del content[4096 + (len(content) - 4096) // 2 :]


def replace(content: bytearray) -> None:
    """Nothing but what it begins with is left."""
    content[12:] = b"SQLite format 3\\0" + bytes(20_000)


def damaged(directory: Path, damage: Callable[[bytearray], None], elements: str) -> RunningServer:
    """Fill both topics, stop the server, and damage both files."""
    with running_server(directory, elements=elements) as server:
        with server.log_on() as peer:
            for topic in ("orders", "quotes"):
                for number in range(RECORDS):
                    peer.publish(topic, b'{"id":%d,"pad":"%s"}' % (number, b"x" * 200))
            peer.ask({"c": "sow_delete", "cid": "d", "t": "orders", "f": "/id = 7", "a": "stats"})
            peer.flush()
        server.stop()
    for topic in ("orders", "quotes"):
        path = directory / f"{topic}.sow"
        content = bytearray(path.read_bytes())
        damage(content)
        path.write_bytes(content)
    return server


@pytest.mark.parametrize("damage", [flip, wipe, cut, replace])
def test_records_come_back_from_the_transaction_log(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    """Of the topic that it covers; the other one begins empty."""
    port = damaged(tmp_path, damage, SOW + LOG).port
    kept = (tmp_path / "orders.sow").read_bytes()
    configuration = (tmp_path / "config.xml").read_text()
    with running_configuration(tmp_path, configuration, port) as server:
        with server.log_on() as peer:
            numbers = [message["id"] for message in query(peer, "orders", orderby="/id").messages]
            assert numbers == [number for number in range(RECORDS) if number != 7]
            assert query(peer, "quotes").records == []
            for topic in ("orders", "quotes"):
                peer.publish(topic, b'{"id":1000}')
                assert len(query(peer, topic, f="/id = 1000").records) == 1
        for topic in ("orders", "quotes"):
            assert server.logs(f"{topic}.sow.damaged-1")
    assert (tmp_path / "orders.sow.damaged-1").read_bytes() == kept


def test_each_damaged_file_is_kept(tmp_path: Path) -> None:
    """A second one does not overwrite the first."""
    server = damaged(tmp_path, flip, SOW)
    configuration = (tmp_path / "config.xml").read_text()
    for number in (1, 2):
        with running_configuration(tmp_path, configuration, server.port) as running:
            assert running.logs(f"orders.sow.damaged-{number}")
            running.stop()
        (tmp_path / "orders.sow").write_bytes(b"----AMPERSOW" * 1000)
    assert (tmp_path / "orders.sow.damaged-2").read_bytes() == b"----AMPERSOW" * 1000
