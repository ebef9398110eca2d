"""Handlers that are coroutine functions: the asyncio clients await them, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from amperage.client import (
    AsyncClient,
    AsyncHAClient,
    CommandError,
    ConnectionEvent,
    ConnectionLostError,
    ConnectionState,
    GaveUpError,
    NotConnectedError,
    StoredMessage,
)
from tests.client.scripted_peer import Header, accept, scripted_peer
from tests.support.raw import frame

Connect = Callable[..., Any]


def refuse_even(header: Header, body: bytes) -> list[bytes]:
    if header["c"] != "p":
        return accept(header, body)
    ack: Header = {"c": "ack", "a": "persisted", "s": header["s"], "status": "success"}
    if int(body) % 2 == 0:
        ack |= {"status": "failure", "reason": "not entitled"}
    return [frame(ack)]


async def connected_once(uri: str, **given: Any) -> AsyncClient:
    client = AsyncClient(**given)
    await client.connect(uri)
    await client.logon()
    return client


async def connected_for_long(uri: str, **given: Any) -> AsyncHAClient:
    client = AsyncHAClient([uri], **given)
    await client.connect()
    return client


@pytest.mark.parametrize("connect", [connected_once, connected_for_long])
def test_flush_returns_when_refusals_have_been_handled(connect: Connect) -> None:
    """In their order, and one at a time, however long each takes."""
    handled: list[str] = []

    async def refused(message: StoredMessage, error: CommandError) -> None:
        handled.append(f"begin {message.body.decode()}")
        await asyncio.sleep(0.01)
        handled.append(f"end {message.body.decode()}: {error.reason}")

    async def scenario() -> None:
        with scripted_peer(refuse_even) as peer:
            uri = f"tcp://127.0.0.1:{peer.port}/amps/json"
            async with await connect(uri, on_refused=refused) as client:
                await client.publish_all("t", [b"1", b"2", b"3", b"4"])
                await client.flush()
                assert handled == [
                    "begin 2",
                    "end 2: not entitled",
                    "begin 4",
                    "end 4: not entitled",
                ]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_fails_ends_the_connection(is_async: bool) -> None:
    async def awaited(*_: object) -> None:
        raise LookupError("no such order")

    def plain(*_: object) -> None:
        raise LookupError("no such order")

    async def scenario() -> None:
        with scripted_peer(refuse_even) as peer:
            uri = f"tcp://127.0.0.1:{peer.port}/amps/json"
            async with await connected_once(
                uri, on_refused=awaited if is_async else plain
            ) as client:
                await client.publish("t", b"2")
                with pytest.raises(ConnectionLostError, match="on_refused has failed") as caught:
                    await client.flush()
                assert isinstance(caught.value.__cause__, LookupError)

    asyncio.run(scenario())


def test_states_are_told_in_their_order_and_to_the_end() -> None:
    states: list[ConnectionState] = []

    async def note(event: ConnectionEvent) -> None:
        await asyncio.sleep(0.01)
        states.append(event.state)

    async def scenario() -> None:
        with scripted_peer() as peer:
            uri = f"tcp://127.0.0.1:{peer.port}/amps/json"
            await (await connected_for_long(uri, on_state=note)).close()
        assert states == [
            ConnectionState.CONNECTED,
            ConnectionState.LOGGED_ON,
            ConnectionState.RECOVERED,
            ConnectionState.CLOSED,
        ]

    asyncio.run(scenario())


def test_a_handler_may_close_its_client() -> None:
    closed = asyncio.Event()
    clients: list[AsyncHAClient] = []

    async def close(event: ConnectionEvent) -> None:
        if event.state is ConnectionState.RECOVERED:
            await clients[0].close()
        elif event.state is ConnectionState.CLOSED:
            closed.set()

    async def scenario() -> None:
        with scripted_peer() as peer:
            client = AsyncHAClient([f"tcp://127.0.0.1:{peer.port}/amps/json"], on_state=close)
            clients.append(client)
            with contextlib.suppress(NotConnectedError):  # it may be closed before this returns
                await client.connect()
            async with asyncio.timeout(10):
                await closed.wait()

    asyncio.run(scenario())


def test_a_handler_of_states_that_fails_reaches_the_caller() -> None:
    async def fail(event: ConnectionEvent) -> None:
        if event.state is ConnectionState.RECOVERED:
            raise LookupError("no such state")

    async def scenario() -> None:
        with scripted_peer() as peer:
            client = await connected_for_long(
                f"tcp://127.0.0.1:{peer.port}/amps/json", on_state=fail
            )
            with pytest.raises(GaveUpError, match="no such state"):
                await (await client.subscribe("t")).next(timeout=10)
            await client.close()

    asyncio.run(scenario())
