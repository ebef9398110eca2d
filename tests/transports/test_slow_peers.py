"""Peers that do not read, on connections whose bytes are not the session's own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.server import RunningServer, free_port, running_server
from tests.transports.support import CompressedPeer, WebsocketClient, transport

LIMITS = """
<MessageMemoryLimit>2MB</MessageMemoryLimit>
<MessageDiskLimit>60MB</MessageDiskLimit>
<MessageDiskPath>{directory}</MessageDiskPath>
"""


@pytest.fixture(scope="module")
def web_port() -> int:
    """Where the websocket transport listens."""
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, web_port: int) -> Iterator[RunningServer]:
    """A server with small limits and a websocket transport."""
    directory = tmp_path_factory.mktemp("server")
    websocket = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{web_port}</InetAddr><Protocol>websocket</Protocol>"
    )
    with running_server(
        directory, transports=websocket, elements=LIMITS.format(directory=directory)
    ) as running:
        yield running


def bodies() -> list[bytes]:
    """Messages that do not compress: more than socket and memory take, less than the disk."""
    seed = os.urandom(100_000)
    return [b"%05d" % number + seed for number in range(250)]


def test_a_websocket_client_that_pauses_gets_everything(
    server: RunningServer, web_port: int
) -> None:
    """Messages wait as they will be sent; compressed or not, none is lost and the order is kept."""
    sent = bodies()
    with (
        server.log_on("publisher", "binary") as publisher,
        WebsocketClient(f"ws://127.0.0.1:{web_port}/amps/binary", max_queue=1) as pausing,
    ):
        pausing.ask({"c": "logon", "cid": "1", "client_name": "web-pausing", "a": "processed"})
        pausing.subscribe("web")
        for body in sent:
            publisher.publish("web", body)
        publisher.flush()
        assert server.logs("client[web-pausing] slow consumption detected, offline messages.")
        assert [pausing.receive()[1] for _ in sent] == sent


def test_a_compressed_client_that_pauses_gets_everything(server: RunningServer) -> None:
    """The compressed stream stays one stream on its way over the disk."""
    sent = bodies()
    with server.log_on("publisher") as publisher, CompressedPeer(server.port) as pausing:
        pausing.log_on("zlib-pausing")
        pausing.subscribe("zlib", "1")
        for body in sent:
            publisher.publish("zlib", body)
        publisher.flush()
        assert server.logs("client[zlib-pausing] slow consumption detected, offline messages.")
        assert [pausing.receive()[1] for _ in sent] == sent


def test_a_websocket_client_that_never_reads_is_disconnected(
    server: RunningServer, web_port: int
) -> None:
    """Over its share it has to go, like any other; the rest goes on."""
    body = b"x" + bodies()[0]
    with (
        server.log_on("publisher", "binary") as publisher,
        WebsocketClient(
            f"ws://127.0.0.1:{web_port}/amps/binary", max_queue=1, close_timeout=0.1
        ) as sleepy,
    ):
        sleepy.ask({"c": "logon", "cid": "1", "client_name": "web-sleepy", "a": "processed"})
        sleepy.subscribe("flood")
        for _ in range(700):
            publisher.publish("flood", body)
        publisher.flush()
        assert server.logs("client[web-sleepy] disconnected. Reason: slow client")
