"""What is not built yet is said where it could be mistaken for something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import CONFIGURATION, RunningServer, amp_server, running_server

ELEMENTS = """
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>elsewhere</Name><SyncType>sync</SyncType>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Transport>
      <Type>amps-replication</Type><InetAddr>localhost:1</InetAddr>
    </Transport>
  </Destination>
  <Destination>
    <Name>further</Name><SyncType>async</SyncType>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Transport>
      <Type>amps-replication</Type><InetAddr>localhost:2</InetAddr>
    </Transport>
  </Destination>
</Replication>
<Admin><InetAddr>localhost:0</InetAddr></Admin>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with destinations."""
    with running_server(tmp_path_factory.mktemp("destinations"), elements=ELEMENTS) as running:
        yield running


def test_the_start_says_what_follows(server: RunningServer) -> None:
    """At each place of the configuration, in terms of the consequences."""
    log = server.log()
    told = "publishers are told persisted although elsewhere does not have the message"
    assert f"Replication/Destination: replication is not available yet: {told}" in log
    assert "although further" not in log


def test_the_graph_tells_what_starts(tmp_path: Path) -> None:
    """What is not available is listed apart, and dashed in a drawing."""
    path = tmp_path / "config.xml"
    path.write_text(CONFIGURATION.format(port=0, elements=ELEMENTS, transports="", level="info"))

    def drawn(option: str) -> str:
        return amp_server("--verify-config", option, path, cwd=tmp_path).stdout

    text = drawn("--graph")
    started, _, missing = text.partition("not available yet, and not started:\n")
    assert "transport any-tcp" in started
    for part in ("replication destination ", "admin interface "):
        assert part in missing
        assert not any(line.split(". ")[-1].startswith(part) for line in started.splitlines())
    assert missing.count("replication destination") == 2
    assert drawn("--graphviz").count('not available yet", style=dashed];') == 3
