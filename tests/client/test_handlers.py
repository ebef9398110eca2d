"""Subscriptions with `on_message`, and `drain`, which ends them in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amperage.client import (
    NOW,
    AsyncHAClient,
    ConnectionLostError,
    Message,
    MessagesRefusedError,
    NotConnectedError,
    SlowStreamError,
    TimedOutError,
)
from tests.client.scripted_peer import HANG_UP, Header, accept, scripted_peer
from tests.client.shells import CONNECTS, Connect, NewClient
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

server = module_server(
    """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./%n.sow</FileName></Topic>
  <Queue><Name>jobs</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(jobs|logged)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
)
ASYNCIO = CONNECTS["asyncio"]


def run(
    connect: Connect, server: RunningServer, scenario: Callable[[AsyncHAClient], Awaitable[None]]
) -> None:
    async def connected() -> None:
        uri = f"tcp://127.0.0.1:{server.port}/amps/json"
        async with await connect(uri, timeout=WAIT_SECONDS) as client:
            await scenario(client)

    asyncio.run(connected())


class Gate:
    """Lets a handler pass, when it is opened; for threads and for tasks."""

    def __init__(self, connect: Connect) -> None:
        self._is_async = connect is ASYNCIO
        self._thread_event = threading.Event()
        self._task_event = asyncio.Event()

    def open(self) -> None:
        self._thread_event.set()
        self._task_event.set()

    def guarded(self, handler: Callable[[Message], object]) -> Any:
        async def wait_and_call(message: Message) -> None:
            await self._task_event.wait()
            handler(message)

        def block_and_call(message: Message) -> None:
            assert self._thread_event.wait(WAIT_SECONDS)
            handler(message)

        return wait_and_call if self._is_async else block_and_call


def test_each_message_is_handled_in_order(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        bodies: list[bytes] = []
        stream = await client.subscribe("t", on_message=lambda it: bodies.append(it.body))
        expected = [b'{"n": %d}' % number for number in range(1000)]
        await client.publish_all("t", expected)
        await client.flush()
        await stream.unsubscribe()
        await stream.join(WAIT_SECONDS)
        assert bodies == expected

    run(connect, server, scenario)


def test_records_are_handled_and_then_changes(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        await client.publish("orders", '{"id": 1}')
        await client.flush()
        commands: list[str] = []
        stream = await client.sow_and_subscribe(
            "orders", filter="/id = 1", on_message=lambda it: commands.append(it.command)
        )
        await client.publish("orders", '{"id": 1}')
        await client.flush()
        await stream.unsubscribe()
        await stream.join(WAIT_SECONDS)
        assert commands == ["group_begin", "sow", "group_end", "publish"]

    run(connect, server, scenario)


def test_a_handler_that_waits_does_not_hold_up_another(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        gate = Gate(connect)
        late: list[bytes] = []
        waiting = await client.subscribe(
            "t", on_message=gate.guarded(lambda it: late.append(it.body))
        )
        iterated = await client.subscribe("t")
        await client.publish_all("t", [b"{}"] * 10)
        for _ in range(10):
            assert await iterated.next(WAIT_SECONDS) is not None
        assert late == []
        gate.open()
        await waiting.unsubscribe()
        await waiting.join(WAIT_SECONDS)
        assert len(late) == 10

    run(connect, server, scenario)


def test_a_handler_that_fails_ends_its_subscription(
    connect: Connect, server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: Message) -> None:
        raise KeyError(message.text)

    async def scenario(client: AsyncHAClient) -> None:
        stream = await client.subscribe("t", sub_id="failing", on_message=fail)
        await client.publish("t", '{"no": 1}')
        with pytest.raises(KeyError, match="no"):
            await stream.join(WAIT_SECONDS)
        assert client.statistics.streams == 0
        await client.flush()

    run(connect, server, scenario)
    assert "the handler of failing has failed" in caplog.text


def test_a_lost_connection_is_logged_and_raised(
    new_client: NewClient, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "p":
            return [HANG_UP]
        return accept(header, body)

    async def scenario(port: int) -> None:
        async with new_client() as client:
            await client.connect(f"tcp://127.0.0.1:{port}/amps/json")
            await client.logon()
            stream = await client.subscribe("t", sub_id="lost", on_message=lambda _: None)
            await client.publish("t", b"1")
            with pytest.raises(ConnectionLostError):
                await stream.join(WAIT_SECONDS)

    with scripted_peer(answer) as peer:
        asyncio.run(scenario(peer.port))
    assert "the subscription lost has ended" in caplog.text


def test_a_stream_without_a_handler_cannot_be_joined(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        stream = await client.subscribe("t")
        with pytest.raises(RuntimeError, match="no on_message handler"):
            await stream.join()
        wrong: Any = "no function"
        with pytest.raises(TypeError, match="on_message: expected a"):
            await client.subscribe("t", on_message=wrong)

    run(connect, server, scenario)


def test_a_stream_that_is_not_read_ends_and_others_go_on(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        topic, total = "logged", 10_000
        slow = await client.subscribe(
            topic, sub_id="slow", bookmark=NOW, filter="/n >= 0", max_waiting=100
        )
        other = await client.subscribe(topic, filter="/n >= 0", max_waiting=total)
        handled: list[bytes] = []
        await client.subscribe(topic, on_message=lambda it: handled.append(it.body))
        bodies = [b'{"n": %d}' % number for number in range(total)]
        await client.publish_all(topic, bodies)
        await client.flush()
        assert client.statistics.streams == 2
        received: list[bytes] = []
        while len(received) < total:
            received += [message.body for message in await other.batch(WAIT_SECONDS)]
        assert received == bodies
        taken: list[Message] = []
        with pytest.raises(SlowStreamError, match=r"slow has ended: more than 100 messages") as it:
            await _take_all(slow, taken)
        assert 100 < len(taken) < total, "bounded by the limit and one read"
        assert [message.body for message in taken] == bodies[: len(taken)]
        assert str(taken[-1].bookmark) in str(it.value)
        rest = await client.subscribe(topic, sub_id="slow", bookmark=str(taken[-1].bookmark))
        message = await rest.next(WAIT_SECONDS)
        assert message is not None
        assert message.body == bodies[len(taken)]

    run(connect, server, scenario)


async def _take_all(stream: Any, taken: list[Message]) -> None:
    async for message in stream:
        taken.append(message)  # noqa: PERF401 - what was taken before it raises counts


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)]
)
def test_a_limit_is_a_number(
    connect: Connect, server: RunningServer, limit: Any, error: type[Exception]
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        with pytest.raises(error, match="max_waiting: expected"):
            await client.subscribe("t", max_waiting=limit)

    run(connect, server, scenario)


def test_drain_finishes_handlers_and_publishes(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        gate = Gate(connect)
        handled: list[bytes] = []

        def answer(message: Message) -> None:
            handled.append(message.body)

        stored: list[bool] = []
        await client.subscribe("drained", on_message=gate.guarded(answer))
        iterated = await client.subscribe("drained")
        await client.publish_all(
            "drained", [b"{}"] * 20, on_delivery=lambda report: stored.append(report.is_stored)
        )
        await client.flush()
        gate.open()
        await client.drain(timeout=WAIT_SECONDS)
        assert len(handled) == len(stored) == 20
        assert not client.is_connected
        assert len([message async for message in iterated]) == 20
        with pytest.raises(NotConnectedError):
            await client.publish("drained", b"{}")
        await client.connect()
        await client.subscribe("drained")

    run(connect, server, scenario)


def test_drain_returns_unprocessed_messages_to_their_queue(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        gate = Gate(connect)
        handled: list[str] = []
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(message: Message) -> None:
            handled.append(message.text)

        guarded = gate.guarded(work)

        def note(message: Message) -> Any:
            loop.call_soon_threadsafe(begun.set)
            return guarded(message)

        await client.publish_all("jobs", ['{"n": 1}', '{"n": 2}', '{"n": 3}'])
        await client.flush()
        await client.subscribe("jobs", max_backlog=3, auto_ack=True, on_message=note)
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        drained = asyncio.create_task(_drain(client, connect))
        while not _is_draining(client):
            await asyncio.sleep(0.01)
        gate.open()
        await drained
        assert handled == ['{"n": 1}']
        await client.connect()
        left = await client.subscribe("jobs", max_backlog=3, auto_ack=True)
        for number in (2, 3):
            message = await left.next(WAIT_SECONDS)
            assert message is not None
            assert message.json() == {"n": number}
        await left.done()
        await client.flush_acks()

    run(connect, server, scenario)


async def _drain(client: AsyncHAClient, connect: Connect) -> None:
    if connect is ASYNCIO:
        await client.drain(timeout=WAIT_SECONDS)
    else:  # it blocks
        await asyncio.to_thread(asyncio.run, client.drain(timeout=WAIT_SECONDS))


def _is_draining(client: Any) -> bool:
    return all(worker._is_stopped for worker in client._workers)


def test_drain_takes_no_longer_than_it_may(connect: Connect, server: RunningServer) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        gate = Gate(connect)
        await client.subscribe("slow", sub_id="slow", on_message=gate.guarded(lambda _: None))
        await client.publish("slow", b"{}")
        await client.flush()
        with pytest.raises(TimedOutError, match="the end of the handler of slow"):
            await client.drain(timeout=0.1)
        assert not client.is_connected
        gate.open()

    run(connect, server, scenario)


def test_drain_raises_refusals_and_failures(connect: Connect, server: RunningServer) -> None:
    def fail(_message: Message) -> None:
        raise KeyError("failed")

    async def scenario(client: AsyncHAClient) -> None:
        await client.publish("/AMPS/no", b"{}")
        with pytest.raises(MessagesRefusedError):
            await client.drain(timeout=WAIT_SECONDS)
        await client.connect()
        gate = Gate(connect)
        await client.subscribe("failing", on_message=gate.guarded(fail))
        await client.publish("failing", b"{}")
        await client.flush()
        gate.open()
        with pytest.raises(KeyError, match="failed"):
            await client.drain(timeout=WAIT_SECONDS)
        assert not client.is_connected

    run(connect, server, scenario)


def test_no_subscription_begins_while_a_client_drains(
    connect: Connect, server: RunningServer
) -> None:
    async def scenario(client: AsyncHAClient) -> None:
        gate = Gate(connect)
        await client.subscribe("slow", on_message=gate.guarded(lambda _: None))
        await client.publish("slow", b"{}")
        await client.flush()
        drained = asyncio.create_task(_drain(client, connect))
        while client.statistics.streams:
            await asyncio.sleep(0.01)
        with pytest.raises(NotConnectedError, match="takes no new subscriptions"):
            await client.subscribe("slow")
        gate.open()
        await drained

    run(connect, server, scenario)
