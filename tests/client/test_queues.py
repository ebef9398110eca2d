"""Consumers of queues, in both shells, with the real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amperage.client import AsyncClient, Message
from amperage.client.aio_stream import AsyncMessageStream
from tests.client.shells import NewClient
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

QUEUE = """
<Queue>
  <Name>{name}</Name><MessageType>json</MessageType>
  <LeasePeriod>1h</LeasePeriod><MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
</Queue>
"""
LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
ENDLESS = "<Queue><Name>endless</Name><MessageType>json</MessageType></Queue>"
BRIEF = """
<Queue>
  <Name>brief</Name><MessageType>json</MessageType>
  <LeasePeriod>300ms</LeasePeriod><MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
</Queue>
"""
NAMES = ("worked_off", "automatic", "returned", "slow", "left", "failed", "closed")

server = module_server(
    elements=f"<SOW>{''.join(QUEUE.format(name=name) for name in NAMES)}{ENDLESS}{BRIEF}</SOW>{LOG}"
)


@asynccontextmanager
async def session(new_client: NewClient, server: RunningServer) -> AsyncIterator[AsyncClient]:
    async with new_client() as client:
        await client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
        await client.logon()
        yield client


async def fill(client: AsyncClient, queue: str, count: int) -> None:
    await client.publish_all(queue, [b'{"n":%d}' % n for n in range(count)])
    await client.flush()


async def take(stream: AsyncMessageStream, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += await stream.batch(timeout=WAIT_SECONDS)
    return messages


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def left(client: AsyncClient, queue: str) -> list[int]:
    """What the queue would deliver to a consumer that comes now, up to ten messages."""
    await client.flush()
    await client.publish(queue, b'{"n":-1}')
    found: list[int] = []
    stream = await client.subscribe(queue, max_backlog=10)
    while -1 not in found:
        for message in await take(stream, 1):
            found.append(message.json()["n"])
            if found[-1] == -1:
                message.ack()
    await stream.unsubscribe()
    return found[:-1]


@pytest.mark.parametrize("queue", ["worked_off", "endless"])
def test_a_backlog_is_worked_off_message_by_message(
    new_client: NewClient, server: RunningServer, queue: str
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client, session(new_client, server) as other:
            await fill(other, queue, 25)
            stream = await client.subscribe(queue, max_backlog=4)
            seen: list[int] = []
            while len(seen) < 25:
                message = await anext(stream)
                assert message.is_leased
                seen.append(message.json()["n"])
                message.ack()
                assert not message.is_leased
                message.ack()  # has no effect
            assert seen == list(range(25))
            await stream.unsubscribe()
            assert await left(other, queue) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("ack_batch", [None, 1, 3, 100])
def test_messages_are_acknowledged_as_the_next_are_asked_for(
    new_client: NewClient, server: RunningServer, ack_batch: int | None
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client, session(new_client, server) as other:
            await fill(other, "automatic", 25)
            seen: list[int] = []
            async with await client.subscribe(
                "automatic", max_backlog=10, auto_ack=True, ack_batch=ack_batch, ack_delay=3600
            ) as stream:
                while len(seen) < 25:
                    seen.append((await anext(stream)).json()["n"])
            assert seen == list(range(25))
            assert await left(other, "automatic") == []

    asyncio.run(scenario())


def test_what_was_being_handled_when_a_handler_failed_goes_back(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client, session(new_client, server) as other:
            await fill(other, "failed", 5)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - that is how it looks
                async with await client.subscribe(
                    "failed", max_backlog=10, auto_ack=True
                ) as stream:
                    async for message in stream:
                        1 // (2 - message.json()["n"])
            await client.flush()
            assert await left(other, "failed") == [2, 3, 4]
            await other.sow_delete("failed", filter="1=1")

    asyncio.run(scenario())


def test_acknowledgements_do_not_wait_for_others_for_ever(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client:
            await fill(client, "slow", 11)
            stream = await client.subscribe("slow", max_backlog=10, ack_delay=0.01)
            first, *others = await take(stream, 10)
            first.ack()  # and the consumer is busy with something else
            await until(lambda: "1 waiting" in repr(stream))
            for message in (*others, *await take(stream, 1)):
                message.ack()
            await stream.unsubscribe()
            assert await left(client, "slow") == []

    asyncio.run(scenario())


def test_messages_can_be_given_back_and_expired(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client, session(new_client, server) as other:
            await fill(client, "returned", 4)
            stream = await client.subscribe("returned", max_backlog=10)
            zero, one, two, three = await take(stream, 4)
            elsewhere = await other.subscribe("returned", max_backlog=10)
            two.expire()
            three.cancel(delay=3600)
            await client.flush()
            zero.ack()
            await stream.unsubscribe()
            one.ack()  # its lease has ended, but nobody else has dealt with it yet
            again = await take(elsewhere, 1)
            assert [message.json()["n"] for message in again] == [1]
            again[0].cancel(0)
            (once_more,) = await take(elsewhere, 1)
            assert once_more.body == again[0].body
            once_more.ack()
            await other.sow_delete("returned", filter="1=1")
            with pytest.raises(ValueError, match="delay: expected seconds from 0 up, not -1"):
                once_more.cancel(-1)

    asyncio.run(scenario())


def test_a_message_can_be_kept_for_longer(new_client: NewClient, server: RunningServer) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client:
            await fill(client, "brief", 2)
            stream = await client.subscribe("brief", max_backlog=10)
            zero, one = await take(stream, 2)
            zero.extend(3600)
            one.extend()
            (again,) = await take(stream, 1)
            assert again.body == one.body
            zero.ack()
            await stream.unsubscribe()
            assert await client.sow_delete("brief", filter="1=1", options="expire") == 1
            with pytest.raises(ValueError, match="period: expected seconds from 0 up, not -1"):
                one.extend(-1)

    asyncio.run(scenario())


def test_what_was_not_taken_belongs_to_others_once_the_subscription_ends(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client, session(new_client, server) as other:
            await fill(client, "left", 4)
            stream = await client.subscribe("left", max_backlog=10)
            await until(lambda: "4 waiting" in repr(stream))
            (await anext(stream)).ack()
            await stream.unsubscribe()
            assert [message async for message in stream] == []
            assert await left(other, "left") == [1, 2, 3]
            await other.sow_delete("left", filter="1=1")

    asyncio.run(scenario())


def test_a_client_that_closes_acknowledges_first(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as other:
            async with session(new_client, server) as client:
                await fill(client, "closed", 3)
                stream = await client.subscribe("closed", max_backlog=10, ack_delay=3600)
                for message in await take(stream, 3):
                    message.ack()
            assert await left(other, "closed") == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_backlog": "10"}, "max_backlog: expected int, not str"),
        ({"max_backlog": -1}, "max_backlog: expected 0 to"),
        ({"ack_batch": 0}, "ack_batch: expected 1 or more, not 0"),
        ({"ack_delay": "1s"}, "ack_delay: expected seconds, not str"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(
    new_client: NewClient, server: RunningServer, wrong: dict[str, Any], said: str
) -> None:
    async def scenario() -> None:
        async with session(new_client, server) as client:
            with pytest.raises((TypeError, ValueError), match=said):
                await client.subscribe("worked_off", **wrong)

    asyncio.run(scenario())
