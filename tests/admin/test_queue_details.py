"""Queues as they are at the moment, in more detail than samples have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.waiting import wait_until

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
  <Queue>
    <Name>ranked</Name><MessageType>json</MessageType><UnderlyingTopic>ranks</UnderlyingTopic>
    <Semantics>at-least-once</Semantics><Priority>/p</Priority>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs|ranked|ranks</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("admin"), elements=ELEMENTS) as running:
        yield running


def test_a_queue_is_shown_as_it_is_now(admin: Admin) -> None:
    with admin.server.log_on("consumer") as consumer, admin.server.log_on("producer") as producer:
        for number in range(3):
            producer.send({"c": "publish", "t": "jobs", "s": number + 1}, b"{}")
        consumer.send({"c": "subscribe", "cid": "1", "t": "work", "sub_id": "s"})
        wait_until(lambda: (queue(admin)["backlog"], queue(admin)["depth"]) == ("1", "3"))
        found = queue(admin)
    assert {name: found[name] for name in ("depth", "insert_count", "delete_count")} == {
        "depth": "3",
        "insert_count": "3",
        "delete_count": "0",
    }
    first, second, third = found["messages"]
    assert (first["deliverable"], first["leased_to"]) == ("0", "consumer")
    assert float(first["leased_age"]) >= 0
    assert (second["deliverable"], "leased_to" in second) == ("1", False)
    assert int(third["txid"]) > int(first["txid"])
    assert Path(first["journal"]).suffix == ".journal"
    assert all("|" in one["bookmark"] for one in found["messages"])
    (cursor,) = found["cursors"]
    assert cursor["cursor_subscriptions"][0]["client_name"] == "consumer"
    names = "internal_depth last_queued_txid last_acked_txid priority_count seconds_behind"
    for name in [*names.split(), "age_of_oldest_lease", "expired_leases", "locally_owned"]:
        float(found[name])


def test_priorities_are_those_of_the_messages(admin: Admin) -> None:
    with admin.server.log_on("ranker") as producer:
        for number, priority in enumerate([7, 0, 7, 3], 1):
            body = b'{"p": %d}' % priority
            producer.send({"c": "publish", "t": "ranks", "s": number}, body)
        wait_until(lambda: queue(admin, "ranked")["depth"] == "4")
    found = queue(admin, "ranked")
    assert [one["priority"] for one in found["messages"]] == ["7", "0", "7", "3"]
    assert found["priority_count"] == "3"


def queue(admin: Admin, name: str = "work") -> dict[str, Any]:
    details: dict[str, Any] = admin.tree(f"/amps/instance/queues/{name}!json/details")
    return details


LIMITED: Final = """
<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
<AnonymousPaths>^/amps/instance/queues</AnonymousPaths>
"""


def test_the_first_messages_have_their_bodies(tmp_path: Path) -> None:
    path = "/amps/instance/queues/work!json"
    with (
        running_admin(tmp_path, elements=ELEMENTS) as admin,
        admin.server.log_on("consumer") as consumer,
        admin.server.log_on("producer") as producer,
    ):
        for number in range(25):
            body = b'{"p":%d,"text":"%s"}' % (number, b"x" * (5_000 if number == 1 else 1))
            producer.send({"c": "publish", "t": "jobs", "x": f"order-{number}"}, body)
        consumer.send({"c": "subscribe", "cid": "1", "t": "work", "sub_id": "s"})
        wait_until(lambda: (queue(admin)["backlog"], queue(admin)["depth"]) == ("1", "25"))
        found = admin.ask(f"{path}/messages.json").json["messages"]
        foreign = admin.ask(f"{path}/messages.json", Origin="https://elsewhere.example")
        assert foreign.status == 403
        assert admin.ask("/amps/instance/queues/nothing!json/messages").status == 404
    assert len(found) == 20
    assert found[0]["body"] == '{"p":0,"text":"x"}'
    assert (found[0]["correlation_id"], found[0]["is_damaged"]) == ("order-0", "0")
    assert (found[1]["size"], len(found[1]["body"])) == ("5017", 4_096)
    assert (found[0]["leased_to"], found[0]["state"]) == ("consumer", "leased")
    assert (found[0]["deliveries"], found[1]["deliveries"]) == ("1", "0")


def test_a_request_reads_bodies_up_to_a_total(tmp_path: Path) -> None:
    with (
        running_admin(tmp_path, elements=ELEMENTS) as admin,
        admin.server.log_on("producer") as producer,
    ):
        for _ in range(5):
            producer.send({"c": "publish", "t": "jobs"}, b'"%s"' % (b"x" * 600_000))
        wait_until(lambda: queue(admin)["depth"] == "5")
        found = admin.ask("/amps/instance/queues/work!json/messages.json").json["messages"]
    assert [one["is_omitted"] for one in found] == ["0", "0", "1", "1", "1"]
    assert found[1]["size"] == "600002"
    assert found[2].keys() & {"body", "size"} == set()
    assert found[2]["bookmark"]


def test_bodies_need_the_permission_to_read_the_topic(tmp_path: Path) -> None:
    with running_admin(tmp_path, LIMITED, ELEMENTS) as admin:
        assert admin.ask("/amps/instance/queues/work!json/details").status == 200
        reply = admin.ask("/amps/instance/queues/work!json/messages")
        assert reply.status == 403
        assert "may not read from topic work" in reply.text
