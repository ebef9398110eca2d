"""What tests of the admin interface have in common: servers, and requests by hand."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.admin.http.connection import RequestHandler
from server.admin.http.limits import HttpLimits
from server.admin.http.server import HttpServer
from server.statistics.resources import RESOURCES
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import ColumnType, Resource, StatisticValue
from server.statistics.timestamps import from_text
from server.transports.descriptor_reserve import DescriptorReserve
from tests.engine.support import RecordingLog, SimulatedClock
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import Authority


@dataclass(frozen=True)
class Reply:
    """What a server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    repeated: list[tuple[str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Admin:
    """The admin interface of a server that runs.

    Attributes:
        port: where it listens.
        server: the server.
    """

    port: int
    server: RunningServer

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        """Send a request; of the names of its headers, `_` stands for a hyphen."""
        return ask(self.port, path, method, **headers)

    def tree(self, path: str = "/amps.json") -> Any:
        """A JSON document."""
        reply = self.ask(path)
        assert reply.status == 200, reply.text
        return reply.json

    def comes(self, path: str, value: str) -> None:
        """Wait until a leaf has a value."""
        wait_until(
            lambda: self.ask(f"{path}.csv").text.strip().rpartition(",")[2] == value,
            lambda: f"{path} is {self.ask(path).text}, and not {value}",
        )


def ask(
    port: int, path: str, method: str = "GET", host: str = "127.0.0.1", **headers: str
) -> Reply:
    """Send a request, and read the answer."""
    connection = http.client.HTTPConnection(host, port, timeout=WAIT_SECONDS)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        return read(connection)
    finally:
        connection.close()


def read(connection: http.client.HTTPConnection) -> Reply:
    """Read an answer."""
    response = connection.getresponse()
    pairs = response.getheaders()
    return Reply(
        response.status, {name.lower(): value for name, value in pairs}, response.read(), pairs
    )


def tls_transport(authority: Authority) -> str:
    """A transport with a certificate of an authority."""
    certificate, key = authority.issue("localhost")
    return (
        "<Transport><Name>secure</Name><Type>tcps</Type>"
        f"<InetAddr>127.0.0.1:{free_port()}</InetAddr><Protocol>amps</Protocol>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey></Transport>"
    )


@contextmanager
def running_admin(
    directory: Path,
    admin: str = "",
    elements: str = "",
    address: str = "127.0.0.1:",
    **options: Any,
) -> Iterator[Admin]:
    """A server with an admin interface, that has taken its first sample.

    Args:
        directory: where it runs.
        admin: elements of its Admin section.
        elements: further elements of the configuration.
        address: where the admin interface listens, up to the port.
        options: of `running_server`.
    """
    port = free_port()
    section = f"<Admin><InetAddr>{address}{port}</InetAddr><Interval>1s</Interval>{admin}</Admin>"
    with running_server(directory, elements=section + elements, **options) as server:
        yield Admin(port, server)


@dataclass(frozen=True)
class Peer:
    """An HTTP server of the product by itself, with answers of a test's own.

    Attributes:
        port: where it listens.
        log: what it logs.
    """

    port: int
    log: RecordingLog

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)

    def exchange(self, octets: bytes) -> bytes:
        """Send bytes and end the sending; give all that comes back."""
        with self.connect() as connection:
            try:
                connection.sendall(octets)
                connection.shutdown(socket.SHUT_WR)
            except OSError:  # it has been refused already
                pass
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other end closes the connection."""
    found = b""
    try:
        while chunk := connection.recv(1 << 16):
            found += chunk
    except ConnectionError:
        pass
    return found


@contextmanager
def http_server(answer: RequestHandler, limits: HttpLimits | None = None) -> Iterator[Peer]:
    """An HTTP server on a thread of its own."""
    log = RecordingLog()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    port = listening.getsockname()[1]
    begun, loops = threading.Event(), []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        end = asyncio.Event()
        loops.append((loop, end))
        server = HttpServer(answer, [], DescriptorReserve(SimulatedClock(), log), log, limits)
        await server.serve([listening], None)
        begun.set()
        await end.wait()
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert begun.wait(WAIT_SECONDS)
    try:
        yield Peer(port, log)
    finally:
        loop, end = loops[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


MOMENT = from_text("20261123T041500.25")


def example_snapshot(
    moment: int = MOMENT, entries: int = 2, **changed: dict[str, dict[str, StatisticValue]]
) -> StatisticsSnapshot:
    """A snapshot with some entries of each resource.

    Args:
        moment: its timestamp.
        entries: of resources that have such.
        changed: values by resource (`__` for a slash), by id, by field.
    """
    found: dict[str, dict[str, tuple[StatisticValue, ...]]] = {}
    for resource in RESOURCES:
        ids = [str(number) for number in range(1, entries + 1)] if resource.entry else [""]
        found[resource.path] = {
            identity: _values(
                resource, changed.get(resource.path.replace("/", "__"), {}).get(identity, {})
            )
            for identity in ids
        }
    return StatisticsSnapshot(moment, found)


def _values(resource: Resource, changed: dict[str, StatisticValue]) -> tuple[StatisticValue, ...]:
    examples: dict[ColumnType, StatisticValue] = {
        ColumnType.TEXT: "text",
        ColumnType.INTEGER: 12,
        ColumnType.REAL: 0.5,
    }
    return tuple(changed.get(one.name, examples[one.type]) for one in resource.fields)
