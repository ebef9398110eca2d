"""What `flush` of a client without a publish store promises: processed, stored, or refused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from amperage.client import (
    AsyncClient,
    CommandError,
    InvalidTopicError,
    MessagesRefusedError,
    TimedOutError,
)
from tests.client.restarts import server_at, session
from tests.client.shells import NewClient
from tests.support.bad_disk import BadDisk
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS

ELEMENTS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./%n.sow</FileName></Topic>
  <Topic><Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./%n.sow</FileName></Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
"""Topics with records and log, with records alone, and with log alone."""

BROKEN = b'{"id":1'
"""What no delta can be merged with; a publish stores it with a key that is NULL."""


async def count(port: int, topic: str, at_least: int) -> int:
    """How many messages the topic has; of the log's, no more than are expected are read."""
    async with session(AsyncClient, port) as client:
        if topic != "events":
            return len([record async for record in await client.sow(topic)])
        replay = await client.subscribe(topic, bookmark="0", acks=["completed"])
        found = 0
        while found < at_least:
            message = await replay.next(timeout=WAIT_SECONDS)
            if message is None or message.command == "ack":
                break
            found += 1
        return found


@pytest.mark.parametrize("topic", ["orders", "quotes", "events"])
def test_what_is_flushed_survives_a_kill(new_client: NewClient, tmp_path: Path, topic: str) -> None:
    port = free_port()

    async def scenario() -> None:
        with server_at(tmp_path, port, ELEMENTS) as server:
            async with session(new_client, port) as client:
                for n in range(2000):
                    await client.publish(topic, b'{"id":%d}' % n)
                await client.flush()
                server.stop(signal.SIGKILL)
        with server_at(tmp_path, port, ELEMENTS):
            assert await count(port, topic, 2000) == 2000

    asyncio.run(scenario())


def test_flush_waits_for_stable_storage(new_client: NewClient, tmp_path: Path) -> None:
    disk, port = BadDisk(tmp_path / "switch"), free_port()

    async def scenario() -> None:
        with server_at(tmp_path, port, ELEMENTS, disk):
            async with session(new_client, port) as client:
                await client.flush()
                disk.break_down(".journal")
                await client.publish("events", b'{"id":1}')
                with pytest.raises(TimedOutError, match=r"did not come within 1\.5 seconds"):
                    await client.flush(timeout=1.5)
                disk.recover()
                await client.flush()

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with server_at(tmp_path_factory.mktemp("server"), port, ELEMENTS):
        yield port


def test_flush_raises_for_refused_publishes_once(new_client: NewClient, port: int) -> None:
    async def scenario() -> None:
        async with session(new_client, port) as client:
            await client.publish_all("orders", [b'{"id":5}', BROKEN])
            await client.publish("orders", BROKEN, delta=True)
            await client.publish_all("/AMPS/forbidden", [b"1", b"2"])
            await client.publish("orders", b'{"id":6}')
            with pytest.raises(MessagesRefusedError) as caught:
                await client.flush()
            error = caught.value
            assert (error.count, type(error.first)) == (3, CommandError)
            assert str(error).startswith("3 messages were refused; the first: publish: invalid me")
            records = await client.sow("orders", filter="/id IN (5, 6)")
            assert len([record async for record in records]) == 2
            await client.flush()
            await client.publish("/AMPS/forbidden", b"")
            with pytest.raises(MessagesRefusedError, match="1 message was refused") as caught:
                await client.flush()
            assert isinstance(caught.value.first, InvalidTopicError)

    asyncio.run(scenario())


def test_refusals_that_have_been_told_are_not_told_again(new_client: NewClient, port: int) -> None:
    """Neither those of confirmed publishes nor duplicates, which the log has already."""

    async def scenario() -> None:
        async with session(new_client, port) as client:
            with pytest.raises(CommandError):
                await client.confirmed_publish("orders", BROKEN, delta=True)
            with pytest.raises(CommandError):
                await client.confirmed_publish("orders", BROKEN, "processed", delta=True)
            for _ in range(2):
                await client.publish("events", b"1", sequence=7)
            await client.flush()

    asyncio.run(scenario())
