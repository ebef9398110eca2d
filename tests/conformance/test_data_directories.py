"""A configuration runs wherever it is started: the directories that it names are made."""

from __future__ import annotations

from pathlib import Path

from tests.support.server import running_server

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./data/sow/%n.sow</FileName></Topic>
  <Topic><Name>fix/orders</Name><MessageType>fix</MessageType><Key>/37</Key>
    <FileName>./data/sow/%n.sow</FileName></Topic>
</SOW>
"""


def test_missing_directories_are_made_and_records_are_found_again(tmp_path: Path) -> None:
    """Also for a topic whose name has slashes; after a restart everything is there."""
    with running_server(tmp_path, elements=TOPICS) as server, server.log_on() as peer:
        ack = peer.ask({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id": 1}')
        assert ack["status"] == "success"
        assert server.stop() == 0
    assert sorted(path.name for path in (tmp_path / "data" / "sow").iterdir()) == [
        "fix",
        "orders.json.sow",
    ]
    with running_server(tmp_path, elements=TOPICS) as server, server.log_on() as peer:
        peer.send({"c": "sow", "cid": "q", "t": "orders"})
        assert peer.receive_header()["c"] == "group_begin"
        header, body = peer.receive()
        assert header["c"] == "sow"
        assert body.endswith(b'{"id": 1}')
