"""Clients that stay connected, with real servers that are killed and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from amperage.client import (
    AsyncClient,
    CommandError,
    ConnectionEvent,
    ConnectionState,
    InvalidTopicError,
    StoredMessage,
)
from tests.client.shells import PATIENT, NewHAClient
from tests.support.server import CONFIGURATION, RunningServer, free_port, running_configuration
from tests.support.waiting import WAIT_SECONDS


@contextmanager
def server_at(directory: Path, port: int) -> Iterator[RunningServer]:
    text = CONFIGURATION.format(port=port, elements="", transports="", level="info")
    with running_configuration(directory, text, port) as server:
        yield server


async def publish_elsewhere(port: int, body: bytes) -> None:
    async with AsyncClient() as client:
        await client.connect(f"tcp://127.0.0.1:{port}/amps/json")
        await client.logon()
        await client.publish("t", body)
        await client.flush()


def test_a_server_that_is_killed_and_started_again_is_found_again(
    new_ha_client: NewHAClient, tmp_path: Path
) -> None:
    port = free_port()
    states: list[ConnectionState] = []

    def note(event: ConnectionEvent) -> None:
        if event.error is None:
            states.append(event.state)

    async def scenario() -> None:
        with ExitStack() as servers:
            killed = servers.enter_context(server_at(tmp_path, port))
            async with new_ha_client(
                [f"tcp://127.0.0.1:{port}/amps/json"],
                backoff=PATIENT,
                heartbeat=1,
                timeout=WAIT_SECONDS,
                on_state=note,
            ) as client:
                await client.connect()
                stream = await client.subscribe("t", filter="/n > 0", sub_id="mine")
                await client.publish("t", b'{"n":1}')
                assert (await anext(stream)).text == '{"n":1}'
                killed.stop(signal.SIGKILL)
                for number in range(2, 200):  # the first of them go to a dead socket
                    await client.publish("t", b'{"n":%d}' % number)
                servers.enter_context(server_at(tmp_path, port))
                await client.flush()
                assert len(client.publish_store) == 0
                await publish_elsewhere(port, b'{"n":0}')
                await publish_elsewhere(port, b'{"n":1000}')
                numbers: list[str] = []
                while not numbers or numbers[-1] != '{"n":1000}':
                    numbers += [
                        message.text for message in await stream.batch(timeout=WAIT_SECONDS)
                    ]
                assert numbers == [f'{{"n":{number}}}' for number in [*range(2, 200), 1000]]

    asyncio.run(scenario())
    one = [ConnectionState.CONNECTED, ConnectionState.LOGGED_ON, ConnectionState.RECOVERED]
    # A server that is being killed may still take a connection, which leads to nothing.
    led_on = [
        state
        for state, following in zip(states, [*states[1:], None], strict=True)
        if state is not ConnectionState.CONNECTED or following is ConnectionState.LOGGED_ON
    ]
    assert led_on == [*one, *one, ConnectionState.CLOSED]


def test_a_second_server_takes_over_from_one_that_is_killed(
    new_ha_client: NewHAClient, tmp_path: Path
) -> None:
    ports = (free_port(), free_port())

    async def scenario() -> None:
        with ExitStack() as servers:
            first, _ = (
                servers.enter_context(server_at(_made(tmp_path / str(port)), port))
                for port in ports
            )
            uris = [f"tcp://127.0.0.1:{port}/amps/json" for port in ports]
            async with new_ha_client(uris, backoff=PATIENT, timeout=WAIT_SECONDS) as client:
                await client.connect()
                stream = await client.subscribe("t")
                first.stop(signal.SIGKILL)
                await client.flush()
                assert client.server is not None
                assert client.server.port == ports[1]
                await publish_elsewhere(ports[1], b"{}")
                assert (await anext(stream)).text == "{}"

    asyncio.run(scenario())


def test_messages_that_the_server_refuses_are_told_one_by_one(
    new_ha_client: NewHAClient, tmp_path: Path
) -> None:
    port = free_port()
    told: list[tuple[int, bytes, str]] = []

    def note(message: StoredMessage, error: CommandError) -> None:
        told.append((message.sequence, message.body, error.reason))

    async def scenario() -> None:
        uri = f"tcp://127.0.0.1:{port}/amps/json"
        with server_at(tmp_path, port):
            async with new_ha_client([uri], timeout=WAIT_SECONDS, on_refused=note) as client:
                await client.connect()
                for topic in ("t", "/AMPS/mine", "t"):
                    await client.publish(topic, topic.encode())
                with pytest.raises(InvalidTopicError):
                    await client.confirmed_publish("/AMPS/mine", b"confirmed")
                await client.flush()
                assert len(client.publish_store) == 0

    asyncio.run(scenario())
    assert told == [
        (2, b"/AMPS/mine", "invalid topic"),
        (4, b"confirmed", "invalid topic"),
    ]


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
