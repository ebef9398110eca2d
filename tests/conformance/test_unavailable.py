"""What is not built yet is refused where it could be mistaken for something else."""

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
  <Topic><Name>own</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  </Queue>
  <LocalQueue><Name>own</Name><MessageType>json</MessageType></LocalQueue>
  <View>
    <Name>waiting</Name><MessageType>json</MessageType>
    <UnderlyingTopic>jobs</UnderlyingTopic>
    <Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping>
  </View>
  <View>
    <Name>of-that</Name><MessageType>json</MessageType>
    <UnderlyingTopic>waiting</UnderlyingTopic>
    <Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping>
  </View>
</SOW>
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

REFUSED = "views of queues are not available"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with queues, what is made from them, and destinations."""
    with running_server(tmp_path_factory.mktemp("queues"), elements=ELEMENTS) as running:
        yield running


@pytest.mark.parametrize("topic", ["waiting", "of-that"])
@pytest.mark.parametrize(
    "command",
    [
        {"c": "subscribe"},
        {"c": "subscribe", "bm": "0"},
        {"c": "subscribe", "o": "max_backlog=10"},
        {"c": "delta_subscribe"},
        {"c": "sow"},
        {"c": "sow", "o": "projection=[/id],grouping=[/id]"},
        {"c": "sow_and_subscribe"},
        {"c": "sow_and_subscribe", "top_n": 1, "orderby": "/id", "o": "skip_n=0"},
        {"c": "sow_and_delta_subscribe"},
        {"c": "sow_delete", "bm": "1|1|"},
        {"c": "sow_delete", "filter": "1=1"},
        {"c": "publish"},
        {"c": "delta_publish"},
    ],
    ids=str,
)
def test_commands_for_what_is_made_from_a_queue_are_refused(
    server: RunningServer, topic: str, command: dict[str, object]
) -> None:
    """With a reason that nobody takes for success."""
    with server.log_on() as peer:
        peer.send({"cid": "1", "t": topic, "a": "processed"} | command, b"{}")
        ack = peer.receive_header()
        assert (ack["c"], ack["status"], ack["reason"]) == ("ack", "failure", REFUSED)
        assert topic in str(ack)
        peer.flush()


def test_the_start_says_what_follows(server: RunningServer) -> None:
    """At each place of the configuration, in terms of the consequences."""
    log = server.log()
    told = "publishers are told persisted although elsewhere does not have the message"
    for line in (
        f"SOW/View: {REFUSED} yet, and 'waiting' is made from 'jobs': all commands",
        f"SOW/View: {REFUSED} yet, and 'of-that' is made from 'waiting': all commands",
        f"Replication/Destination: replication is not available yet: {told}",
    ):
        assert line in log
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
    for part in ("view ", "replication destination ", "admin interface "):
        assert part in missing
        assert not any(line.split(". ")[-1].startswith(part) for line in started.splitlines())
    assert missing.count("replication destination") == 2
    assert drawn("--graphviz").count('not available yet", style=dashed];') == 5
