"""Links as another instance sees them that does not always behave: bytes on a socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import PAIR, Cluster, cluster
from tests.support.raw import QUICK_ACKS
from tests.support.replication_peer import (
    ACK,
    BATCH,
    BEGIN,
    HELLO,
    KNOWLEDGE,
    RESUME,
    ReplicationPeer,
    description,
    frame,
)
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import comes_true

ELEMENTS = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>peer</Name><Group>peers</Group><SyncType>sync</SyncType>
    <AckConflationInterval>10ms</AckConflationInterval>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType>
      <ExcludeValidation>replicate</ExcludeValidation>
    </Topic>
    <Transport><Type>amps-replication</Type></Transport>
  </Destination>
</Replication>
"""
TRANSPORT = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type>
  <InetAddr>127.0.0.1:{port}</InetAddr>
</Transport>
"""


@pytest.fixture(scope="module")
def port() -> int:
    """Where the server takes replication."""
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[RunningServer]:
    """A server that replicates to the peer, when that connects."""
    transports = TRANSPORT.format(port=port)
    directory = tmp_path_factory.mktemp("server")
    with running_server(directory, elements=ELEMENTS, transports=transports) as running:
        yield running


@pytest.fixture
def peer(server: RunningServer, port: int) -> Iterator[ReplicationPeer]:
    """An instance that has connected, and has said nothing."""
    with ReplicationPeer(port) as peer:
        yield peer


def test_two_instances_find_each_other(peer: ReplicationPeer) -> None:
    peer.greet()
    kind, hello = peer.receive()
    assert kind == HELLO
    assert hello[:3] == [3, "test-instance", "test-instance"]
    kind, begin = peer.receive()
    assert kind == BEGIN
    assert begin[3] == "test-instance!peer@peers!sync!amps-replication"
    assert begin[4] == 10_000


REFUSED_GREETINGS = {
    "another version": (
        {"version": 9},
        "peer speaks version 9 of the replication protocol, and test-instance speaks version 3",
    ),
    "the same name": (
        {"instance": "test-instance"},
        "both instances are called test-instance",
    ),
    "no name": ({"instance": ""}, "an instance that replicates must have a Name"),
    "a name that is too long": (
        {"instance": "x" * 300},
        "the Name or Group of xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx... has more than 255",
    ),
    "no description": ({"description": b""}, "the configuration summary of peer cannot be read"),
    "the description of another": (
        {"description": description("other", "peers")},
        "peer of the group peers describes itself as other of the group peers",
    ),
    "a configuration that does not fit": (
        {"description": description("peer", "peers", logged=[])},
        "the configurations of test-instance and peer do not fit together",
    ),
    "nothing to replicate": (
        {"group": "other", "sends": False, "description": description("peer", "other")},
        "neither test-instance nor peer replicates to the other",
    ),
}


@pytest.mark.parametrize(("fields", "why"), REFUSED_GREETINGS.values(), ids=REFUSED_GREETINGS)
def test_who_does_not_fit_is_refused_with_a_reason(
    server: RunningServer, peer: ReplicationPeer, fields: dict[str, object], why: str
) -> None:
    peer.greet(**fields)
    assert why in peer.refusal()
    assert server.logs(why)


def test_every_thing_that_does_not_fit_is_logged(
    server: RunningServer, peer: ReplicationPeer
) -> None:
    peer.greet(description=description("peer", "peers", logged=[]))
    assert "txlog" in peer.refusal()
    assert server.logs("1E-0005 Validation of the replication destination peer failed")


def test_an_instance_that_comes_to_itself_is_told_so(
    server: RunningServer, port: int, peer: ReplicationPeer
) -> None:
    peer.greet()
    nonce = peer.receive().fields[-1]
    with ReplicationPeer(port, "test-instance", "test-instance") as itself:
        itself.greet(nonce=nonce)
        assert "is connected to itself" in itself.refusal()


def test_another_instance_of_the_same_name_is_refused(
    server: RunningServer, port: int, peer: ReplicationPeer
) -> None:
    peer.greet()
    peer.receive()
    with ReplicationPeer(port) as other:
        other.greet(log="another log")
        assert "another instance that is called peer is connected" in other.refusal()


GARBAGE = {
    "zeros": bytes(100),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "too long": struct.pack("<IBB", 1 << 21, 1, 0) + bytes(1000),
    "another form of hello": frame(HELLO, 3, "peer", ["new", "fields"]),
    "no hello": frame(BEGIN, "stream", 1, 10),
    "a batch": struct.pack("<IBB", 26, BATCH, 0) + bytes(24),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_greeting_ends_the_connection(
    server: RunningServer, peer: ReplicationPeer, data: bytes
) -> None:
    peer.send_bytes(data)
    assert peer.is_disconnected()
    assert server.logs("1E-0003 test-instance closes a replication link: protocol violation by ")


def test_a_later_version_is_told_which_one_is_spoken(
    server: RunningServer, peer: ReplicationPeer
) -> None:
    peer.send(HELLO, 4, "peer", ["new", "fields"])
    assert "version 4 of the replication protocol; expected 3" in peer.refusal()


def test_an_earlier_version_is_refused_and_both_ends_know_why(
    server: RunningServer, peer: ReplicationPeer
) -> None:
    peer.greet(version=1)
    why = "peer speaks version 1 of the replication protocol, and test-instance speaks version 3"
    assert why in peer.refusal()
    assert server.logs(why)


LIES = {
    "acks what was not sent": [frame(RESUME, 0, None), frame(ACK, 1 << 62, [])],
    "has more than there is": [frame(RESUME, 1 << 62, None)],
    "has settled more than it stored": [frame(RESUME, 0, None), frame(ACK, 0, [[0, 5]])],
    "duplicate hello": [frame(HELLO, 1, "peer", "peers", "log of peer", 1)],
    "knows without having been asked": [frame(KNOWLEDGE, [], True)],
    "sends entries out of turn": [struct.pack("<IBB", 26, BATCH, 0) + bytes(24)],
    "asks twice": [frame(BEGIN, "s", 1, 0), frame(BEGIN, "s", 1, 0)],
    "sends a part of another stream": [
        frame(BEGIN, "s", 1, 100),
        struct.pack("<IBB", 26, BATCH, 0) + struct.pack("<QQII", 50, 60, 0, 0),
    ],
}


@pytest.mark.parametrize("frames", LIES.values(), ids=LIES)
def test_a_peer_that_lies_is_not_believed(
    server: RunningServer, peer: ReplicationPeer, frames: list[bytes]
) -> None:
    """Whoever publishes is not told that anything is safe."""
    peer.greet()
    assert peer.receive().kind == HELLO
    before = server.log().count("1E-0003")
    peer.send_bytes(b"".join(frames))
    assert peer.is_disconnected()
    assert server.waits_for(lambda log: "1E-0003" in log and log.count("1E-0003") >= before)
    with server.log_on("publisher", a="processed", o=QUICK_ACKS) as publisher:
        publisher.send({"c": "publish", "t": "orders", "a": "persisted"}, b"{}")
        assert publisher.hears_nothing()


def test_a_pair_keeps_the_same_messages(tmp_path: Path) -> None:
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        publish(pair, "A", 5)
        publish(pair, "B", 5)
        assert comes_true(lambda: count(pair, "A") == count(pair, "B") == 10), pair.logs()


def publish(pair: Cluster, name: str, messages: int) -> None:
    """Publish some, and wait until all instances have them."""
    with pair[name].server.log_on(f"at {name}", a="processed", o=QUICK_ACKS) as publisher:
        for number in range(1, messages + 1):
            header = {"c": "publish", "t": "orders", "s": number, "a": "persisted"}
            publisher.send(header, b'{"id": "%s %d"}' % (name.encode(), number))
        while publisher.receive()[0]["s"] < messages:
            pass


def count(pair: Cluster, name: str) -> int:
    """How many records an instance has."""
    with pair[name].server.log_on("asker") as asker:
        asker.send({"c": "sow", "t": "orders", "cid": "q", "a": "stats"})
        while True:
            header, _ = asker.receive()
            if header["c"] == "ack":
                return int(header["topic_matches"])
