"""What the configuration of the transaction log says about its files, and what is recorded."""

from __future__ import annotations

from pathlib import Path

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>desks</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^/desk/</Pattern>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>slower</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval>
  </ConflatedTopic>
</SOW>
"""
LOG = """
<TransactionLog>
  <JournalDirectory>journal/deep</JournalDirectory>
  <JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <PreallocatedJournalFiles>3</PreallocatedJournalFiles>
  <MinJournalSize>1MB</MinJournalSize>
  <FlushInterval>1ms</FlushInterval>
  <O_DIRECT>enabled</O_DIRECT>
  {topics}
</TransactionLog>
"""


def recorded(server: RunningServer, publishes: tuple[str, ...]) -> list[str]:
    """Publish to topics, and give those of which a replay has messages."""
    with server.log_on("publisher") as peer:
        for topic in publishes:
            peer.send({"c": "publish", "t": topic}, b'{"id":1}')
        peer.send({"c": "delta_publish", "t": "orders"}, b'{"id":1,"more":2}')
        peer.send({"c": "sow_delete", "t": "orders", "f": "1=1"})
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
    with server.log_on("reader") as peer:
        return replayed(peer)


def replayed(peer: RawPeer) -> list[str]:
    """The topics of all messages of the log, in their order."""
    peer.send({"c": "subscribe", "cid": "r", "t": ".*", "bm": "0", "a": "completed", "sub_id": "r"})
    topics = []
    while (header := peer.receive()[0])["c"] == "p":
        topics.append(header["t"])
    assert header["a"] == "completed"
    return topics


def test_files_are_made_in_advance_and_have_one_size(tmp_path: Path) -> None:
    """Named after the instance, of the least size possible, in directories made for them."""
    topics = "<Topic><Name>^(orders|desks)$</Name><MessageType>json</MessageType></Topic>"
    with running_server(tmp_path, elements=TOPICS + LOG.format(topics=topics)) as server:
        published = ("orders", "/desk/a", "/desk/b", "elsewhere", "/AMPS/x")
        expected = ["orders", "/desk/a", "/desk/b", "orders"]
        assert recorded(server, published) == expected
        journal = tmp_path / "journal" / "deep"
        names = [f"test-instance.{number:010}.journal" for number in range(3)]
        files = [journal / name for name in names]
        assert server.waits_for(lambda _: all(file.exists() for file in files))
        assert sorted(path.name for path in journal.glob("*.journal")) == names
        assert len({path.stat().st_size for path in files}) == 1
        assert files[0].stat().st_size >= 10_000_000
        assert (tmp_path / "archive").is_dir()
        assert (journal / "test-instance.clients.ack").exists()  # from the first start on
        assert server.stop() == 0
        assert (journal / "test-instance.clients.ack").exists()
    elements = TOPICS + LOG.format(topics=topics)
    with running_server(tmp_path, elements=elements) as server, server.log_on("reader") as peer:
        assert replayed(peer) == expected


def test_a_log_without_topics_records_nothing(tmp_path: Path) -> None:
    """It is there all the same: client names are unique, and a replay is complete at once."""
    with running_server(tmp_path, elements=TOPICS + LOG.format(topics="")) as server:
        assert recorded(server, ("orders", "other")) == []
        with server.log_on("again"), server.connect() as other:
            assert other.log_on("again")["status"] == "success"
        assert server.logs("02-0025")
