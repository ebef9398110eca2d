"""The network between the processes of a test, where anything can be made to go wrong.

Every connection goes through a port of ours, so that bytes can be held back in either direction
without either end noticing, come late or slowly, and connections end without a word.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from tests.support.waiting import WAIT_SECONDS

Result = TypeVar("Result")

_CHUNK: Final = 1 << 16
_ON_THE_WAY: Final = 64
"""Chunks that are under way in one direction of a connection; whoever sends more has to wait."""


@dataclass
class _Road:
    """What it is like to go from one place to another.

    Attributes:
        passable: not set while nothing arrives.
        delay: seconds that everything takes.
        rate: bytes a second; None for as many as come.
    """

    passable: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    rate: float | None = None

    def __post_init__(self) -> None:
        self.passable.set()


class Network:
    """Connections between places that have names.

    All methods may be called by any thread, and have taken effect when they return.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._roads: dict[tuple[str, str], _Road] = {}
        self._connections: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    def lead(self, source: str, destination: str, port: int) -> int:
        """Lay a way.

        Args:
            source: who is going to connect.
            destination: where to.
            port: where somebody listens there, now or later.

        Returns:
            The port to connect to instead.
        """
        return self._do(self._listen(source, destination, port))

    def cut(self, source: str, destination: str) -> None:
        """Let nothing more arrive in one direction; neither end notices."""
        self._call(self._road(source, destination).passable.clear)

    def part(self, one: str, other: str) -> None:
        """Cut both directions."""
        self.cut(one, other)
        self.cut(other, one)

    def slow(self, source: str, destination: str, delay: float, rate: float | None = None) -> None:
        """Have everything take longer.

        Args:
            source: from where.
            destination: to where.
            delay: seconds.
            rate: bytes a second; None for as many as come.
        """
        road = self._road(source, destination)

        def change() -> None:
            road.delay, road.rate = delay, rate

        self._call(change)

    def hang_up(self, one: str, other: str) -> None:
        """End all connections between two; new ones can be made."""

        def end() -> None:
            for task, ends in self._connections.items():
                if set(ends) == {one, other}:
                    task.cancel()

        self._call(end)

    def heal(self) -> None:
        """Have everything arrive at once again; what was held back comes now."""

        def mend() -> None:
            for road in self._roads.values():
                road.delay, road.rate = 0.0, None
                road.passable.set()

        self._call(mend)

    def _road(self, source: str, destination: str) -> _Road:
        return self._roads.setdefault((source, destination), _Road())

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._do(call())

    def _do(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_SECONDS)

    # On the network's thread

    async def _listen(self, source: str, destination: str, port: int) -> int:
        there, back = self._road(source, destination), self._road(destination, source)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[task] = (source, destination)
            try:
                await _carry(reader, writer, port, there, back)
            finally:
                del self._connections[task]

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        taken: int = server.sockets[0].getsockname()[1]
        return taken

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    there: _Road,
    back: _Road,
) -> None:
    """Carry what two ends have for one another, until either breaks off."""
    writers = [writer]
    try:
        await there.passable.wait()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(far_writer)
        async with asyncio.TaskGroup() as both:
            _start(both, reader, far_writer, there)
            _start(both, far_reader, writer, back)
    except* (OSError, asyncio.CancelledError):
        pass  # one end is gone, or we hang up
    finally:
        for each in writers:
            each.close()


def _start(
    group: asyncio.TaskGroup,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    road: _Road,
) -> None:
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_ON_THE_WAY)
    group.create_task(_depart(reader, under_way, road))
    group.create_task(_arrive(under_way, writer, road))


async def _depart(
    reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]], road: _Road
) -> None:
    chunk = b"-"
    while chunk:
        chunk = await reader.read(_CHUNK)
        await under_way.put((asyncio.get_running_loop().time() + road.delay, chunk))


async def _arrive(
    under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, road: _Road
) -> None:
    while True:
        due, chunk = await under_way.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        await road.passable.wait()
        if not chunk:
            with suppress(OSError):
                writer.write_eof()
            return
        writer.write(chunk)
        await writer.drain()
        if road.rate is not None:
            await asyncio.sleep(len(chunk) / road.rate)
