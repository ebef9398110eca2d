"""Both shells that stay connected, against servers that follow a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amperage.client import (
    Backoff,
    BookmarkStore,
    ConnectionEvent,
    ConnectionLostError,
    ConnectionState,
    Credentials,
    GaveUpError,
    PublishStore,
    PublishStoreFullError,
    Server,
    StoredMessage,
    TimedOutError,
    parse_uri,
)
from amperage.client.errors import CommandError
from tests.client.scripted_peer import HANG_UP, Header, ScriptedPeer, accept, refuse, scripted_peer
from tests.client.shells import NewHAClient
from tests.support.raw import frame
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS

Script = Callable[[Header, bytes], list[bytes]]

BATCH_SIZE = Backoff(first=0.001, longest=0.01)


def uri(peer: ScriptedPeer) -> str:
    return f"tcp://127.0.0.1:{peer.port}/amps/json"


def store_everything(header: Header, _body: bytes) -> list[bytes]:
    """Accept everything, and persist what is published."""
    if header["c"] == "p" and "cid" not in header:
        return [frame({"c": "ack", "a": "persisted", "s": header["s"], "status": "success"})]
    keys = {"s": header["s"]} if "s" in header else {}
    return [
        frame({"c": "ack", "cid": header["cid"], "a": ack, "status": "success"} | keys)
        for ack in header.get("a", "").split(",")
        if ack
    ]


class HangingUp:
    """A script that hangs up after so many commands, once, or refuses to go on at all.

    Args:
        commands: after how many commands of the first connection to hang up; the last of them is
            not answered.
    """

    def __init__(self, commands: int) -> None:
        self._left = commands

    def __call__(self, header: Header, body: bytes) -> list[bytes]:
        self._left -= 1
        return [HANG_UP] if self._left == 0 else store_everything(header, body)


@pytest.mark.parametrize("commands", range(1, 9))
def test_a_session_goes_on_wherever_the_server_hangs_up(
    new_ha_client: NewHAClient, commands: int
) -> None:
    async def scenario() -> None:
        with scripted_peer(HangingUp(commands)) as peer:
            async with new_ha_client([uri(peer)], "mine", backoff=BATCH_SIZE) as client:
                await client.connect()
                stream = await client.subscribe("t", filter="/a = 1", sub_id="s")
                await client.publish("t", b"1")
                await client.publish_all("t", [b"2", b"3"])
                await client.confirmed_publish("t", b"4")
                await client.flush()
                await stream.unsubscribe()
                assert [it async for it in stream] == []
                assert len(client.publish_store) == 0
            logons = [header for header, _ in peer.received if header["c"] == "logon"]
            assert [logon["client_name"] for logon in logons] == ["mine", "mine"]
            by_number = {it["s"]: body for it, body in peer.received if it["c"] == "p"}
            assert by_number == {1: b"1", 2: b"2", 3: b"3", 4: b"4"}
            filters = [it["f"] for it, _ in peer.received if it["c"] == "subscribe"]
            assert set(filters) == {"/a = 1"}

    asyncio.run(scenario())


def test_a_stream_goes_on_with_the_next_server(new_ha_client: NewHAClient) -> None:
    def deliver(body: bytes, *then: bytes) -> Script:
        message = frame({"c": "p", "t": "t", "sids": "s"}, body)

        def answer(header: Header, received: bytes) -> list[bytes]:
            more = [message, *then] if header["c"] == "subscribe" else []
            return [*store_everything(header, received), *more]

        return answer

    async def scenario() -> None:
        with scripted_peer(deliver(b"1", HANG_UP)) as one, scripted_peer(deliver(b"2")) as two:
            async with new_ha_client([uri(one), uri(two)], backoff=BATCH_SIZE) as client:
                await client.connect()
                stream = await client.subscribe("t", sub_id="s")
                assert [(await anext(stream)).body for _ in range(2)] == [b"1", b"2"]
                assert client.server == parse_uri(uri(two))

    asyncio.run(scenario())


def test_each_server_gets_its_own_credentials(new_ha_client: NewHAClient) -> None:
    class Ticket:
        def __init__(self, text: str) -> None:
            self._text = text

        def authenticate(self, given: Credentials) -> Credentials:
            return Credentials(given.user, self._text)

        def retry(self, answered: Credentials) -> Credentials:
            return answered

    async def scenario() -> None:
        with scripted_peer(lambda it, _: refuse(it, "auth failure")) as one, scripted_peer() as two:
            servers = [
                Server(parse_uri(uri(peer)), Ticket(name))
                for peer, name in ((one, "one"), (two, "two"))
            ]
            async with new_ha_client(servers, backoff=BATCH_SIZE) as client:
                await client.connect()
            assert [peer.header("logon")["pw"] for peer in (one, two)] == ["one", "two"]

    asyncio.run(scenario())


def test_the_states_of_the_connection_are_told(new_ha_client: NewHAClient) -> None:
    states: list[ConnectionState] = []
    errors: list[str] = []

    def note(event: ConnectionEvent) -> None:
        states.append(event.state)
        if event.error is not None:
            errors.append(str(event.error))

    async def scenario() -> None:
        with scripted_peer(HangingUp(2)) as peer:
            nobody = f"tcp://127.0.0.1:{free_port()}/amps"
            async with new_ha_client(
                [nobody, uri(peer)], backoff=BATCH_SIZE, on_state=note
            ) as client:
                await client.connect()
                await client.flush()

    asyncio.run(scenario())
    begin = [ConnectionState.CONNECTED, ConnectionState.LOGGED_ON, ConnectionState.RECOVERED]
    lost = ConnectionState.DISCONNECTED
    assert states == [lost, *begin, lost, lost, *begin, ConnectionState.CLOSED]
    assert ["refused" in error for error in errors] == [True, False, True]


def test_a_silent_server_is_left(new_ha_client: NewHAClient) -> None:
    """Only the first connection falls silent; the second beats once a second."""
    starts = 0

    def answer(header: Header, body: bytes) -> list[bytes]:
        nonlocal starts
        if header.get("o", "").startswith("start"):
            starts += 1
        beats = [frame({"c": "heartbeat"})] if starts > 1 and header["c"] == "heartbeat" else []
        if header["c"] == "subscribe" and starts > 1:
            beats.append(frame({"c": "p", "t": "t", "sids": "s"}, b"alive"))
        return [*accept(header), *beats]

    async def scenario() -> None:
        lost: list[str] = []
        with scripted_peer(answer) as peer:
            async with new_ha_client(
                [uri(peer)],
                backoff=BATCH_SIZE,
                heartbeat=1,
                on_state=lambda event: lost.append(str(event.error)) if event.error else None,
            ) as client:
                await client.connect()
                stream = await client.subscribe("t", sub_id="s")
                assert (await anext(stream)).text == "alive"
        assert lost == ["the server was silent for 2 seconds"]

    asyncio.run(scenario())


def test_whoever_waits_is_told_when_there_are_no_more_attempts(new_ha_client: NewHAClient) -> None:
    async def scenario() -> None:
        with scripted_peer(HangingUp(4)) as peer:  # logon, heartbeat, subscribe, flush
            limited = Backoff(first=0.001, longest=0.001, attempts=2)
            async with new_ha_client([uri(peer)], backoff=limited) as client:
                await client.connect()
                stream = await client.subscribe("t")
                peer.close()
                with pytest.raises(GaveUpError, match=r"in 2 attempts; .* connection refused"):
                    await client.flush()
                with pytest.raises(GaveUpError):
                    await anext(stream)
                with pytest.raises(GaveUpError):
                    await client.publish("t", b"")

    asyncio.run(scenario())


def test_publish_flush_raises_when_there_are_no_more_attempts(new_ha_client: NewHAClient) -> None:
    async def scenario() -> None:
        with scripted_peer(HangingUp(3)) as peer:  # logon, heartbeat, publish
            limited = Backoff(first=0.001, longest=0.001, attempts=2)
            async with new_ha_client([uri(peer)], backoff=limited) as client:
                await client.connect()
                peer.close()
                await client.publish("t", b"")
                with pytest.raises(GaveUpError, match=r"in 2 attempts; .* connection refused"):
                    await client.publish_flush(WAIT_SECONDS)

    asyncio.run(scenario())


def test_a_logon_that_every_server_refuses_is_told(new_ha_client: NewHAClient) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda it, _: refuse(it, "auth failure")) as peer:
            async with new_ha_client([uri(peer)]) as client:
                with pytest.raises(GaveUpError, match="every server has refused the logon"):
                    await client.connect()
                with pytest.raises(GaveUpError):
                    await client.flush()

    asyncio.run(scenario())


def test_waiting_for_a_connection_ends_in_time(new_ha_client: NewHAClient) -> None:
    async def scenario() -> None:
        client = new_ha_client([f"tcp://127.0.0.1:{free_port()}/amps"], timeout=0.05)
        expected = (
            r"a session did not come within 0\.05 seconds: .* connection refused; attempts go"
        )
        with pytest.raises(TimedOutError, match=expected):
            await client.connect()
        with pytest.raises(TimedOutError):
            await client.flush()
        await client.close()
        with pytest.raises(ConnectionLostError, match="not connected"):
            await client.flush()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["publish_store", "bookmark_store"])
def test_a_store_is_used_by_one_client_at_a_time(new_ha_client: NewHAClient, kind: str) -> None:
    """The next client may have it when the first is closed, or is not there any more."""
    stores: dict[str, Any] = {"publish_store": PublishStore(), "bookmark_store": BookmarkStore()}
    given = {kind: stores[kind]}

    async def scenario() -> None:
        with scripted_peer(store_everything) as peer:
            first, second = (new_ha_client([uri(peer)], name, **given) for name in ("one", "two"))
            await first.connect()
            await first.connect()
            with pytest.raises(ValueError, match=rf"{kind}: <.*HAClient one: .* is using this sto"):
                await second.connect()
            await first.close()
            await second.connect()
            await second.close()

    asyncio.run(scenario())


def test_heartbeats_are_exchanged_unless_they_are_switched_off(
    new_ha_client: NewHAClient,
) -> None:
    async def intervals(**given: Any) -> list[str]:
        with scripted_peer(store_everything) as peer:
            async with new_ha_client([uri(peer)], **given) as client:
                await client.connect()
                await client.flush()
            return [it["o"] for it, _ in peer.received if it["c"] == "heartbeat"]

    async def scenario() -> None:
        assert await intervals() == ["start,15"]
        assert await intervals(heartbeat=3) == ["start,3"]
        assert await intervals(heartbeat=None) == []

    asyncio.run(scenario())


def test_messages_published_without_a_connection_are_sent_with_the_next(
    new_ha_client: NewHAClient,
) -> None:
    store = PublishStore()

    async def scenario() -> None:
        client = new_ha_client(
            [f"tcp://127.0.0.1:{free_port()}/amps"], timeout=0.01, publish_store=store
        )
        with pytest.raises(TimedOutError):
            await client.connect()
        await client.publish("t", b"kept")
        await client.close()
        with scripted_peer(store_everything) as peer:
            async with new_ha_client([uri(peer)], publish_store=store) as client:
                await client.connect()
                await client.flush()
            assert peer.bodies("p") == [b"kept"]

    asyncio.run(scenario())


def test_a_full_store_makes_publishers_wait_for_a_while(new_ha_client: NewHAClient) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda it, _: [] if it["c"] == "p" else accept(it)) as peer:
            store = PublishStore(capacity=1)
            async with new_ha_client(
                [uri(peer)], timeout=0.05, publish_store=store, backoff=BATCH_SIZE
            ) as client:
                await client.connect(timeout=WAIT_SECONDS)
                await client.publish("t", b"1")
                with pytest.raises(PublishStoreFullError, match="1 messages are not known"):
                    await client.publish("t", b"2")

    asyncio.run(scenario())


def test_a_refused_message_is_told(new_ha_client: NewHAClient) -> None:
    told: list[tuple[bytes, str]] = []

    def note(message: StoredMessage, error: CommandError) -> None:
        told.append((message.body, error.reason))

    def answer(header: Header, body: bytes) -> list[bytes]:
        if body != b"2":
            return store_everything(header, body)
        failure = {"c": "ack", "a": "persisted", "s": header["s"], "status": "failure"}
        return [frame(failure | {"reason": "not entitled"})]

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_ha_client([uri(peer)], on_refused=note) as client:
                await client.connect()
                await client.publish_all("t", [b"1", b"2", b"3"])
                await client.flush()

    asyncio.run(scenario())
    assert told == [(b"2", "not entitled")]


def test_a_query_and_a_deletion_that_were_cut_off_are_told(new_ha_client: NewHAClient) -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "sow_delete":
            return [HANG_UP]
        if header["c"] == "sow":
            content = b'{"k":"1","l":1}a'
            found = frame({"c": "sow", "query_id": header["query_id"], "t": "t", "bs": 1}, content)
            return [*accept(header), found, HANG_UP]
        return store_everything(header, body)

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_ha_client([uri(peer)], backoff=BATCH_SIZE) as client:
                await client.connect()
                records = await client.sow("t")
                assert (await anext(records)).text == "a"
                with pytest.raises(ConnectionLostError):
                    await anext(records)
                with pytest.raises(ConnectionLostError):
                    await client.sow_delete("t", filter="1=1")
                await client.flush()

    asyncio.run(scenario())


def test_a_defect_of_an_authenticator_reaches_whoever_waits(new_ha_client: NewHAClient) -> None:
    class Broken:
        def authenticate(self, given: Credentials) -> Credentials:
            raise LookupError("no ticket")

        def retry(self, answered: Credentials) -> Credentials:
            return answered

    async def scenario() -> None:
        with scripted_peer() as peer:
            async with new_ha_client([uri(peer)], authenticator=Broken()) as client:
                with pytest.raises(GaveUpError, match="no ticket") as caught:
                    await client.connect()
                assert isinstance(caught.value.__cause__, LookupError)

    asyncio.run(scenario())
