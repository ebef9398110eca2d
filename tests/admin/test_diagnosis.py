"""Clients explained: how they do, why, and what can be done; and what filters cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.raw import Connection
from tests.support.waiting import wait_until

ELEMENTS: Final = """
<MessageMemoryLimit>2MB</MessageMemoryLimit><MessageDiskPath>.</MessageDiskPath>
<SOW>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
    <MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs|logged</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
LARGE: Final = b'{"id": 1, "text": "%s"}' % (b"x" * 100_000)


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("admin"), elements=ELEMENTS) as running:
        yield running


def number_of(admin: Admin, name: str) -> str:
    """The id of a client, known by its name or by that of its connection."""
    found: list[str] = []

    def is_there() -> bool:
        clients = admin.tree("/amps/instance/clients.json")["amps"]["instance"]["clients"]
        found[:] = [one["id"] for one in clients if name in one["client_name"]]
        return bool(found)

    wait_until(is_there)
    return found[0]


def explained(admin: Admin, identity: str) -> dict[str, Any]:
    (client,) = admin.tree(f"/amps/instance/clients/{identity}/explain.json")["amps"]["instance"][
        "clients"
    ]
    assert client["id"] == identity
    explanation: dict[str, Any] = client["explain"]
    return explanation


def comes_to(admin: Admin, identity: str, state: str, *reasons: str) -> dict[str, Any]:
    """Wait until a client is explained in a way, and give all of it."""
    found: dict[str, Any] = {}

    def is_so() -> bool:
        found.clear()
        found.update(explained(admin, identity))
        return found["state"] == state and names(found) >= set(reasons)

    wait_until(is_so, lambda: json.dumps(found, indent=1))
    return found


def names(explanation: dict[str, Any]) -> set[str]:
    return {reason["name"] for reason in explanation["reasons"]}


def test_one_that_keeps_up_is_told_to_do_so(admin: Admin) -> None:
    with admin.server.log_on("steady") as peer:
        peer.ask({"c": "subscribe", "cid": "1", "t": "t", "sub_id": "mine", "filter": "/id > 3",
                  "a": "processed"})  # fmt: skip
        identity = number_of(admin, "steady")
        found = explained(admin, identity)
        tree = admin.tree(f"/amps/instance/clients/{identity}.json")["amps"]["instance"]["clients"]
    assert (found["state"], found["reasons"], found["queries"]) == ("keeps up", [], [])
    assert "'steady' keeps up." in found["sentences"][0]
    assert found["sentences"][-1] == "Nothing keeps it from getting its messages."
    (subscription,) = found["subscriptions"]
    told = {name: subscription[name] for name in ("sub_id", "topic", "filter")}
    assert told == {"sub_id": "mine", "topic": "t", "filter": "/id > 3"}
    for name in ("client_name", "connection_name", "transport", "connect_time", "remote_address"):
        assert found["client"][name] == tree[0][name]
    assert {limit["name"] for limit in found["limits"]} >= {"MessageMemoryLimit", "subscriptions"}


def test_one_that_reads_nothing_is_told_so_until_it_is_cut_off(admin: Admin) -> None:
    with admin.server.log_on("stopped") as peer, admin.server.log_on("publisher") as publisher:
        peer.send({"c": "subscribe", "cid": "1", "t": "large", "sub_id": "s"})
        identity = number_of(admin, "stopped")
        for _ in range(200):
            publisher.send({"c": "publish", "t": "large"}, LARGE)
        found = comes_to(admin, identity, "stopped reading", "offline")
        assert found["waiting"]["is_offline"] == "1"
        assert found["client"]["connect_time"] < found["waiting"]["oldest_since"]
        assert found["waiting"]["oldest_since"] < found["timestamp"]
        assert int(found["waiting"]["disk_bytes"]) > 1_000_000
        assert int(found["pace"]["bytes_out"]) > 20_000_000
        first = found["reasons"][0]
        assert first["name"] == "stopped reading"
        assert f"/amps/administrator/clients/{identity}/disconnect" in first["remedy"]
        assert all(reason["says"] in found["sentences"] for reason in found["reasons"])
        for _ in range(200):
            peer.pass_over()
        comes_to(admin, identity, "keeps up")


def test_one_that_reads_slowly_is_told_apart_from_one_that_has_stopped(admin: Admin) -> None:
    with admin.server.log_on("trickling") as peer, admin.server.log_on("flood") as publisher:
        peer.send({"c": "subscribe", "cid": "1", "t": "flood", "sub_id": "s"})
        for _ in range(400):
            publisher.send({"c": "publish", "t": "flood"}, LARGE)
        identity = number_of(admin, "trickling")
        found: dict[str, Any] = {}

        def is_slow() -> bool:
            for _ in range(3):
                peer.pass_over()
            found.clear()
            found.update(explained(admin, identity))
            has_waited = float(found["waiting"]["oldest_seconds"]) > 1
            reads = int(found["pace"]["read_lately_bytes_per_sec"]) > 0
            return has_waited and reads

        wait_until(is_slow, lambda: json.dumps(found, indent=1))
        assert found["state"] == "slow"
        assert "reads slowly" in names(found)


def test_how_far_a_replay_is_behind_is_told(admin: Admin) -> None:
    with admin.server.log_on("reader") as peer, admin.server.log_on("recorder") as publisher:
        for sequence in range(200):
            publisher.send({"c": "publish", "t": "logged", "s": sequence + 1}, LARGE)
        peer.send({"c": "subscribe", "cid": "1", "t": "logged", "bm": "0", "sub_id": "all"})
        identity = number_of(admin, "reader")
        found = comes_to(admin, identity, "stopped reading", "replay")
        (subscription,) = found["subscriptions"]
        assert int(subscription["entries_behind"]) > 0
        for _ in range(200):
            peer.pass_over()
        found = comes_to(admin, identity, "keeps up")
        assert found["subscriptions"][0]["entries_behind"] == "0"


def test_a_paused_replay_is_no_trouble(admin: Admin) -> None:
    with admin.server.log_on("pausing") as peer:
        peer.send({"c": "subscribe", "cid": "1", "t": "logged", "bm": "0", "sub_id": "p",
                   "opts": "pause"})  # fmt: skip
        found = comes_to(admin, number_of(admin, "pausing"), "keeps up", "paused")
    assert "Nothing keeps it from getting its messages." in found["sentences"]


def test_a_full_backlog_of_leases_is_told(admin: Admin) -> None:
    with admin.server.log_on("consumer") as peer, admin.server.log_on("producer") as producer:
        peer.send({"c": "subscribe", "cid": "1", "t": "work", "sub_id": "s", "filter": "/id > 0",
                   "opts": "max_backlog=2"})  # fmt: skip
        for sequence in range(5):
            producer.send({"c": "publish", "t": "jobs", "s": sequence + 1}, b'{"id": 1}')
        identity = number_of(admin, "consumer")
        found = comes_to(admin, identity, "waits", "leases")
        (subscription,) = found["subscriptions"]
        assert (subscription["backlog"], subscription["max_backlog"]) == ("2", "2")
        assert float(subscription["oldest_lease_seconds"]) >= 0
        (reason,) = found["reasons"]
        assert "has 2 messages of queues" in reason["says"]
        filters = admin.tree("/amps/instance/filters.json")["amps"]["instance"]["filters"]
    (cost,) = [one for one in filters["filters"] if one["topic"] == "work"]
    assert (cost["filter"], cost["subscriptions"]) == ("/id > 0", "1")
    assert int(cost["messages"]) > 0


def test_messages_that_wait_to_be_conflated_are_counted(admin: Admin) -> None:
    with admin.server.log_on("conflating") as peer, admin.server.log_on("ticker") as publisher:
        peer.ask({"c": "subscribe", "cid": "1", "t": "ticks", "sub_id": "c", "a": "processed",
                  "opts": "conflation=1h,conflation_key=[/id]"})  # fmt: skip
        for number in range(6):
            publisher.send({"c": "publish", "t": "ticks"}, b'{"id": %d}' % (number % 3))
        found = comes_to(admin, number_of(admin, "conflating"), "keeps up", "conflation")
    assert found["subscriptions"][0]["conflated_messages"] == "3"


def test_one_that_has_not_logged_on_is_told_to_have_not(admin: Admin) -> None:
    with Connection(admin.server.port) as connection:
        connection.socket.sendall(b"\x00")
        identity = number_of(admin, "any-tcp")
        comes_to(admin, identity, "has not logged on", "no logon")


def test_the_costly_filter_of_some_is_known_by_its_client_and_to_all(admin: Admin) -> None:
    costly = " OR ".join(f"/text LIKE 'x{number}.*y'" for number in range(100))
    with admin.server.log_on("curious") as peer, admin.server.log_on("feeder") as publisher:
        for sub_id, text in (("cheap", "/id = 3"), ("costly", costly)):
            peer.ask({"c": "subscribe", "cid": "1", "t": "looked-at", "sub_id": sub_id,
                      "filter": text, "a": "processed"})  # fmt: skip
        identity = number_of(admin, "curious")
        found: dict[str, dict[str, Any]] = {}

        def is_known() -> bool:
            for _ in range(10):
                publisher.send({"c": "publish", "t": "looked-at"}, LARGE[:50_000] + b'"}')
            told = explained(admin, identity)["subscriptions"]
            found.update({one["sub_id"]: one for one in told})
            return all(one["filter_seconds_each"] for one in found.values())

        wait_until(is_known)
        told = admin.tree("/amps/instance/filters.json")["amps"]["instance"]["filters"]
    assert float(found["costly"]["filter_seconds_each"]) > float(
        found["cheap"]["filter_seconds_each"]
    )
    here = [one for one in told["filters"] if one["topic"] == "looked-at"]
    assert [one["filter"] == "/id = 3" for one in here] == [False, True], "the costly one is first"
    assert float(here[0]["seconds_each"]) > 0
    assert float(here[0]["reading_seconds_each"]) > 0
    assert here[0]["reading_shared_by"] == "2"
    assert int(told["filter_count"]) >= 2


def test_explanations_have_the_forms_of_all_documents(admin: Admin) -> None:
    with admin.server.log_on("<formal> & co") as peer:
        peer.ask({"c": "subscribe", "cid": "1", "t": "t", "sub_id": "<s>", "filter": "/a < 3",
                  "a": "processed"})  # fmt: skip
        identity = number_of(admin, "<formal>")
        path = f"/amps/instance/clients/{identity}/explain"
        documents: list[Any] = []

        def are_of_one_state() -> bool:
            documents[:] = explained(admin, identity), admin.ask(f"{path}.xml"), admin.ask(path)
            return len(explained(admin, identity)["sentences"]) == len(documents[0]["sentences"])

        wait_until(are_of_one_state)
        as_json, as_xml, page = documents
        above = admin.ask(f"/amps/instance/clients/{identity}")
        filters = admin.ask("/amps/instance/filters.xml"), admin.ask("/amps/instance/filters")
    client = ElementTree.fromstring(as_xml.text).find("instance/clients/client")
    assert client is not None
    assert client.get("id") == identity
    assert client.findtext("explain/state") == as_json["state"]
    assert len(client.findall("explain/sentences/sentence")) == len(as_json["sentences"])
    assert client.findtext("explain/subscriptions/subscription/filter") == "/a < 3"
    assert page.headers["content-type"].startswith("text/html")
    assert "&lt;formal&gt; &amp; co" in page.text
    assert "<formal>" not in page.text
    assert f'href="{path}"' in above.text
    assert ElementTree.fromstring(filters[0].text).findtext(
        "instance/filters/filters/filter/filter"
    )
    assert "reading_shared_by" in filters[1].text


@pytest.mark.parametrize(
    "path",
    [
        "clients/999/explain",
        "clients/999/explain.json",
        "clients/x/explain",
        "clients/-1/explain",
        "clients/%D9%A1/explain",
        "clients/1/explain.csv",
        "clients/1/explain.",
        "filters.csv",
        "filters/1",
        "clients/explain",
    ],
)
def test_what_is_not_there_is_not_found(admin: Admin, path: str) -> None:
    assert admin.ask(f"/amps/instance/{path}").status == 404


def test_one_with_very_many_subscriptions_holds_up_nobody(admin: Admin) -> None:
    with admin.server.log_on("many") as peer:
        with peer.at_once():
            for number in range(200):
                peer.send({"c": "subscribe", "t": "t", "sub_id": str(number),
                           "filter": f"/id = {number}"})  # fmt: skip
        peer.ask({"c": "subscribe", "cid": "1", "t": "t", "sub_id": "last", "a": "processed"})
        found = explained(admin, number_of(admin, "many"))
    assert found["client"]["subscription_count"] == "201"
    assert len(found["subscriptions"]) == 100
    assert float(found["engine"]["longest_turn_seconds"]) > 0
    filters = admin.tree("/amps/instance/filters.json")["amps"]["instance"]["filters"]
    assert len(filters["filters"]) <= 100


def test_who_may_not_see_clients_sees_none_explained(tmp_path: Path) -> None:
    refuse = "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>"
    with running_admin(tmp_path, refuse) as admin, admin.server.log_on("secret"):
        for path in ("clients/1/explain", "clients/1/explain.json", "filters.xml", "filters"):
            reply = admin.ask(f"/amps/instance/{path}")
            assert (reply.status, "secret" in reply.text) == (403, False)
