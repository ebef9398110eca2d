"""/AMPS/SOWStats: how many records topics have, in each message type's field names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query
from tests.support.waiting import wait_until

ELEMENTS = """
<SOWStatsInterval>200ms</SOWStatsInterval>
<MessageTypes>
  <MessageType>
    <Name>unified</Name>
    <Module>fix</Module>
    <AMPSVersionCompliance>5</AMPSVersionCompliance>
  </MessageType>
</MessageTypes>
<SOW>
  <Topic>
    <Name>orders</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>blobs</Name>
    <MessageType>binary</MessageType>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>/AMPS/SOWStats</Name>
    <MessageType>json</MessageType>
    <Key>/SOWStats/topic</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that publishes statistics often."""
    with running_server(tmp_path_factory.mktemp("server"), elements=ELEMENTS) as running:
        with running.log_on() as peer:
            for n in range(3):
                peer.publish("orders", b'{"id":%d}' % n)
            peer.flush()
        yield running


def fix_fields(peer: RawPeer) -> dict[bytes, bytes]:
    """The fields of the next message, which is FIX."""
    return dict(field.split(b"=", 1) for field in peer.receive()[1].split(b"\x01") if field)


def test_every_topic_is_counted_again_and_again(server: RunningServer) -> None:
    """Whatever its message type."""
    with server.log_on() as peer:
        peer.subscribe("/AMPS/SOWStats", "s", f="/SOWStats/topic IN ('orders', 'blobs')")
        stats = [json.loads(peer.receive()[1])["SOWStats"] for _ in range(4)]
    counted = [(one["message_type"], one["topic"], one["record_count"]) for one in stats]
    assert counted == [("json", "orders", 3), ("binary", "blobs", 0)] * 2
    assert stats[0]["timestamp"] < stats[2]["timestamp"]


def test_fix_and_xml_have_names_of_their_own(server: RunningServer) -> None:
    """FIX has two sets of tags, of which the configuration chooses one."""
    with (
        server.log_on("f", "fix") as fix,
        server.log_on("u", "unified") as unified,
        server.log_on("x", "xml") as xml,
    ):
        fix.subscribe("/AMPS/SOWStats", "s", f="/20066 = 'orders'")
        unified.subscribe("/AMPS/SOWStats", "s", f="/20068 = 'orders'")
        xml.subscribe("/AMPS/SOWStats", "s", f="/SOWStats/Topic = 'orders'")
        plain, shared = fix_fields(fix), fix_fields(unified)
        root = ElementTree.fromstring(xml.receive()[1])
    assert (plain[b"20007"], plain[b"20067"]) == (b"json", b"3")
    assert (shared[b"20007"], shared[b"20075"]) == (b"json", b"3")
    assert root.tag == "SOWStats"
    assert [child.tag for child in root] == ["MessageType", "Topic", "Records", "Timestamp"]


def test_a_topic_of_that_name_keeps_the_last_count(server: RunningServer) -> None:
    """So that it can be queried."""
    with server.log_on() as peer:
        peer.subscribe("/AMPS/SOWStats", "s", f="/SOWStats/topic = 'orders'")
        peer.receive()
        messages = query(peer, "/AMPS/SOWStats", f="/SOWStats/topic = 'orders'").messages
    assert messages[0]["SOWStats"]["record_count"] == 3


KEPT = """
<SOWStatsInterval>100ms</SOWStatsInterval>
<SOW>
  <Topic><Name>one</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>two</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  {topics}
</SOW>
"""
KEPT_TOPIC = """
  <Topic><Name>{name}</Name><MessageType>{message_type}</MessageType><Key>{key}</Key>
    <FileName>./kept/%n.sow</FileName></Topic>
"""
KEYS = {
    "/AMPS/SOWStats": {"json": "/topic", "xml": "/Topic", "fix": "/20066", "bson": "/topic"},
    "/AMPS/ClientStatus": {"json": "/client_name", "xml": "/ClientName", "fix": "/20067"},
}


def test_events_are_kept_by_the_keys_of_the_guide(tmp_path: Path) -> None:
    """They name a field of the event, whatever that is within."""
    topics = "".join(
        KEPT_TOPIC.format(name=name, message_type=message_type, key=key)
        for name, keys in KEYS.items()
        for message_type, key in keys.items()
    )
    for _ in range(2):
        with running_server(tmp_path, elements=KEPT.format(topics=topics)) as server:
            with server.log_on("first"), server.log_on("second"):
                for message_type in KEYS["/AMPS/SOWStats"]:
                    assert kept(server, "/AMPS/SOWStats", message_type, 4) == 4
                for message_type in KEYS["/AMPS/ClientStatus"]:
                    assert kept(server, "/AMPS/ClientStatus", message_type, 3) >= 3
            assert server.stop() == 0


def kept(server: RunningServer, topic: str, message_type: str, expected: int) -> int:
    """How many events there are, once there are as many as expected."""
    with server.log_on(f"reader-{message_type}", message_type) as peer:
        wait_until(lambda: len(query(peer, topic).records) >= expected)
        return len(query(peer, topic).records)
