"""Queues over other protocols: bookmarks, leases and backlogs are in their headers, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.legacy import FixPeer
from tests.support.queues import done, elements, put
from tests.support.server import RunningServer, free_port, running_server
from tests.transports.support import WebsocketClient, transport

QUEUES = {name: {"LeasePeriod": "1h"} for name in ("web", "legacy")}

COMMAND, COMMAND_ID, TOPIC, ACK, ID = "20000", "20001", "20005", "20008", "20009"
LEASE, STATUS, BOOKMARK, OPTIONS = "20017", "20018", "20037", "20039"


@dataclass(frozen=True)
class Ports:
    """A server and its further ports."""

    server: RunningServer
    web: int
    legacy: int


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """One server with a transport of each kind."""
    web, legacy = free_port(), free_port()
    transports = transport(
        "web",
        "tcp",
        f"<InetAddr>127.0.0.1:{web}</InetAddr><Protocol>websocket</Protocol>",
    ) + transport(
        "legacy",
        "tcp",
        f"<InetAddr>127.0.0.1:{legacy}</InetAddr><Protocol>nvfix</Protocol>"
        "<MessageType>json</MessageType>",
    )
    with running_server(
        tmp_path_factory.mktemp("server"), elements=elements(QUEUES), transports=transports
    ) as server:
        yield Ports(server, web, legacy)


def test_websocket(ports: Ports) -> None:
    """The same keys as in the protocol amps."""
    put(ports.server, "in-web", [1])
    with WebsocketClient(f"ws://127.0.0.1:{ports.web}/amps/json") as client:
        client.ask({"c": "logon", "cid": "l", "client_name": "web", "a": "processed"})
        command = {"c": "subscribe", "cid": "s", "t": "web", "o": "max_backlog=5"}
        assert client.ask(command | {"a": "processed"})["opts"] == "max_backlog=5"
        header, body = client.receive()
        assert (header["t"], body, "lp" in header) == ("web", b'{"n":1}', True)
        command = {"c": "sow_delete", "cid": "d", "t": "web", "bm": header["bm"]}
        assert client.ask(command | {"a": "stats"})["records_deleted"] == 1


def test_legacy(ports: Ports) -> None:
    """Fields of their own."""
    put(ports.server, "in-legacy", [1])
    with FixPeer(ports.legacy) as peer:
        peer.ask({COMMAND: "logon", COMMAND_ID: "l", "20002": "old", ACK: "processed"})
        command = {COMMAND: "subscribe", COMMAND_ID: "s", ID: "s", TOPIC: "legacy"}
        ack = peer.ask(command | {OPTIONS: "max_backlog=5", ACK: "processed"})
        assert (ack[STATUS], ack[OPTIONS]) == ("success", "max_backlog=5")
        fields, body = peer.receive()
        assert (fields[TOPIC], body, LEASE in fields) == ("legacy", b'{"n":1}', True)
        command = {COMMAND: "sow_delete", COMMAND_ID: "d", TOPIC: "legacy"}
        ack = peer.ask(command | {BOOKMARK: fields[BOOKMARK], ACK: "processed"})
        assert ack[STATUS] == "success"
    with ports.server.log_on() as amps:
        assert done(amps, "legacy", filter="1=1") == 0
