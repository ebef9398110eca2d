"""Publishing to topics with records: keys, acks, and messages that cannot be stored."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server, running_configuration, running_server
from tests.support.sow import TOPICS, query

STAGES = """
<SOW>
  <Topic>
    <Name>staged</Name>
    <MessageType>json</MessageType>
    <Key>/key</Key>
    <FileName>staged.sow</FileName>
    <SlabSize>1MB</SlabSize>
    <Preprocessing><Field>CONCAT(/a, "-", /b) AS /key</Field></Preprocessing>
    <Enrichment>
      <Field>/n + 1 AS /next</Field>
      <Field>USER() AS /by</Field>
      <Field>COALESCE(/count OF PREVIOUS, 0) + 1 AS /count</Field>
    </Enrichment>
  </Topic>
</SOW>
"""


server = module_server(TOPICS)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose topic computes fields."""
    with running_server(tmp_path_factory.mktemp("staged"), elements=STAGES) as running:
        yield running


def test_a_publisher_gives_the_key_where_no_fields_make_it(server: RunningServer) -> None:
    """It is handed on as it was given; without one all messages share a record."""
    with server.log_on() as peer:
        peer.subscribe("notes", "s")
        peer.publish("notes", b'{"n":1}', k="ACC-1|AAPL")
        assert peer.receive()[0]["k"] == "ACC-1|AAPL"
        peer.publish("notes", b'{"n":2}', k="ACC-1|AAPL")
        peer.publish("notes", b'{"n":3}')
        peer.publish("notes", b'{"n":4}')
        for _ in range(3):
            peer.receive()
        records = {header["k"]: body for header, body in query(peer, "notes").records}
    assert records == {"ACC-1|AAPL": b'{"n":2}', "18446744073709551615": b'{"n":4}'}


def test_a_message_without_key_fields_is_accepted(server: RunningServer) -> None:
    """As measured: all of them share one record."""
    with server.log_on() as peer:
        for body in (b'{"x":1}', b'{"x":2}'):
            ack = peer.ask({"c": "publish", "cid": "1", "t": "orders", "a": "processed"}, body)
            assert ack["status"] == "success"
        assert query(peer, "orders", f="/x IS NOT NULL").bodies == [b'{"x":2}']


@pytest.mark.parametrize("topic", ["orders", "quotes"])
def test_the_acks_of_a_publish(server: RunningServer, topic: str) -> None:
    """The one of type persisted comes when the record is on stable storage."""
    with server.log_on() as peer:
        acks = "received,processed,completed,persisted"
        peer.send({"c": "publish", "cid": "9", "t": topic, "s": 7, "a": acks}, b'{"id":1}')
        got = [peer.receive_header() for _ in range(4)]
    assert [ack["a"] for ack in got] == acks.split(",")
    assert {ack["status"] for ack in got} == {"success"}
    assert {ack["s"] for ack in got[1:]} == {7}


def test_numbered_publishes_are_acknowledged_one_by_one(server: RunningServer) -> None:
    """As publishers with a store send them: many at once, each waiting for stable storage."""
    with server.log_on() as peer:
        header = {"c": "p", "t": "orders", "a": "processed,persisted"}
        frames = [frame(header | {"s": n}, b'{"id":"n%d"}' % n) for n in range(1, 201)]
        peer.socket.sendall(b"".join(frames))
        acks = [peer.receive_header() for _ in range(400)]
        assert [ack["s"] for ack in acks if ack["a"] == "processed"] == list(range(1, 201))
        assert [ack["s"] for ack in acks if ack["a"] == "persisted"] == list(range(1, 201))
        assert len(query(peer, "orders", f="/id LIKE '^n'", bs=1000).records) == 200


def test_fields_are_computed_before_a_message_is_stored(staged: RunningServer) -> None:
    """Preprocessing makes the key, enrichment sees the record before; all see the result."""
    with staged.log_on() as peer:
        peer.subscribe("staged", "s", f="/next > 0")
        for n in (1, 2):
            peer.publish("staged", b'{"a":"x","b":"y","n":%d}' % n)
        got = [json.loads(peer.receive()[1]) for _ in range(2)]
        stored = query(peer, "staged").messages
    assert [(message["key"], message["next"], message["count"]) for message in got] == [
        ("x-y", 2, 1),
        ("x-y", 3, 2),
    ]
    assert stored == [got[1]]


def test_a_message_that_cannot_be_stored_is_refused_and_others_are_not(
    staged: RunningServer,
) -> None:
    """Its publisher is told if it asked for acks, and the log always; a run of messages goes on."""
    with staged.log_on() as peer:
        bodies = [b'{"a":"1","n":1}', b"not json", b'{"a":"2","n":1}', b"{" * 9, b'{"a":"3","n":1}']
        peer.socket.sendall(b"".join(frame({"c": "p", "t": "staged"}, body) for body in bodies))
        peer.flush()
        assert len(query(peer, "staged", f="/a IN ('1','2','3')").records) == 3
        header = {"c": "p", "t": "staged", "a": "processed,persisted"}
        frames = [frame(header | {"s": n}, body) for n, body in enumerate(bodies, 1)]
        peer.socket.sendall(b"".join(frames))
        acks = [peer.receive_header() for _ in range(10)]
    failed = [(ack["a"], ack["s"], ack["reason"]) for ack in acks if ack["status"] == "failure"]
    assert sorted(failed) == [
        (ack, n, "invalid message") for ack in ("persisted", "processed") for n in (2, 4)
    ]
    good = sorted((ack["a"], ack["s"]) for ack in acks if ack["status"] == "success")
    assert good == [(ack, n) for ack in ("persisted", "processed") for n in (1, 3, 5)]
    assert staged.logs("invalid message", 4)


def test_a_message_above_the_slab_size_is_refused(staged: RunningServer) -> None:
    """The size of slabs limits that of records."""
    with staged.log_on() as peer:
        body = b'{"a":"large","n":1,"text":"%s"}' % (b"x" * 2_000_000)
        ack = peer.ask({"c": "publish", "cid": "1", "t": "staged", "a": "processed"}, body)
    assert (ack["status"], ack["reason"]) == ("failure", "not stored")
    assert "1048" in ack["detail"] or "slab" in ack["detail"]


def filled(peer: RawPeer) -> None:
    """Put records into a persistent and a transient topic, and wait for stable storage."""
    for n in range(100):
        peer.publish("orders", b'{"id":%d,"n":1}' % n, x=f"c{n}")
        peer.publish("quotes", b'{"symbol":%d}' % n)
        peer.publish(f"/desk/{n % 3}", b'{"id":%d}' % n)
    peer.publish("orders", b'{"id":5,"n":2}')
    peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 7"})
    ack = peer.ask({"c": "p", "cid": "1", "t": "orders", "a": "persisted"}, b'{"id":100,"n":1}')
    assert ack["status"] == "success"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_records_survive_the_process(tmp_path: Path, how: signal.Signals) -> None:
    """Persistent topics are as they were after a stop or kill -9; transient ones are empty."""
    with running_server(tmp_path, elements=TOPICS) as server:
        with server.log_on() as peer:
            filled(peer)
            before = sorted(query(peer, "orders").records, key=lambda record: record[0]["k"])
            if how is signal.SIGKILL:
                server.stop(how)
        if how is signal.SIGTERM:
            assert server.stop(how) == 0
        port = server.port
    with running_configuration(tmp_path, (tmp_path / "config.xml").read_text(), port) as server:
        with server.log_on() as peer:
            after = sorted(query(peer, "orders").records, key=lambda record: record[0]["k"])
            assert after == before
            assert len(after) == 100
            assert len(query(peer, "^/desk/").records) == 100
            assert len(query(peer, "/desk/1").records) == 33
            assert query(peer, "quotes").records == []
        assert server.logs("SOW topic 'orders' (json) recovered: 100 records")


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """The log says so; the topic begins empty, and the damaged file is kept."""
    with running_server(tmp_path, elements=TOPICS) as server:
        with server.log_on() as peer:
            filled(peer)
        server.stop()
        port = server.port
    path = tmp_path / "orders.sow"
    content = bytearray(path.read_bytes())
    middle = content.index(b'{"id":50,"n":1}')
    content[middle] ^= 0xFF
    path.write_bytes(content)
    with running_configuration(tmp_path, (tmp_path / "config.xml").read_text(), port) as server:
        with server.log_on() as peer:
            assert query(peer, "orders").records == []
            peer.publish("orders", b'{"id":1}')
            assert len(query(peer, "orders").records) == 1
        assert server.logs("the file was renamed to orders.sow.damaged-1")
    assert (tmp_path / "orders.sow.damaged-1").read_bytes() == bytes(content)


def test_a_file_in_use_keeps_the_instance_from_starting(tmp_path: Path) -> None:
    """Two instances never write to one file."""
    with (
        running_server(tmp_path, elements=TOPICS),
        pytest.raises(AssertionError, match=r"orders\.sow"),
        running_server(tmp_path, elements=TOPICS),
    ):
        pass
