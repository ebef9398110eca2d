"""Publishing to topics in the transaction log: acks, duplicates, client names, recovery."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import query

ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <Topic>
    <Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>fresh</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability><RecoveryPoint>now</RecoveryPoint>
  </Topic>
  <Topic>
    <Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
    <Pattern>^/desk/</Pattern><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>aside</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>aside.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>^(orders|quotes|fresh|desks|events.*)$</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>named</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


server = module_server(ELEMENTS)


def publish(peer: RawPeer, topic: str, sequence: int, body: bytes = b'{"id":1}') -> None:
    """Publish with a sequence number, asking for both acks."""
    peer.send({"c": "publish", "t": topic, "s": sequence, "a": "processed,persisted"}, body)


@pytest.mark.parametrize("topic", ["orders", "events", "aside", "nowhere"])
def test_persisted_acks_are_conflated(server: RunningServer, topic: str) -> None:
    """One ack, without a command id, stands for all commands of a second."""
    with server.log_on(f"conflated-{topic}") as peer:
        for sequence in (1, 2, 3):
            publish(peer, topic, sequence)
            assert peer.receive_header()["s"] == sequence
        ack = peer.receive_header()
    assert ack == {"c": "ack", "s": 3, "a": "persisted", "status": "success"}


def test_a_failure_is_told_by_itself_as_soon_as_it_is_known(server: RunningServer) -> None:
    """What came before it may be acknowledged later, and what comes after it is."""
    with server.log_on("split") as peer:
        for sequence, topic in ((1, "events"), (2, "orders"), (3, "/AMPS/x"), (4, "events")):
            keys = {"c": "publish", "t": topic, "s": sequence, "a": "persisted"}
            peer.send(keys, b'{"id":1}')
        acks: list[tuple[int, str]] = []
        while (4, "success") not in acks:
            ack = peer.receive_header()
            acks.append((ack["s"], ack["status"]))
    assert [ack for ack in acks if ack[0] > 2] == [(3, "failure"), (4, "success")]


@pytest.mark.parametrize("topic", ["orders", "quotes", "events/times"])
def test_one_message_has_one_time(server: RunningServer, topic: str) -> None:
    """Whoever asks for it: its subscribers, those who read the log, and those who read records."""
    bodies = [b'{"id":"t%d"}' % number for number in range(40)]
    with server.log_on("live") as live, server.log_on("replayed") as replayed:
        live.subscribe(topic, "s", o="timestamp", f="/id LIKE '^t'")
        with server.log_on("timed") as peer:
            peer.publish(topic, bodies[0])
            peer.publish(topic, bodies[1], e=60)
            peer.socket.sendall(
                b"".join(frame({"c": "publish", "t": topic}, body) for body in bodies[2:])
            )
            peer.flush()
        times = {body: header["ts"] for header, body in (live.receive() for _ in bodies)}
        replayed.subscribe(topic, "s", o="timestamp", bm="0", f="/id LIKE '^t'")
        assert {
            body: header["ts"] for header, body in (replayed.receive() for _ in bodies)
        } == times
        if not topic.startswith("events"):
            found = query(replayed, topic, o="timestamp", f="/id LIKE '^t'", bs=1)
            assert {body: one["ts"] for one, body in found.records} == times


@pytest.mark.parametrize("topic", ["orders", "events"])
def test_a_duplicate_is_dropped_and_said_to_be_one(server: RunningServer, topic: str) -> None:
    """Whatever is not above the highest sequence of its publisher, also on a new connection."""
    with server.log_on("watcher") as watcher:
        watcher.subscribe(topic, "w", o="bookmark")
        with server.log_on(f"twice-{topic}") as peer:
            publish(peer, topic, 5)
            assert [peer.receive_header()["status"] for _ in range(2)] == ["success"] * 2
        with server.connect() as peer:
            ack = peer.log_on(f"twice-{topic}")
            assert ack["s"] == 5
            assert ack["bm"].endswith("|5|")
            for sequence in (5, 4):
                publish(peer, topic, sequence)
                acks = [peer.receive_header() for _ in range(2)]
                assert [ack["a"] for ack in acks] == ["processed", "persisted"]
                assert {ack["reason"] for ack in acks} == {"duplicate"}
                assert {ack["s"] for ack in acks} == {sequence}
            publish(peer, topic, 6)
        assert server.logs(f"client[twice-{topic}] duplicate publishes ignored, from")
        assert server.logs(f"client[twice-{topic}] duplicate publishes ignored", 1)
        assert f"client[twice-{topic}] publish command refused" not in server.log()
        got = [watcher.receive()[0]["bm"] for _ in range(2)]
        assert [bookmark.split("|")[1] for bookmark in got] == ["5", "6"]


def test_messages_without_sequence_have_bookmarks_of_the_server(server: RunningServer) -> None:
    """All of them different, and not under the publisher's own name."""
    with server.log_on("nameless") as peer:
        peer.subscribe("events", "s", o="bookmark")
        for _ in range(2):
            peer.send({"c": "publish", "t": "events"}, b"{}")
        first, second = (peer.receive()[0]["bm"] for _ in range(2))
        assert first.split("|")[0] == second.split("|")[0]
        assert int(first.split("|")[1]) < int(second.split("|")[1])


def test_an_ack_of_a_command_without_sequence_has_its_id(server: RunningServer) -> None:
    """There is nothing that it could be conflated by."""
    with server.log_on("by-id") as peer:
        ack = peer.ask({"c": "publish", "cid": "7", "t": "events", "a": "persisted"}, b"{}")
        assert (ack["cid"], ack["a"], ack["status"]) == ("7", "persisted", "success")
        assert peer.ask({"c": "flush", "cid": "8", "a": "persisted"})["cid"] == "8"


def test_a_name_stands_for_one_topic(server: RunningServer) -> None:
    """Not for those in whose names it occurs, as an expression would."""
    with server.log_on("namer") as peer:
        for topic in ("named", "renamed", "named.once", "named"):
            assert peer.ask({"c": "publish", "t": topic, "a": "persisted"}, b"{}")
        peer.send({"c": "subscribe", "t": "named.*", "sub_id": "1", "bm": "0"})
        peer.send({"c": "publish", "t": "named"}, b'{"last":1}')
        messages = [peer.receive()]
        while messages[-1][1] != b'{"last":1}':
            messages.append(peer.receive())
    assert [header["t"] for header, _ in messages] == ["named"] * 3


def test_a_client_name_is_unique(server: RunningServer) -> None:
    """The same user takes over, another user is refused."""
    with server.log_on("unique") as old, server.connect() as new, server.connect() as other:
        assert new.log_on("unique")["status"] == "success"
        with pytest.raises(EOFError):
            old.receive()
        assert server.logs("02-0025")
        assert server.logs("name in use")
        keys = {"client_name": "unique", "mt": "json", "user_id": "somebody", "a": "processed"}
        ack = other.ask({"c": "logon", "cid": "1"} | keys)
        if ack["status"] == "failure":  # users are told apart only where they are authenticated
            assert ack["reason"] == "name in use"


def test_a_sow_delete_is_recorded(server: RunningServer) -> None:
    """It has a sequence number of its own, and is a duplicate when it comes again."""
    with server.log_on("deleter") as peer:
        publish(peer, "orders", 1, b'{"id":"gone"}')
        peer.receive_header()
        keys = {"c": "sow_delete", "t": "orders", "f": "/id = 'gone'", "s": 2}
        peer.send(keys | {"cid": "d", "a": "stats,persisted"})
        assert peer.receive_header()["records_deleted"] == 1
        ack = peer.receive_header()
        assert (ack["a"], ack["s"]) == ("persisted", 2)
        again = peer.ask(keys | {"cid": "d", "a": "processed"})
        assert again["reason"] == "duplicate"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_records_come_back_from_the_log(tmp_path: Path, how: signal.Signals) -> None:
    """Transient topics from its beginning, files from where they stand; unless told not to."""
    bodies = {"orders": [], "quotes": [], "fresh": [], "/desk/a": []}  # type: dict[str, list[bytes]]
    with running_server(tmp_path, elements=ELEMENTS) as server, server.log_on("p") as peer:
        sequence = 0
        for topic in bodies:
            for body in (
                b'{"id":1,"v":1}',
                b'{"id":2,"v":1}',
                b'{"id":3,"v":1}',
                b'{"id":1,"v":2}',
            ):
                sequence += 1
                peer.send({"c": "publish", "t": topic, "s": sequence}, body)
            sequence += 1
            peer.send({"c": "delta_publish", "t": topic, "s": sequence}, b'{"id":2,"d":1}')
            sequence += 1
            peer.send({"c": "sow_delete", "t": topic, "s": sequence, "f": "/id = 3"})
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        for topic in bodies:
            bodies[topic] = sorted(query(peer, topic).bodies)
            assert len(bodies[topic]) == 2
        server.stop(how)
    bodies["fresh"] = []
    (tmp_path / "orders.sow").rename(tmp_path / "orders.away")
    for restart in range(2):
        with running_server(tmp_path, elements=ELEMENTS) as server, server.connect() as peer:
            assert server.logs("AMPS transaction log journal recovery completed")
            assert peer.log_on("p")["s"] == sequence
            found = {topic: sorted(query(peer, topic).bodies) for topic in bodies}
        assert found == bodies, restart


FROM_A_TIME = """
<SOW>
  <Topic>
    <Name>day</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability><RecoveryPoint>{since}</RecoveryPoint>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>day</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def test_records_are_recovered_from_a_time_on(tmp_path: Path) -> None:
    """What was published before that stays in the log only."""
    with running_server(tmp_path, elements=FROM_A_TIME.format(since="epoch")) as server:
        with server.log_on("writer") as peer:
            for number in range(4):
                peer.publish("day", b'{"id":%d}' % number)
                peer.flush()
            peer.subscribe("day", "s", bm="0", o="timestamp")
            times = [peer.receive()[0]["ts"] for _ in range(4)]
        assert server.stop() == 0
    for since, expected in ((times[2], [2, 3]), (times[0], [0, 1, 2, 3]), ("20990101T000000Z", [])):
        with running_server(tmp_path, elements=FROM_A_TIME.format(since=since)) as server:
            with server.log_on("reader") as peer:
                assert sorted(one["id"] for one in query(peer, "day").messages) == expected
            server.stop(signal.SIGKILL)
