"""Delivery reports: each message's outcome, told once; and the statistics of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amperage.client import (
    AsyncClient,
    AsyncHAClient,
    ClientError,
    ConnectionLostError,
    DeliveryReport,
    InvalidTopicError,
    NotConnectedError,
)
from tests.client.restarts import server_at
from tests.client.scripted_peer import HANG_UP, Header, accept, scripted_peer
from tests.client.shells import HA_SHELLS, PATIENT, SHELLS, NewClient, NewHAClient
from tests.support.server import RunningServer, free_port, module_server
from tests.support.sow import TOPICS
from tests.support.waiting import WAIT_SECONDS

server = module_server(TOPICS)
KINDS = [f"{shell} {kind}" for shell in SHELLS for kind in ("one connection", "reconnecting")]


@asynccontextmanager
async def session(kind: str, port: int, **options: Any) -> AsyncIterator[AsyncClient]:
    shell, _, rest = kind.partition(" ")
    uri = f"tcp://127.0.0.1:{port}/amps/json"
    client: Any
    if rest == "reconnecting":
        async with HA_SHELLS[shell]([uri], backoff=PATIENT, **options) as client:
            await client.connect()
            yield client
    else:
        async with SHELLS[shell](**options) as client:
            await client.connect(uri)
            await client.logon()
            yield client


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_reported_before_flush_returns(kind: str, server: RunningServer) -> None:
    reports: list[DeliveryReport] = []

    async def scenario() -> None:
        async with session(kind, server.port) as client:
            await client.publish("orders", '{"id": 1}', on_delivery=reports.append)
            await client.publish("/AMPS/no", b"{}", on_delivery=reports.append)
            await client.publish(
                "orders", b'{"id": 2}', correlation_id="b", on_delivery=reports.append
            )
            await client.delta_publish("orders", b'{"id": 2}', on_delivery=reports.append)
            await client.publish_all(
                "orders", [b'{"id": 3}', b'{"id": 4}'], on_delivery=reports.append
            )
            await client.publish("orders", b'{"id": 5}')
            await client.flush()
            assert len(reports) == 6, "each one, and none of them raised"
            await client.flush()

    asyncio.run(scenario())
    stored = [report for report in reports if report.is_stored]
    assert sorted(report.body for report in stored) == [
        *(b'{"id": 1}', b'{"id": 2}', b'{"id": 2}', b'{"id": 3}', b'{"id": 4}')
    ]
    assert {report.topic for report in stored} == {"orders"}
    [refused] = [report for report in reports if not report.is_stored]
    assert (refused.topic, refused.body) == ("/AMPS/no", b"{}")
    assert isinstance(refused.error, InvalidTopicError)


def test_numbers_of_the_application_are_reported(
    new_client: NewClient, server: RunningServer
) -> None:
    reports: list[DeliveryReport] = []

    async def scenario() -> None:
        async with new_client("own-numbers") as client:
            await client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
            await client.logon()
            for number in (1, 2, 3):
                await client.publish(
                    "orders", b'{"id": 1}', sequence=number, on_delivery=reports.append
                )
            await client.flush()

    asyncio.run(scenario())
    assert [report.error for report in reports] == [None] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_without_an_answer_is_reported_when_the_client_is_closed(kind: str) -> None:
    reports: list[DeliveryReport] = []

    def answer(header: Header, body: bytes) -> list[bytes]:
        return [] if header["c"] == "p" else accept(header, body)

    async def scenario(port: int) -> None:
        async with session(kind, port) as client:
            await client.publish_all("t", [b"1", b"2"], on_delivery=reports.append)
            assert client.statistics.outstanding == 2

    with scripted_peer(answer) as peer:
        asyncio.run(scenario(peer.port))
    assert [(report.body, type(report.error)) for report in reports] == [
        (b"1", NotConnectedError),
        (b"2", NotConnectedError),
    ]


def test_a_message_without_an_answer_is_reported_when_the_connection_ends(
    new_client: NewClient,
) -> None:
    reports: list[DeliveryReport] = []

    def answer(header: Header, body: bytes) -> list[bytes]:
        return [HANG_UP] if header["c"] == "p" else accept(header, body)

    async def scenario(port: int) -> None:
        async with new_client() as client:
            await client.connect(f"tcp://127.0.0.1:{port}/amps/json")
            await client.logon()
            assert client.is_connected
            await client.publish("t", b"1", on_delivery=reports.append)
            with pytest.raises(ConnectionLostError):
                await client.flush(timeout=WAIT_SECONDS)
            assert not client.is_connected

    with scripted_peer(answer) as peer:
        asyncio.run(scenario(peer.port))
    assert [type(report.error) for report in reports] == [ConnectionLostError]


def test_a_message_is_reported_by_the_server_that_is_back(
    new_ha_client: NewHAClient, tmp_path: Path
) -> None:
    reports: list[DeliveryReport] = []
    port = free_port()

    async def scenario() -> None:
        with ExitStack() as servers:
            killed = servers.enter_context(server_at(tmp_path, port, ""))
            uri = f"tcp://127.0.0.1:{port}/amps/json"
            async with new_ha_client([uri], backoff=PATIENT, timeout=WAIT_SECONDS) as client:
                assert not client.is_connected
                await client.connect()
                assert client.is_connected
                killed.process.kill()
                killed.process.wait()
                await client.publish("t", b"{}", on_delivery=reports.append)
                assert reports == []
                servers.enter_context(server_at(tmp_path, port, ""))
                await client.publish_flush(WAIT_SECONDS)
                assert [report.error for report in reports] == [None]
                assert client.statistics.reconnects == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "asyncio" in kind])
def test_reports_of_an_asyncio_client_are_awaited(kind: str, server: RunningServer) -> None:
    told: list[DeliveryReport] = []

    async def report(it: DeliveryReport) -> None:
        await asyncio.sleep(0)
        told.append(it)

    async def scenario() -> None:
        async with session(kind, server.port) as client:
            await client.publish_all("t", [b"{}"] * 10, on_delivery=report)
            await client.flush()
            assert len(told) == 10

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "asyncio reconnecting"])
def test_a_failing_callback_ends_the_client(kind: str, server: RunningServer) -> None:
    def fail(_report: DeliveryReport) -> None:
        raise RuntimeError("no report")

    async def scenario() -> None:
        async with session(kind, server.port) as client:
            await client.publish("t", b"{}", on_delivery=fail)
            await client.flush()
            await client.flush()

    with pytest.raises(ClientError, match="no report"):
        asyncio.run(scenario())


def test_a_callback_is_a_function(new_client: NewClient, server: RunningServer) -> None:
    async def coroutine(_report: DeliveryReport) -> None:
        raise AssertionError

    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
            await client.logon()
            wrong: list[Any] = ["no", 1] if new_client is AsyncClient else ["no", coroutine]
            for one in wrong:
                with pytest.raises(TypeError, match="on_delivery: expected a"):
                    await client.publish("t", b"{}", on_delivery=one)
                with pytest.raises(TypeError, match="on_delivery: expected a"):
                    await client.publish_all("t", [b"{}"], on_delivery=one)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_count_the_traffic(kind: str, server: RunningServer) -> None:
    async def scenario() -> None:
        async with session(kind, server.port) as client:
            topic = f"counted {kind}"
            start = client.statistics
            assert (start.messages_published, start.messages_received, start.streams) == (0, 0, 0)
            stream = await client.subscribe(topic)
            await client.publish(topic, b'{"a": 1}')
            await client.publish_all(topic, [b'{"a": 1}'] * 9)
            await client.publish(topic, b'{"a": 1}', correlation_id="c")
            await client.confirmed_publish(topic, b'{"a": 1}')
            await client.flush()
            after = client.statistics
            assert after.messages_published == after.messages_received == after.waiting == 12
            assert after.bytes_sent > start.bytes_sent + 12 * len('{"a": 1}')
            assert after.bytes_received > start.bytes_received + 12 * len('{"a": 1}')
            assert (after.reconnects, after.outstanding, after.streams) == (0, 0, 1)
            await stream.batch()
            await stream.unsubscribe()
            assert (client.statistics.waiting, client.statistics.streams) == (0, 0)
        assert client.statistics.messages_received == 12
        assert not client.is_connected

    asyncio.run(scenario())


def test_records_of_a_query_are_counted(new_client: NewClient, server: RunningServer) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
            await client.logon()
            await client.publish_all("orders", [b'{"id": %d}' % number for number in range(25)])
            await client.flush()
            records = [it async for it in await client.sow("orders")]
            assert client.statistics.messages_received == len(records) >= 25

    asyncio.run(scenario())


def test_a_client_that_was_never_connected_has_statistics(new_ha_client: NewHAClient) -> None:
    client: AsyncHAClient = new_ha_client(["tcp://h:1"])
    assert not client.is_connected
    assert set(vars_of(client.statistics)) == {0}


def vars_of(statistics: Any) -> list[int]:
    return [getattr(statistics, name) for name in statistics.__slots__]
