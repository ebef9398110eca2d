"""Transports are opened and closed while the instance runs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.instance import Instance
from server.log.event_log import EventLog
from server.transports.listener import TransportError
from tests.support.raw import RawPeer
from tests.support.server import CONFIGURATION, free_port
from tests.transports.support import transport


@dataclass(frozen=True)
class Running:
    """An instance in this process, its log file, and the ports of its transports."""

    instance: Instance
    log_file: Path
    always: int
    later: int
    web: int

    def log(self) -> str:
        """What has been logged so far."""
        return self.log_file.read_text()


@asynccontextmanager
async def running_instance(directory: Path) -> AsyncIterator[Running]:
    """Run an instance with three transports, of which `later` is disabled at the start."""
    always, later, web = free_port(), free_port(), free_port()
    log_file = directory / "instance.log"
    transports = transport(
        "later",
        "tcp",
        f"<InetAddr>127.0.0.1:{later}</InetAddr><InitialState>disabled</InitialState>",
    ) + transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{web}</InetAddr><Protocol>websocket</Protocol>"
    )
    logging = (
        "<Logging><Target><Protocol>file</Protocol><Level>info</Level>"
        f"<FileName>{log_file}</FileName></Target></Logging>"
    )
    text = CONFIGURATION.format(port=always, transports=transports, elements="", level="none")
    start, end = text.index("<Logging>"), text.index("</Logging>") + len("</Logging>")
    path = directory / "config.xml"
    path.write_text(text[:start] + logging + text[end:])
    problems = Problems()
    document = load(str(path), defines={}, environ=os.environ, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    assert spec is not None, list(problems)
    log = EventLog(spec.logging, spec.name)
    instance = Instance(spec, log)
    started = asyncio.Event()
    run = asyncio.create_task(instance.run(started.set))
    try:
        await started.wait()
        yield Running(instance, log_file, always, later, web)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await run
        log.close()


def run(directory: Path, story: Callable[[Running], Awaitable[None]]) -> None:
    """Tell a story about a running instance."""

    async def tell() -> None:
        async with running_instance(directory) as running:
            await story(running)

    uvloop.run(tell())


def is_served(port: int) -> bool:
    """Whether a client can log on at a port."""
    try:
        with RawPeer(port) as peer:
            return bool(peer.log_on()["status"] == "success")
    except ConnectionRefusedError:
        return False


def is_ended(connection: socket.socket) -> bool:
    """Whether the server ends a connection that it has not answered."""
    try:
        return connection.recv(10) == b""
    except ConnectionResetError:
        return True


def test_a_transport_can_be_enabled_and_disabled_again(tmp_path: Path) -> None:
    """Enabling listens as at the start; disabling closes and disconnects its clients."""

    async def story(running: Running) -> None:
        instance = running.instance
        assert not await asyncio.to_thread(is_served, running.later)
        for _ in range(2):
            await instance.transports.enable("later")
            await instance.transports.enable("later")  # it is: nothing changes
            assert await asyncio.to_thread(is_served, running.later)
            client = await asyncio.to_thread(RawPeer, running.later)
            other = await asyncio.to_thread(RawPeer, running.always)
            await asyncio.to_thread(other.log_on)
            await asyncio.to_thread(client.log_on, "the-client")
            await instance.transports.disable("later")
            await instance.transports.disable("later")
            assert await asyncio.to_thread(client.is_disconnected)
            await asyncio.to_thread(other.flush)
            assert not await asyncio.to_thread(is_served, running.later)
            client.socket.close()
            other.socket.close()

    run(tmp_path, story)
    log = (tmp_path / "instance.log").read_text()
    assert log.count("07-0048 Transport[later] being enabled.") == 2
    assert log.count("07-0047 Transport[later] being disabled.") == 2
    assert log.count("client[the-client] disconnected.\n") == 2


def test_websocket_clients_are_disconnected_too(tmp_path: Path) -> None:
    """Those that are connected get a goodbye, those in their handshake an end."""

    async def story(running: Running) -> None:
        client = await asyncio.to_thread(connect, f"ws://127.0.0.1:{running.web}/amps/json")
        with client as client_connection:
            half = socket.create_connection(("127.0.0.1", running.web), 5)
            half.sendall(b"GET /amps")
            await asyncio.to_thread(client_connection.ping)
            await running.instance.transports.disable("web")
            with pytest.raises(ConnectionClosed):
                await asyncio.to_thread(client_connection.recv, 5)
            assert await asyncio.to_thread(is_ended, half)
            half.close()

    run(tmp_path, story)


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    """An unknown name, and a port that is taken, are errors with a sentence."""

    async def story(running: Running) -> None:
        with pytest.raises(TransportError, match="no transport named 'nothing'; the transports"):
            await running.instance.transports.enable("nothing")
        with socket.create_server(("127.0.0.1", running.later)):
            with pytest.raises(TransportError, match=r"later cannot listen on .*in use"):
                await running.instance.transports.enable("later")
            assert await asyncio.to_thread(is_served, running.always)
        await running.instance.transports.enable("later")
        assert await asyncio.to_thread(is_served, running.later)

    run(tmp_path, story)
