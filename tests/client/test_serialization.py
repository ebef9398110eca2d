"""Encoders of published values, decoders of received bodies, and what they say when they fail."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from amperage.client import AsyncHAClient, DecodeError, EncodeError, Message
from tests.client.shells import Connect
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS
from tests.support.waiting import WAIT_SECONDS

server = module_server(
    TOPICS
    + """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>logged</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
)


class Order(msgspec.Struct):
    id: int
    qty: int = 0


@dataclasses.dataclass
class Trade:
    id: int


def run(
    connect: Connect,
    server: RunningServer,
    scenario: Callable[[AsyncHAClient], Awaitable[None]],
    **options: Any,
) -> None:
    async def connected() -> None:
        uri = f"tcp://127.0.0.1:{server.port}/amps/json"
        async with await connect(uri, **options) as client:
            await scenario(client)

    asyncio.run(connected())


async def next_of(stream: Any) -> Message:
    message: Message | None = await stream.next(WAIT_SECONDS)
    assert message is not None
    return message


def test_values_are_published_and_received(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        orders = await client.subscribe("values", decoder=Order)
        plain = await client.subscribe("values")
        for value in (Order(1, 2), {"id": 1, "qty": 2}, b'{"id":1,"qty":2}', '{"id":1,"qty":2}'):
            await client.publish("values", value)
            assert (await next_of(orders)).value == Order(1, 2)
            assert (await next_of(plain)).value == {"id": 1, "qty": 2}, "the client's decoder"
        await client.publish_all("values", [Order(3, 4), {"id": 3, "qty": 4}])
        assert [(await next_of(orders)).value for _ in range(2)] == [Order(3, 4)] * 2
        await client.confirmed_publish("values", Trade(5))
        message = await next_of(orders)
        assert message.body == b'{"id":5}'
        assert message.decode(Trade) == Trade(5)

    run(connect, server, scenario, encoder="json", decoder="json")


def test_a_call_takes_precedence(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        as_list = await client.subscribe("calls", decoder=list[int])
        as_text = await client.subscribe("calls", decoder=str)
        as_bytes = await client.subscribe("calls")
        by_function = await client.subscribe("calls", decoder=len)
        await client.publish("calls", [1, 2], encoder=json.dumps)
        assert (await next_of(as_list)).value == [1, 2]
        assert (await next_of(as_text)).value == "[1, 2]"
        assert (await next_of(as_bytes)).value == b"[1, 2]"
        assert (await next_of(by_function)).value == 6

    run(connect, server, scenario, encoder="json")


def test_records_marks_and_deletions(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        await client.delta_publish("orders", Order(1, 7))
        await client.flush()
        records = await client.sow_and_subscribe("orders", filter="/id = 1", decoder=Order)
        values = [(message.command, message.value) async for message in first(records, 3)]
        assert values == [("group_begin", None), ("sow", Order(1, 7)), ("group_end", None)]
        assert [it.value async for it in await client.sow("orders", decoder=Order)] == [Order(1, 7)]
        assert await client.sow_delete("orders", body=Order(1)) == 1

    run(connect, server, scenario, encoder="json")


async def first(stream: Any, count: int) -> Any:
    for _ in range(count):
        yield await next_of(stream)


def test_a_body_that_cannot_be_decoded_is_named_and_the_stream_goes_on(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        logged = await client.subscribe("logged", bookmark="0", decoder=Order)
        await client.publish_all("logged", [b'{"id": "one"}', b'{"id": 2}'])
        wrong = await next_of(logged)
        with pytest.raises(DecodeError, match=r"topic logged, bookmark .*Expected `int`") as caught:
            wrong.value  # noqa: B018 - it raises
        assert str(wrong.bookmark) in str(caught.value)
        with pytest.raises(DecodeError, match="topic logged"):
            wrong.decode(Trade)
        assert (await next_of(logged)).value == Order(2)

    run(connect, server, scenario)


def test_a_value_that_cannot_be_encoded_is_not_published(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        with pytest.raises(EncodeError, match="topic values: the object cannot be encoded"):
            await client.publish("values", object())
        with pytest.raises(EncodeError, match="topic values: the object cannot be encoded"):
            await client.publish_all("values", [{"id": 1}, object()])
        returns_a_list: Any = lambda value: [value]  # noqa: E731
        with pytest.raises(TypeError, match="body: expected bytes or str, not list"):
            await client.publish("values", {}, encoder=returns_a_list)
        assert client.statistics.messages_published == 0

    run(connect, server, scenario, encoder="json")


def test_without_an_encoder_a_body_is_bytes_or_text(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        with pytest.raises(TypeError, match="body: expected bytes or str, not dict"):
            await client.publish("values", {})

    run(connect, server, scenario)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"encoder": "xml"}, ValueError, "encoder: expected \"json\", not 'xml'"),
        ({"decoder": "xml"}, ValueError, "decoder: expected \"json\", not 'xml'"),
        ({"encoder": Order}, TypeError, 'encoder: expected "json" or a function'),
        ({"encoder": 1}, TypeError, 'encoder: expected "json" or a function, not 1'),
        ({"decoder": 1}, TypeError, 'decoder: expected "json", a type or a function, not 1'),
    ],
)
def test_an_argument_that_is_none_is_refused(
    connect: Connect,
    server: RunningServer,
    options: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    async def scenario(_client: AsyncHAClient) -> None:
        raise AssertionError

    with pytest.raises(error, match=said):
        run(connect, server, scenario, **options)
