"""Permissions to write that are limited by a filter: nothing else is published or deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.admin.support import ask
from tests.security.entitled import entitled_server
from tests.support.queues import queue
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer, free_port
from tests.support.waiting import wait_until

FILTER: Final = "/desk = 7"

SLOW: Final = " OR ".join(f"/text LIKE '(a+)+[x-z]{{{number + 1}}}$'" for number in range(9))
"""A filter that takes too many steps for some messages."""

ALL: Final = {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]}

DOCUMENTS: Final = {
    "root": ALL,
    "ann": {
        "logon": True,
        "topic": [
            {"topic": "bins", "write": "TOPIC_NAME() = '/bin/7' AND /desk = 7"},
            {"topic": "slow", "write": SLOW},
            {"topic": "mine", "write": "USER() = 'ann' AND CLIENT_NAME() = 'ann-1'"},
            {"topic": "owned", "write": "/owner = USER()"},
            {"topic": "in-work", "write": False},
            {"topic": "none", "write": False},
            {"topic": ".*", "write": FILTER},
        ],
    },
    "eve": {"logon": True, "topic": [{"topic": ".*", "write": FILTER}]},
}


def topic(name: str, more: str = "") -> str:
    return (
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>"
        f"<Durability>transient</Durability>{more}</Topic>"
    )


ELEMENTS: Final = f"""
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>^(in-|logged|both)</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<SOW>
  {topic("records")}{topic("records-2")}{topic("owned")}{
    topic("both")
    .replace("transient", "persistent")
    .replace("<Durability>", "<FileName>both.sow</FileName><Durability>")
}{topic("none")}
  {topic("before", "<Preprocessing><Field>7 AS /desk</Field></Preprocessing>")}
  {topic("after", "<Enrichment><Field>/desk + 1 AS /desk</Field></Enrichment>")}
  {topic("bins", "<Pattern>^/bin/</Pattern>")}
  {queue("work", {"DefaultPublishTarget": "in-work"})}
</SOW>
"""


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, admin_port: int) -> Iterator[RunningServer]:
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{admin_port}</InetAddr><Interval>1s</Interval>"
        "<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement></Admin>"
    )
    directory = tmp_path_factory.mktemp("writes")
    with entitled_server(directory, DOCUMENTS, elements=admin + ELEMENTS) as running:
        yield running


@pytest.fixture
def ann(server: RunningServer) -> Iterator[RawPeer]:
    with server.log_on("ann-1", user_id="ann", opts=QUICK_ACKS) as peer:
        yield peer


@pytest.fixture
def root(server: RunningServer) -> Iterator[RawPeer]:
    """Who may do everything. The queue is empty."""
    with server.log_on("root-1", user_id="root") as peer:
        peer.ask({"c": "sow_delete", "cid": "1", "t": "work", "filter": "1=1", "a": "completed"})
        yield peer


def records(peer: RawPeer, name: str) -> list[dict[str, Any]]:
    """The records of a topic."""
    ack = {"c": "sow", "cid": "q", "query_id": "q", "t": name, "a": "completed", "bs": 1}
    peer.send(ack)
    found: list[dict[str, Any]] = []
    while True:
        header, body = peer.receive()
        if header["c"] == "ack":
            return sorted(found, key=lambda record: record["id"])
        if header["c"] == "sow":
            found.append(json.loads(body.split(b"}", 1)[1]))


def message(desk: int, number: int = 1, **fields: Any) -> bytes:
    return json.dumps({"id": number, "desk": desk, **fields}).encode()


KEYS: Final = [{}, {"x": "correlated"}, {"e": 60}, {"c": "p"}, {"c": "delta_publish"}]


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("name", ["news", "records", "logged", "both", "work"])
def test_only_what_matches_is_published(
    ann: RawPeer, root: RawPeer, name: str, keys: dict[str, Any]
) -> None:
    """Whatever the topic, and however it is published."""
    root.subscribe(name, "s", opts="max_backlog=100")
    for desk in (8, 7):
        command = {"c": "publish", "cid": "1", "t": name, "a": "processed"} | keys
        ack = ann.ask(command, message(desk))
        if desk == 7:
            assert ack["status"] == "success"
        else:
            assert (ack["status"], ack["reason"]) == ("failure", "not entitled")
    assert json.loads(root.receive()[1])["desk"] == 7
    root.publish(name, message(9))
    assert json.loads(root.receive()[1])["desk"] == 9


@pytest.mark.parametrize("name", ["news", "records", "logged", "both", "work"])
@pytest.mark.parametrize("keys", [{}, {"x": "correlated"}], ids=["plain", "correlated"])
def test_acks_say_which_of_many_was_refused(
    server: RunningServer, root: RawPeer, name: str, keys: dict[str, Any]
) -> None:
    """The reference's example: 1 and 2, but not 3, and 4 and 5 after all."""
    root.subscribe(name, "s", opts="max_backlog=100")
    client = f"many-{name}-{len(keys)}"
    with server.log_on(client, user_id="ann", opts=QUICK_ACKS) as peer:
        for first in (1, 6):  # in runs, from the second time on
            with peer.at_once():
                for number in range(first, first + 5):
                    body = message(8 if number == first + 2 else 7, number)
                    peer.publish(name, body, s=number, a="persisted", **keys)
            failed, reached = [], 0
            while reached < first + 4:
                ack = peer.receive_header()
                if ack["status"] == "failure":
                    assert ack["reason"] == "not entitled"
                    failed.append(ack["s"])
                else:
                    reached = ack["s"]
            assert failed == [first + 2]
    got = [json.loads(root.receive()[1])["id"] for _ in range(8)]
    assert got == [1, 2, 4, 5, 6, 7, 9, 10]


@pytest.mark.parametrize("name", ["news", "records", "logged", "both"])
def test_runs_keep_their_order(ann: RawPeer, root: RawPeer, name: str) -> None:
    root.subscribe(name, "s")
    with ann.at_once():
        for number in range(500):
            ann.publish(name, message(8 if number % 10 == 3 else 7, number))
    ann.flush()
    wanted = [number for number in range(500) if number % 10 != 3]
    assert [json.loads(root.receive()[1])["id"] for _ in wanted] == wanted


def test_what_is_refused_is_in_no_log(server: RunningServer, ann: RawPeer, root: RawPeer) -> None:
    ack = ann.ask({"c": "publish", "t": "logged-2", "cid": "1", "a": "processed"}, message(8))
    assert ack["reason"] == "not entitled"
    ann.publish("logged-2", message(7))
    ann.flush()
    root.subscribe("logged-2", "s", bm="0")
    assert json.loads(root.receive()[1])["desk"] == 7
    assert server.logs("topic 'logged-2': the user may publish other messages only")


def test_a_delta_is_judged_by_itself(ann: RawPeer, root: RawPeer) -> None:
    """And not by the record, nor by what it makes of it."""
    root.publish("both", message(7, 50))
    root.publish("both", message(8, 51))
    root.flush()
    for body, reason in (
        ({"id": 50, "desk": 8}, "not entitled"),
        ({"id": 50, "price": 1}, "not entitled"),
        ({"id": 51, "desk": 7, "price": 2}, None),
    ):
        command = {"c": "delta_publish", "cid": "1", "t": "both", "a": "processed"}
        assert ann.ask(command, json.dumps(body).encode()).get("reason") == reason
    found = {record["id"]: record for record in records(root, "both")}
    assert found[50] == {"id": 50, "desk": 7}
    assert found[51] == {"id": 51, "desk": 7, "price": 2}


def test_who_deletes_is_asked_about_and_not_who_has_published(ann: RawPeer, root: RawPeer) -> None:
    for number, owner in enumerate(("ann", "root", "ann")):
        root.publish("owned", json.dumps({"id": number, "owner": owner}).encode())
    root.flush()
    command = {"c": "sow_delete", "cid": "1", "t": "owned", "filter": "/id < 2", "a": "stats"}
    assert ann.ask(command)["records_deleted"] == 1
    assert [record["id"] for record in records(root, "owned")] == [1, 2]


def test_the_filter_is_asked_before_enrichment(ann: RawPeer, root: RawPeer) -> None:
    for name, desk, becomes in (("before", 8, None), ("after", 7, 8), ("after", 6, None)):
        command = {"c": "publish", "cid": "1", "t": name, "a": "processed"}
        ack = ann.ask(command, message(desk, desk))
        assert ack["status"] == ("failure" if becomes is None else "success"), name
    assert records(root, "before") == []
    assert records(root, "after") == [{"id": 7, "desk": 8}]


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("/bin/7", message(7), None),
        ("/bin/7", message(8), "not entitled"),
        ("/bin/8", message(7), "not entitled"),
        ("mine", b"{}", None),
        ("in-work", message(7), "not entitled"),
        ("news", b"no json", "not entitled"),
        ("news", b"", "not entitled"),
        ("slow", b'{"text": "%s"}' % (b"a" * 40_000), "not entitled"),
        ("slow", b'{"text": "aaxx"}', None),
    ],
)
def test_filters_may_ask_for_more_than_fields(
    ann: RawPeer, name: str, body: bytes, reason: str | None
) -> None:
    command = {"c": "publish", "cid": "1", "t": name, "a": "processed"}
    assert ann.ask(command, body).get("reason") == reason


def test_what_cannot_be_decided_is_not_published(server: RunningServer, ann: RawPeer) -> None:
    body = b'{"text": "%s"}' % (b"a" * 40_000)
    command = {"c": "publish", "cid": "1", "t": "slow", "a": "processed"}
    assert "it cannot be decided" in str(ann.ask(command, body)["detail"])
    assert ann.ask(command, b'{"text": "aaxx"}')["status"] == "success"


def test_filters_may_ask_who_publishes(server: RunningServer) -> None:
    with server.log_on("ann-2", user_id="ann") as peer:
        ack = peer.ask({"c": "publish", "cid": "1", "t": "mine", "a": "processed"}, b"{}")
        assert ack["reason"] == "not entitled"


DELETIONS: Final = [
    # what it says, the body, and: reason, records deleted, what is left of records, of records-2
    ({"t": "records", "filter": "1=1"}, b"", None, 2, [2], [1, 2]),
    ({"t": "records", "filter": "/desk = 8"}, b"", None, 0, [1, 2, 3], [1, 2]),
    ({"t": "^records", "filter": "1=1"}, b"", None, 3, [2], [2]),
    ({"t": "none", "filter": "1=1"}, b"", "not entitled", None, [1, 2, 3], [1, 2]),
    ({"t": "records"}, message(7, 1), None, 1, [2, 3], [1, 2]),
    ({"t": "records"}, message(7, 2), None, 0, [1, 2, 3], [1, 2]),
    ({"t": "records"}, message(8, 1), None, 1, [2, 3], [1, 2]),
    ({"t": "records"}, message(8, 9), None, 0, [1, 2, 3], [1, 2]),
    ({"t": "records", "keys": [1, 2, 3]}, b"", None, 2, [2], [1, 2]),
    ({"t": "records", "keys": [2]}, b"", None, 0, [1, 2, 3], [1, 2]),
    ({"t": "^records", "keys": [1, 2]}, b"", None, 1, [2, 3], [1, 2]),
]


@pytest.mark.parametrize(("says", "body", "reason", "deleted", "left", "left_2"), DELETIONS)
def test_only_records_that_match_are_deleted(
    ann: RawPeer,
    root: RawPeer,
    says: dict[str, Any],
    body: bytes,
    reason: str | None,
    deleted: int | None,
    left: list[int],
    left_2: list[int],
) -> None:
    """Whichever way the command says which."""
    for name, desks in (("records", (7, 8, 7)), ("records-2", (7, 8))):
        root.ask({"c": "sow_delete", "cid": "1", "t": name, "filter": "1=1", "a": "completed"})
        for number, desk in enumerate(desks, 1):
            root.publish(name, message(desk, number))
    root.flush()
    command = {"c": "sow_delete", "cid": "1", "a": "stats"} | says
    if "keys" in says:
        keys = dict(key_of(root, number) for number in command.pop("keys"))
        command["k"] = ",".join(keys.values())
    ack = ann.ask(rename(command), body)
    assert ack.get("reason") == reason
    assert ack.get("records_deleted") == deleted
    assert ack.get("topic_matches") == deleted, "how many others there are is not told"
    assert [record["id"] for record in records(root, "records")] == left
    assert [record["id"] for record in records(root, "records-2")] == left_2


def rename(command: dict[str, Any]) -> dict[str, Any]:
    return {{"k": "sow_keys"}.get(key, key): value for key, value in command.items()}


def key_of(peer: RawPeer, number: int) -> tuple[int, str]:
    """A record and its SOW key."""
    command = {"c": "sow", "cid": "k", "query_id": "k", "t": "records", "a": "completed"}
    peer.send(command | {"filter": f"/id = {number}"})
    key = ""
    while True:
        header, body = peer.receive()
        if header["c"] == "ack":
            return number, key
        if header["c"] == "sow":
            key = json.loads(body[: body.index(b"}") + 1])["k"]


def test_refusals_are_counted(server: RunningServer, admin_port: int, root: RawPeer) -> None:
    root.publish("records", message(8, 60))
    root.flush()
    with server.log_on("counted", user_id="ann") as peer:
        with peer.at_once():
            for number in range(3):
                peer.publish("news", message(8, number))
        peer.ask({"c": "publish", "cid": "1", "t": "none", "a": "processed"}, b"{}")
        command = {"c": "sow_delete", "cid": "1", "t": "records", "a": "processed"}
        assert peer.ask(command, message(8, 60))["status"] == "success", "it may not be read"

        def counted() -> bool:
            clients = ask(admin_port, "/amps/instance/clients.json").json
            found = clients["amps"]["instance"]["clients"]
            mine = [one for one in found if one["client_name"] == "counted"]
            return bool(mine) and mine[0]["denied_writes"] == "5"

        wait_until(counted)


def test_what_a_filter_refuses_is_in_the_audit_trail(server: RunningServer) -> None:
    """With the filter. Of somebody who has been refused often, nothing more is said for a while."""
    with (
        server.log_on("auditor", user_id="root") as auditor,
        server.log_on("eve", user_id="eve") as eve,
    ):
        auditor.subscribe("/AMPS/Audit", "a", filter="/Audit/event = 'refused'")
        eve.ask({"c": "publish", "cid": "1", "t": "audited", "a": "processed"}, message(8))
        event = json.loads(auditor.receive()[1])["Audit"]
    assert (event["auth_id"], event["action"], event["resource"]) == ("eve", "write to", "audited")
    assert FILTER in event["reason"]
