"""Programs written for AMPS's interface: each reads here what it reads there, to the letter.

A value that such a program cannot convert, or a name that is missing, ends its whole run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.raw import RawPeer
from tests.support.server import free_port
from tests.support.waiting import wait_until

WEBSOCKET: Final = """
<Transport>
  <Name>any-ws</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>websocket</Protocol>
</Transport>
"""
ELEMENTS: Final = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <View>
    <Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>COUNT(/id) AS /count</Field><Field>/kind AS /kind</Field></Projection>
    <Grouping><Field>/kind</Field></Grouping>
  </View>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(
        tmp_path_factory.mktemp("admin"),
        "<SQLTransport>any-ws</SQLTransport>",
        ELEMENTS,
        transports=WEBSOCKET.format(port=free_port()),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[RawPeer]:
    with admin.server.log_on("reader") as peer:
        wait_until(lambda: any(one["client_name"] == "reader" for one in _clients(admin)))
        yield peer


def _clients(admin: Admin) -> list[dict[str, str]]:
    clients: list[dict[str, str]] = admin.tree()["amps"]["instance"]["clients"]
    return clients


EXPORTER: Final = {
    "host/memory": "free in_use swap_free swap_total",
    "host/network": "bytes_in bytes_out",
    "host/disks": "file_system_free_percent",
    "host/cpus": "iowait_percent idle_percent",
    "instance/processors": "messages_received_per_sec denied_reads denied_writes last_active "
    "throttle_count",
    "instance/sow": "inserts_per_sec updates_per_sec deletes_per_sec queries_per_sec insert_count "
    "delete_count update_count",
    "instance/views": "queue_depth",
    "instance/queues": "seconds_behind queue_depth transferred_in transferred_out owned",
    "instance/replication": "is_connected seconds_behind messages_out_per_sec",
    "instance/clients": "transport_rx_queue transport_tx_queue bytes_in_per_sec bytes_out_per_sec "
    "queue_depth_out queue_max_latency",
}
"""What an exporter for Prometheus reads, by where it is: all of it numbers."""


@pytest.mark.parametrize("path", EXPORTER)
def test_an_exporter_finds_what_it_reads(admin: Admin, client: RawPeer, path: str) -> None:
    found: Any = admin.tree("/amps.json")["amps"]
    for name in path.split("/"):
        found = found[name]
    entries = [found] if isinstance(found, dict) else found
    for entry in entries:
        if isinstance(found, list):
            assert isinstance(entry["id"], str)
        for name in EXPORTER[path].split():
            float(entry[name])
    if path == "host/network":
        assert all(re.fullmatch("[A-Za-z0-9_-]+", one["id"]) for one in entries)
    if path in ("instance/processors", "host/cpus"):
        ids = {one["id"] for one in entries}
        assert "all" in ids
        assert len(ids) > 1


WHOLE, ANY = int, float
CHECK: Final[dict[str, dict[type, str]]] = {
    "clients": {
        ANY: "bytes_in_per_sec bytes_out_per_sec query_time queue_max_latency",
        WHOLE: "denied_reads denied_writes messages_in_per_sec messages_out_per_sec "
        "queue_depth_out subscription_count transport_rx_queue transport_tx_queue",
        str: "client_name",
    },
    "memory": {WHOLE: "vmsize rss"},
    "queries": {WHOLE: "queued_queries"},
    "api": {WHOLE: "command_queue_depth"},
    "processors": {
        ANY: "messages_received_per_sec matches_found_per_sec last_active",
        WHOLE: "denied_reads denied_writes throttle_count",
    },
    "sow": {
        WHOLE: "valid_keys deletes_per_sec inserts_per_sec updates_per_sec queries_per_sec "
        "query_count stored_bytes memory_bytes",
        str: "topic",
    },
    "queues": {
        ANY: "age_of_oldest_lease seconds_behind",
        WHOLE: "backlog expired_leases owned queue_depth transferred_in transferred_out",
        str: "topic",
    },
    "views": {ANY: "conflation_ratio", WHOLE: "queue_depth", str: "topic"},
}
"""What a check for Datadog converts, and to what: `int()` of a text with a point fails."""


@pytest.mark.parametrize("group", CHECK)
def test_a_check_can_convert_what_it_reads(admin: Admin, client: RawPeer, group: str) -> None:
    instance = admin.tree("/amps/instance.json")["amps"]["instance"]
    found = instance[group]
    entries = [found] if isinstance(found, dict) else found
    assert entries
    for entry in entries:
        for convert, names in CHECK[group].items():
            for name in names.split():
                convert(entry[name])
    for name in ("clients", "sow", "queues", "views", "subscriptions"):
        assert isinstance(instance[name], list)


def test_a_tool_finds_clients_by_their_names(admin: Admin, client: RawPeer) -> None:
    clients = admin.tree("/amps/instance/clients.json")["amps"]["instance"]["clients"]
    (own,) = (one for one in clients if one["client_name"] == "reader")
    assert admin.tree(f"/amps/instance/clients/{own['id']}.json")


def test_a_tool_reads_the_name_between_the_tags_of_its_page(admin: Admin) -> None:
    reply = admin.ask("/amps/instance/name")
    assert reply.headers["content-type"].startswith("text/html")
    assert re.sub("<[^>]*>", "", reply.text) == "test-instance"


def test_tools_find_in_the_configuration_what_its_author_wrote(admin: Admin) -> None:
    reply = admin.ask("/amps/instance/config.xml")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("application/xml")
    head, _, _ = reply.text.partition("</Name>")
    assert head.endswith("<Name>test-instance")
    (own,) = (
        block
        for block in re.findall("<Transport>(.*?)</Transport>", reply.text, re.DOTALL)
        if "<Protocol>websocket</Protocol>" in block
    )
    assert "<Name>any-ws</Name>" in own
    assert re.search("<Topic><Name>orders</Name>", reply.text)


def test_scripts_wait_for_the_first_page(admin: Admin) -> None:
    reply = admin.ask("/")
    assert reply.status == 200
    assert "__sql=true" in reply.text
    assert 'href="/amps"' in reply.text
