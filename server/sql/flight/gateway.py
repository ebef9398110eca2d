"""Arrow Flight SQL: the gRPC server behind the transports that speak it.

    client -> FlightConnection (engine's thread) -> unix socket -> gRPC server -> FlightService
                                                   (gRPC's thread: an event loop of its own)

Theory of operation. gRPC parses and makes HTTP/2 on threads of its own. What it calls runs on an
event loop of one thread, gRPC's thread, which waits and never works: sessions and logons belong to
the engine's thread and are asked for by calls that are posted there; statements are executed by the
worker threads of SQL, one step at a time, by the same query processes as those of PostgreSQL's
clients. The record batches of a query process are sent as they are: no value is converted. A step
makes one batch, and the next step begins when gRPC has taken it, which it does as the client reads.
So a client that does not read suspends its statement, and occupies no thread.

The gRPC server listens on a unix socket in a directory that only this process can enter. Clients
connect to the transport's own sockets, as those of all transports do, with its TLS and its limits
before the logon; a `FlightConnection` passes the bytes on. Its end of the unix socket has a name,
by which a call finds the connection that it came in on. So addresses, certificates of clients and
the end of a connection mean here what they mean elsewhere. gRPC's own listener has none of that: it
would take any number of connections without a logon.

A session of the engine is one client: the credentials of calls on one connection. It has prepared
statements and settings; tickets need no state, since they have the text of their query. The server
starts with the first connection, and stops with the instance: calls in progress are cancelled.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or clients could write to the standard error

import grpc

from server.sql.flight.tokens import BearerTokens

if TYPE_CHECKING:
    from server.sql.flight.connection import FlightConnection

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a message of a client: a command, or a batch of parameters."""

MAX_STREAMS: Final = 32
"""Calls of a connection at the same time."""

MAX_CALLS: Final = 8_000
"""Calls of all connections at the same time."""

_MAX_METADATA_BYTES: Final = 32 * 1024

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _MAX_METADATA_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),
)

_MAX_PATH_BYTES: Final = 80
"""Bytes of the directory's path: the name of a unix socket has 107."""

_STOP_TIMEOUT_S: Final = 5.0


class FlightGateway:
    """The gRPC server of an instance. Methods are called on the engine's thread.

    Args:
        make_handlers: returns the handlers of calls.

    Attributes:
        tokens: the bearer tokens of its clients.
    """

    def __init__(self, make_handlers: Callable[[FlightGateway], grpc.GenericRpcHandler]) -> None:
        self.tokens: Final = BearerTokens(time.monotonic)
        self._make_handlers: Final = make_handlers
        self._connections: dict[str, FlightConnection] = {}
        self._numbers: Final = count(1)
        self._directory: Path | None = None
        self._thread: threading.Thread | None = None
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_closed = False

    async def connect(
        self, connection: FlightConnection, make_protocol: Callable[[], asyncio.Protocol]
    ) -> str:
        """Connect to the gRPC server, and start it if it does not run.

        Args:
            connection: the connection of the client.
            make_protocol: makes the protocol of the connection to the server.

        Returns:
            The name of the connection.

        Raises:
            OSError: the server cannot start, has stopped, or accepts no connection.
        """
        directory = self._start()
        await asyncio.wrap_future(self._started)
        name = str(directory / str(next(self._numbers)))
        own = socket.socket(socket.AF_UNIX)
        try:
            own.setblocking(False)
            own.bind(name)
            self._connections[name] = connection
            own.connect(str(_socket_path(directory)))
            await asyncio.get_running_loop().create_unix_connection(make_protocol, sock=own)
        except BaseException:
            self.remove(name)
            own.close()
            raise
        finally:
            with suppress(OSError):
                os.unlink(name)
        return name

    def remove(self, name: str) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(name, None)

    def find_connection(self, peer: str) -> FlightConnection | None:
        """Return the connection that a call came in on; from any thread.

        Args:
            peer: the address of the peer, as gRPC has it.
        """
        return self._connections.get(peer.removeprefix("unix:"))

    def schedule(self, call: Callable[[], None]) -> None:
        """Schedule a call on gRPC's thread; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Stop the server; calls in progress are cancelled."""
        self._is_closed = True
        thread, stopping = self._thread, self._stopping
        if thread is None:
            return
        if stopping is not None:
            self.schedule(stopping.set)
        thread.join(_STOP_TIMEOUT_S)

    def _start(self) -> Path:
        if self._is_closed:
            raise OSError("the instance is stopping")
        if self._directory is None:
            self._directory = _make_directory()
            self._thread = threading.Thread(
                target=self._run, args=(self._directory,), name="flight", daemon=True
            )
            self._thread.start()
        return self._directory

    # ---- on gRPC's thread

    def _run(self, directory: Path) -> None:
        try:
            asyncio.run(self._serve(directory))
        except Exception as error:
            if not self._started.done():
                self._started.set_exception(OSError(f"gRPC cannot start: {error}"))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    async def _serve(self, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server: Any = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
        server.add_generic_rpc_handlers((self._make_handlers(self),))
        server.add_insecure_port(f"unix:{_socket_path(directory)}")
        await server.start()
        self._started.set_result(None)
        if not self._is_closed:
            await self._stopping.wait()
        await server.stop(None)


def _make_directory() -> Path:
    """Return a new directory that only this user can enter."""
    prefix = "amps-flight-"
    path = Path(tempfile.mkdtemp(prefix=prefix))
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        return path
    path.rmdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))


def _socket_path(directory: Path) -> Path:
    return directory / "grpc"
