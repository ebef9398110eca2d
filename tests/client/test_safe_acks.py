"""Acknowledgements that a program has waited for: no crash brings their messages back."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from amperage.client import (
    AsyncClient,
    ConnectionLostError,
    TimedOutError,
)
from amperage.client.aio_stream import AsyncMessageStream
from tests.client.restarts import server_at, session
from tests.client.shells import PATIENT, NewClient, NewHAClient
from tests.support.bad_disk import BadDisk
from tests.support.queues import elements
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS

ELEMENTS = elements({"jobs": {"LeasePeriod": "1h"}})


@pytest.fixture
def port() -> int:
    """Where servers of a test are, one after the other."""
    return free_port()


async def fill(port: int, count: int) -> None:
    async with session(AsyncClient, port) as client:
        await client.publish_all("in-jobs", [b'{"n":%d}' % n for n in range(count - 1)])
        await client.confirmed_publish("in-jobs", b'{"n":%d}' % (count - 1))


async def acknowledge(stream: AsyncMessageStream, count: int) -> None:
    """Take so many messages, and acknowledge them."""
    left = count
    while left:
        messages = await stream.batch(timeout=WAIT_SECONDS)
        for message in messages[:left]:
            message.ack()
        left -= len(messages[:left])


async def left(port: int) -> list[int]:
    """What the queue has still, as a consumer gets it."""
    async with session(AsyncClient, port) as client:
        stream = await client.subscribe("jobs", max_backlog=100)
        await client.confirmed_publish("in-jobs", b'{"n":-1}')
        found: list[int] = []
        while -1 not in found:
            found += [message.json()["n"] for message in await stream.batch(timeout=WAIT_SECONDS)]
        return found[:-1]


def test_what_is_safe_survives_a_kill(new_client: NewClient, tmp_path: Path, port: int) -> None:
    """Whatever has not been sent when it is asked for."""

    async def scenario() -> None:
        with server_at(tmp_path, port, ELEMENTS) as server:
            await fill(port, 20)
            async with session(new_client, port) as client:
                stream = await client.subscribe("jobs", max_backlog=50, ack_delay=3600)
                await acknowledge(stream, 12)
                await client.flush_acks()
                server.stop(signal.SIGKILL)
                with pytest.raises(ConnectionLostError):
                    await client.flush_acks()
        with server_at(tmp_path, port, ELEMENTS):
            assert await left(port) == list(range(12, 20))

    asyncio.run(scenario())


def test_what_is_not_on_stable_storage_is_not_safe(
    new_client: NewClient, tmp_path: Path, port: int
) -> None:
    disk = BadDisk(tmp_path / "switch")

    async def scenario() -> None:
        with server_at(tmp_path, port, ELEMENTS, disk):
            await fill(port, 3)
            async with session(new_client, port) as client:
                stream = await client.subscribe("jobs", max_backlog=10)
                disk.break_down(".journal")
                await acknowledge(stream, 3)
                with pytest.raises(TimedOutError):
                    await client.flush_acks(timeout=1.5)
                disk.recover()
                await client.flush_acks()
            assert await left(port) == []

    asyncio.run(scenario())


def test_what_a_killed_server_has_not_read_is_sent_again(
    new_ha_client: NewHAClient, tmp_path: Path, port: int
) -> None:
    """By a client that stays connected: to the next server, before messages come again."""

    async def scenario() -> None:
        with ExitStack() as servers:
            first = servers.enter_context(server_at(tmp_path, port, ELEMENTS))
            await fill(port, 20)
            uri = f"tcp://127.0.0.1:{port}/amps/json"
            async with new_ha_client([uri], backoff=PATIENT, timeout=WAIT_SECONDS) as client:
                await client.connect()
                stream = await client.subscribe("jobs", max_backlog=50, ack_batch=1)
                messages = await stream.batch(timeout=WAIT_SECONDS)
                while len(messages) < 20:
                    messages += await stream.batch(timeout=WAIT_SECONDS)
                first.process.send_signal(signal.SIGSTOP)
                for message in messages[:12]:
                    message.ack()  # sent to a server that does not read it
                await asyncio.sleep(0)
                first.stop(signal.SIGKILL)
                servers.enter_context(server_at(tmp_path, port, ELEMENTS))
                await client.flush_acks()
                again = await stream.batch(timeout=WAIT_SECONDS)
                while len(again) < 8:
                    again += await stream.batch(timeout=WAIT_SECONDS)
                assert [message.json()["n"] for message in again] == list(range(12, 20))
            assert await left(port) == list(range(12, 20))

    asyncio.run(scenario())
