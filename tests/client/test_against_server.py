"""Both shells with the real server."""

from __future__ import annotations

import asyncio

import pytest

from amperage.client import (
    BadFilterError,
    BadRegexTopicError,
    InvalidTopicError,
    SubscriptionExistsError,
    TimedOutError,
)
from tests.client.shells import NewClient
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

server = module_server()


@pytest.fixture
def uri(server: RunningServer) -> str:
    return f"tcp://127.0.0.1:{server.port}/amps/json"


def test_published_messages_reach_every_matching_subscription_in_order(
    new_client: NewClient, uri: str
) -> None:
    async def scenario() -> None:
        async with new_client() as publisher, new_client() as subscriber:
            for client in (publisher, subscriber):
                await client.connect(uri)
                await client.logon()
            everything = await subscriber.subscribe("orders")
            by_pattern = await subscriber.subscribe("^ord")
            large = await subscriber.subscribe("orders", filter="/qty > 998")
            await publisher.publish_all("orders", [b'{"qty":%d}' % n for n in range(1000)])
            await publisher.confirmed_publish("orders", b'{"qty":5000}', "processed")
            bodies: list[bytes] = []
            while len(bodies) < 1001:
                bodies += [message.body for message in await everything.batch(timeout=WAIT_SECONDS)]
            assert bodies == [b'{"qty":%d}' % n for n in [*range(1000), 5000]]
            assert [
                message.body for message in await by_pattern.batch(timeout=WAIT_SECONDS)
            ] == bodies
            found = [message.text for message in await large.batch(timeout=WAIT_SECONDS)]
            assert found == ['{"qty":999}', '{"qty":5000}']
            await everything.unsubscribe()
            assert [message async for message in everything] == []

    asyncio.run(scenario())


def test_the_server_says_who_it_is(new_client: NewClient, uri: str) -> None:
    async def scenario() -> None:
        async with new_client("introduced") as client:
            await client.connect(uri)
            assert (await client.logon()).version

    asyncio.run(scenario())


def test_refusals_have_their_types_and_explanations(new_client: NewClient, uri: str) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(uri)
            await client.logon()
            with pytest.raises(BadFilterError) as caught:
                await client.subscribe("t", filter="/a = ")
            assert caught.value.detail
            with pytest.raises(BadRegexTopicError):
                await client.subscribe("^orders[")
            with pytest.raises(InvalidTopicError):
                await client.confirmed_publish("/AMPS/mine", b"{}", "processed")
            await client.subscribe("t", sub_id="mine")
            with pytest.raises(SubscriptionExistsError):
                await client.subscribe("t", sub_id="mine")
            await client.subscribe("u", sub_id="mine", options="replace")

    asyncio.run(scenario())


def test_heartbeats_keep_a_quiet_connection_alive(new_client: NewClient, uri: str) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(uri)
            await client.logon()
            stream = await client.subscribe("quiet")
            await client.heartbeat(1)
            with pytest.raises(TimedOutError):  # later than the server would have given it up
                await stream.next(timeout=4)
            await client.flush()

    asyncio.run(scenario())
