"""A changed Key: records get the keys that it gives them, and none is lost; deltas keep ids."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.long_form import spread
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

TOPIC = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType>{key}
  <FileName>orders.sow</FileName>
</Topic></SOW>
"""
ID, GROUP = "<Key>/id</Key>", "<Key>/g</Key>"
MOVED, ASIDE = "15-0032", "15-0017"


def publish(peer: RawPeer, topic: str, *bodies: Mapping[str, object]) -> None:
    """Publish records."""
    for body in bodies:
        peer.send({"c": "p", "t": topic}, json.dumps(body).encode())
    assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})


def said(server: RunningServer) -> dict[str, int]:
    """Return how many records the log says were moved, or set aside."""
    found: dict[str, int] = {}
    for line in server.log().splitlines():
        for name in (MOVED, ASIDE):
            if name in line:
                found[name] = int(line.partition("(json): ")[2].split()[0])
    return found


CHANGES = {
    "the key": (GROUP, {MOVED: 2, ASIDE: 1}),
    "a domain": (f"{ID}<KeyDomain>all</KeyDomain>", {MOVED: 3}),
    "a wrong key": ("<Key>/none</Key>", {ASIDE: 3}),
    "nothing": (ID, {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_records_from_before_are_found_and_deleted(tmp_path: Path, change: str) -> None:
    """Also after a further start, and back with the former Key all keys are as they were."""
    with running_server(tmp_path, elements=TOPIC.format(key=ID)) as server:
        with server.log_on("publisher") as peer:
            bodies = [{"id": number, "g": group} for number, group in enumerate("aab", start=1)]
            publish(peer, "orders", *bodies)
            keys = {header["k"] for header, _ in query(peer, "orders").records}
        assert said(server) == {}
    key, expected = CHANGES[change]
    for again in range(2):
        with running_server(tmp_path, elements=TOPIC.format(key=key)) as server:
            with server.log_on("reader") as peer:
                for group, count in {"a": 2, "b": 1}.items():
                    assert len(query(peer, "orders", filter=f"/g = '{group}'").messages) == count
                assert len(query(peer, "orders", filter="/id IN ('1', '3')").messages) == 2
            assert said(server) == {
                name: count for name, count in expected.items() if name == ASIDE or not again
            }
            server.stop(signal.SIGKILL if again else signal.SIGTERM)
    with running_server(tmp_path, elements=TOPIC.format(key=ID)) as server:
        with server.log_on("reader") as peer:
            assert {header["k"] for header, _ in query(peer, "orders").records} == keys
            delete = {"c": "sow_delete", "cid": "d", "t": "orders", "filter": "/g = 'a'"}
            assert peer.ask(delete | {"a": "stats"})["records_deleted"] == 2
        assert ASIDE not in said(server)


OTHER = """
<SOW>
  <Topic>
    <Name>plain</Name><MessageType>json</MessageType><Key>{key}</Key>
    <FileName>plain.sow</FileName>
  </Topic>
  <Topic>
    <Name>logged</Name><MessageType>json</MessageType><Key>{key}</Key>
    <FileName>logged.sow</FileName>
  </Topic>
  <Topic>
    <Name>remade</Name><MessageType>json</MessageType><Key>{key}</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(logged|remade)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def records(server: RunningServer, topic: str) -> set[tuple[int, int, int]]:
    """Return the records of a topic."""
    with server.log_on("reader") as peer:
        found = query(peer, topic).messages
    return {(record["id"], record["k"], record["v"]) for record in found}


def test_a_message_meets_the_record_of_its_key_alone(tmp_path: Path) -> None:
    """A publish and a delete have nothing to do with records whose former keys are equal.

    A record that was deleted under its former key stays deleted.
    """
    topics = ("plain", "logged", "remade")
    elements = OTHER.format(key="/id")
    with running_server(tmp_path, elements=elements) as server, server.log_on("p") as peer:
        for topic in topics:
            publish(peer, topic, *({"id": n, "k": 100 + n, "v": 0} for n in range(10)))
            delete = {"c": "sow_delete", "cid": "d", "t": topic, "a": "stats"}
            assert peer.ask(delete, b'{"id":9}')["records_deleted"] == 1
            publish(peer, topic)  # waits until the deletion is persisted
    expected = {(n, 100 + n, 0) for n in range(9)}
    expected |= {(77, 5, 1), (4, 104, 1)}
    expected -= {(4, 104, 0), (3, 103, 0)}
    with running_server(tmp_path, elements=OTHER.format(key="/k")) as server:
        for topic in topics:
            with server.log_on("publisher") as peer:
                publish(peer, topic, {"id": 77, "k": 5, "v": 1}, {"id": 4, "k": 104, "v": 1})
                delete = {"c": "sow_delete", "cid": "d", "t": topic, "a": "stats"}
                assert peer.ask(delete, b'{"k":8}')["records_deleted"] == 0
                assert peer.ask(delete, b'{"k":103}')["records_deleted"] == 1
                publish(peer, topic)  # waits until the deletion is persisted
            assert records(server, topic) == expected, topic
    for _ in range(2):
        with running_server(tmp_path, elements=OTHER.format(key="/k")) as server:
            for topic in topics:
                assert records(server, topic) == expected, topic
            server.stop(signal.SIGKILL)
    for path in tmp_path.glob("*.sow"):
        path.unlink()
    with running_server(tmp_path, elements=OTHER.format(key="/k")) as server:
        for topic in topics:
            assert records(server, topic) == (set() if topic == "plain" else expected), topic


LOGGED = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability>
</Topic></SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def test_a_delta_keeps_the_correlation_id_in_the_log(tmp_path: Path) -> None:
    """As it does in the record, which is made from the log after a start; and in a replay."""
    with running_server(tmp_path, elements=LOGGED) as server, server.log_on("publisher") as peer:
        peer.send({"c": "p", "t": "orders", "x": "abc"}, b'{"id":1,"v":2}')
        delta = {"c": "delta_publish", "cid": "d", "t": "orders", "a": "persisted"}
        assert peer.ask(delta, b'{"id":1,"w":2}')["status"] == "success"
        [(header, _)] = query(peer, "orders").records
        assert header["x"] == "abc"
    with running_server(tmp_path, elements=LOGGED) as server, server.log_on("reader") as peer:
        [(header, body)] = query(peer, "orders").records
        assert (header["x"], json.loads(body)) == ("abc", {"id": 1, "v": 2, "w": 2})
        peer.send({"c": "subscribe", "cid": "s", "t": "orders", "bm": "0"})
        assert [peer.receive()[0]["x"] for _ in range(2)] == ["abc", "abc"]


DELETED = """
<SOW><Topic>
  <Name>t</Name><MessageType>json</MessageType><Key>{key}</Key><FileName>t.sow</FileName>{history}
</Topic></SOW>
"""
DELETED_LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>t</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.mark.parametrize("log", spread([DELETED_LOG, ""], 1))
@pytest.mark.parametrize(
    "history", ["", "<History><Window>1d</Window><Granularity>0s</Granularity></History>"]
)
def test_a_deletion_under_a_former_key_deletes_no_record_that_has_it_later(
    tmp_path: Path, history: str, log: str
) -> None:
    """The key of the record that was deleted is the key of another one after a change back."""
    kept = {"id": 8, "k": 1, "v": 2}

    def elements(key: str) -> str:
        return DELETED.format(key=key, history=history) + log

    with (
        running_server(tmp_path, elements=elements("/id")) as server,
        server.log_on("publisher") as peer,
    ):
        publish(peer, "t", {"id": 5, "k": 8, "v": 2}, kept)
    with (
        running_server(tmp_path, elements=elements("/k")) as server,
        server.log_on("publisher") as peer,
    ):
        peer.ask({"c": "sow_delete", "cid": "d", "t": "t", "a": "persisted"}, b'{"k":8}')
        assert query(peer, "t").messages == [kept]
    for key in ("/id", "/id", "/v", "/id"):
        with running_server(tmp_path, elements=elements(key)) as server, server.log_on("r") as peer:
            assert query(peer, "t").messages == [kept]
