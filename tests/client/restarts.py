"""Servers of a test that are at one port, one after the other, and sessions with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from amperage.client import AsyncClient
from tests.client.shells import NewClient
from tests.support.forked import Prepare
from tests.support.server import CONFIGURATION, RunningServer, running_configuration
from tests.support.waiting import WAIT_SECONDS


@contextmanager
def server_at(
    directory: Path, port: int, elements: str, prepare: Prepare | None = None
) -> Iterator[RunningServer]:
    """A server with these elements in its configuration."""
    text = CONFIGURATION.format(port=port, elements=elements, transports="", level="info")
    with running_configuration(directory, text, port, prepare) as server:
        yield server


@asynccontextmanager
async def session(new_client: NewClient, port: int) -> AsyncIterator[AsyncClient]:
    """A client that has logged on."""
    async with new_client(timeout=WAIT_SECONDS) as client:
        await client.connect(f"tcp://127.0.0.1:{port}/amps/json")
        await client.logon()
        yield client
