"""What a user may not see of a record's past or presence does not change the answers they get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.security.entitled import entitled_server
from tests.support.raw import RawPeer
from tests.support.server import RunningServer
from tests.support.sow import receive_group

READ: Final = "/desk = 7"

DOCUMENTS: Final = {
    "root": {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]},
    "ann": {"logon": True, "topic": [{"topic": ".*", "read": READ}]},
    "cut": {"logon": True, "topic": [{"topic": ".*", "read": READ, "select": "-/client"}]},
    "bob": {"logon": True, "topic": [{"topic": ".*", "read": "/id != 2", "write": READ}]},
}

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>conflated</Name><MessageType>json</MessageType>
    <UnderlyingTopic>records</UnderlyingTopic><Interval>100ms</Interval>
  </ConflatedTopic>
  <View>
    <Name>view</Name><MessageType>json</MessageType>
    <UnderlyingTopic>records</UnderlyingTopic>
    <Projection>
      <Field>/id</Field><Field>/desk</Field><Field>/price</Field><Field>/client</Field>
    </Projection>
    <Grouping><Field>/id</Field></Grouping>
  </View>
</SOW>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("hidden")
    with entitled_server(directory, DOCUMENTS, elements=ELEMENTS) as running:
        yield running


@pytest.fixture
def root(server: RunningServer) -> Iterator[RawPeer]:
    """The publisher. There are no records."""
    with server.log_on("root-1", user_id="root") as peer:
        peer.ask({"c": "sow_delete", "cid": "1", "t": "records", "f": "1=1", "a": "completed"})
        yield peer


def publish(peer: RawPeer, number: int, desk: int, price: int) -> dict[str, Any]:
    record = {"id": number, "desk": desk, "price": price, "client": "BANK"}
    peer.publish("records", json.dumps(record).encode())
    peer.flush()
    return record


def follow(peer: RawPeer, command: str, topic: str, options: str, **keys: str) -> None:
    """Subscribe, and pass over the records that are there."""
    header = {"c": command, "cid": "1", "sub_id": "1", "query_id": "1", "t": topic, "o": options}
    peer.send(header | {"a": "processed"} | keys)
    assert peer.receive_header()["status"] == "success"
    if command.startswith("sow"):
        receive_group(peer)


@pytest.mark.parametrize("hidden_price", [100, 200])
@pytest.mark.parametrize("user", ["ann", "cut"])
@pytest.mark.parametrize("topic", ["records", "conflated", "view", "^(records)$"])
@pytest.mark.parametrize("options", ["", "no_empties", "conflation=100ms", "oof"])
@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_delta_subscribe"])
def test_a_record_that_comes_into_view_comes_whole(
    server: RunningServer,
    root: RawPeer,
    command: str,
    options: str,
    topic: str,
    user: str,
    hidden_price: int,
) -> None:
    """A delta would tell what it was before. What is seen after that is told in deltas."""
    with (
        server.log_on("reader", user_id=user) as reader,
        server.log_on("witness", user_id="root") as witness,
    ):
        follow(witness, "delta_subscribe", topic, "conflation=100ms" if "con" in options else "")
        publish(root, 1, 8, hidden_price)
        witness.receive()
        follow(reader, command, topic, options)
        seen = publish(root, 1, 7, 100)
        if user == "cut":
            del seen["client"]
        assert json.loads(reader.receive()[1]) == seen
        publish(root, 1, 7, 101)
        assert json.loads(reader.receive()[1]) == {"id": 1, "price": 101}


@pytest.mark.parametrize("user", ["ann", "root"])
def test_a_state_that_only_the_own_filter_passed_over(
    server: RunningServer, root: RawPeer, user: str
) -> None:
    """The user may see it, so the delta is sent, as AMPS does without `oof`."""
    publish(root, 1, 7, 100)
    with server.log_on("reader", user_id=user) as reader:
        follow(reader, "delta_subscribe", "records", "", f="/price > 100")
        publish(root, 1, 7, 101)
        assert json.loads(reader.receive()[1]) == {"id": 1, "price": 101}


DELETIONS: Final = [  # the records that are named, and how many are deleted: None for a refusal
    ("body", [1], 1),
    ("body", [2], 0),  # may not be read
    ("body", [3], None),  # may be read
    ("body", [9], 0),  # is not there
    ("sow_keys", [1, 2], 1),
    ("sow_keys", [2], 0),
    ("sow_keys", [2, 3], None),
    ("sow_keys", [1, 2, 3], 1),
]


@pytest.mark.parametrize(("way", "named", "deleted"), DELETIONS)
def test_a_deletion_does_not_tell_of_hidden_records(
    server: RunningServer, root: RawPeer, way: str, named: list[int], deleted: int | None
) -> None:
    """Of one that the user may not read either, the answer is that of no record."""
    for number, desk in ((1, 7), (2, 8), (3, 8)):
        publish(root, number, desk, 100)
    root.send({"c": "sow", "cid": "q", "query_id": "q", "t": "records"})
    found = receive_group(root).records
    keys = {json.loads(body)["id"]: header["k"] for header, body in found}
    command: dict[str, Any] = {"c": "sow_delete", "cid": "1", "t": "records", "a": "stats"}
    body = b""
    if way == "body":
        body = json.dumps({"id": named[0]}).encode()
    else:
        command["sow_keys"] = ",".join(keys[number] for number in named)
    with server.log_on("bob-1", user_id="bob") as bob:
        ack = bob.ask(command, body)
    assert ack.get("records_deleted") == ack.get("matches") == ack.get("topic_matches") == deleted
    assert ack.get("reason") == ("not entitled" if deleted is None else None)
