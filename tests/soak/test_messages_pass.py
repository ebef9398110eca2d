"""Messages that have gone through leave nothing behind, however many they were.

Each row is a way through the server: to a subscriber, past filters, into records, into the log.
With `--long` they are a hundred million in all.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.soak.process import own_bytes
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server

BEFORE = 100_000
"""After so many, buffers and threads have grown to what they need."""
MESSAGES, SOAK_MESSAGES = 150_000, 25_000_000
"""Of each row."""
IN_BLOCK = 5_000
MAX_GROWTH = 8 * 1024 * 1024

SERVED = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./records.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>logged</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-schedule</Module>
      <Options><Every>1s</Every></Options>
    </On>
    <Do>
      <Module>amps-action-do-remove-journal</Module>
      <Options><Age>1s</Age></Options>
    </Do>
  </Action>
</Actions>
"""
"""Old journals go, so that a long run does not fill the disk."""


def block(topic: str, begin: int) -> bytes:
    """So many publishes of different records, each with a number of its own."""
    return b"".join(
        frame(
            {"c": "p", "t": topic, "s": begin + position},
            b'{"id":%d,"kind":"%d","price":%d.5}' % (position, position % 7, begin + position),
        )
        for position in range(IN_BLOCK)
    )


def read_on(peer: RawPeer, last: bytes) -> None:
    """Take what comes, up to a message that ends with some bytes."""
    behind = b""
    while not behind.endswith(last):
        behind = (behind + peer.socket.recv(1 << 20))[-len(last) :]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("topic", ["plain", "filtered", "records", "logged"])
def test_memory_stays_as_it_is(topic: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Soon the server has all the memory that it will ever need."""
    count = SOAK_MESSAGES if pytestconfig.getoption("--long") else MESSAGES
    with running_server(tmp_path, elements=SERVED) as server:
        pid = server.process.pid
        pass_through(server, topic, BEFORE)
        memory = own_bytes(pid)
        pass_through(server, topic, count)
        assert own_bytes(pid) - memory < MAX_GROWTH


def pass_through(server: RunningServer, topic: str, count: int) -> None:
    """Publish so many messages and one more, which a subscriber waits for."""
    filters = {"f": "/kind = '3' OR /last = 1"} if topic == "filtered" else {}
    last = b'{"id":0,"last":1}'
    with server.log_on("reader") as reader, server.log_on(f"writer-{count}") as writer:
        reader.subscribe(topic, "1", **filters)
        reader.socket.settimeout(None)
        reading = threading.Thread(target=read_on, args=(reader, last), daemon=True)
        reading.start()
        for begin in range(1, count, IN_BLOCK):
            writer.socket.sendall(block(topic, begin))
        writer.socket.sendall(frame({"c": "p", "t": topic, "s": count + IN_BLOCK}, last))
        reading.join()
