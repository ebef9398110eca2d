"""What records were made with: all are found when a Key has changed, and deltas keep ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.server import running_server
from tests.support.sow import query

TOPIC = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType>{key}
  <FileName>orders.sow</FileName>
</Topic></SOW>
"""
ID, GROUP = "<Key>/id</Key>", "<Key>/g</Key>"
WARNING = "warning: 15-0017"

CHANGES = {"the key": GROUP, "a domain": f"{ID}<KeyDomain>all</KeyDomain>", "nothing": ID}


@pytest.mark.parametrize("change", CHANGES)
def test_records_from_before_are_found_and_deleted(tmp_path: Path, change: str) -> None:
    with running_server(tmp_path, elements=TOPIC.format(key=ID)) as server:
        with server.log_on("publisher") as peer:
            for number, group in enumerate(("a", "a", "b"), start=1):
                body = json.dumps({"id": number, "g": group}).encode()
                peer.send({"c": "p", "t": "orders"}, body)
            assert len(query(peer, "orders").messages) == 3
        assert WARNING not in server.log()
    elements = TOPIC.format(key=CHANGES[change])
    with running_server(tmp_path, elements=elements) as server, server.log_on("reader") as peer:
        assert (WARNING in server.log()) is (change != "nothing")
        for group, count in {"a": 2, "b": 1}.items():
            assert len(query(peer, "orders", filter=f"/g = '{group}'").messages) == count
        assert len(query(peer, "orders", filter="/id IN ('1', '3')").messages) == 2
        peer.send(
            {"c": "sow_delete", "cid": "d", "t": "orders", "filter": "/g = 'a'", "a": "stats"}
        )
        assert peer.receive_header()["records_deleted"] == 2
        peer.send({"c": "p", "t": "orders"}, b'{"id":3,"g":"a"}')
        beside = 0 if change == "nothing" else 1
        assert len(query(peer, "orders", filter="/id = '3'").messages) == 1 + beside
    with running_server(tmp_path, elements=elements) as server:
        assert (WARNING in server.log()) is (change != "nothing")


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
