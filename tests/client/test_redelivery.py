"""Messages that a queue delivers again to a consumer that has been busy for too long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amperage.client import AsyncClient, Message
from amperage.client.aio_stream import AsyncMessageStream
from tests.client.scripted_peer import Header, ScriptedPeer, accept, scripted_peer
from tests.client.shells import NewClient
from tests.support.raw import frame
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

QUEUE = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType>
    <LeasePeriod>200ms</LeasePeriod><MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
server = module_server(elements=QUEUE)


def copies(*bodies: str) -> bytes:
    """Messages of a queue: their number, and a letter that tells their copies apart."""
    return b"".join(
        frame({"c": "p", "t": "q", "sids": "s", "bm": f"7|{body[0]}|", "lp": "2030"}, body.encode())
        for body in bodies
    )


class Peer:
    """A server that delivers copies in batches, each before it answers a `flush`."""

    def __init__(self, *batches: bytes) -> None:
        self._batches = iter(batches)

    def __call__(self, header: Header, body: bytes) -> list[bytes]:
        late = [next(self._batches, b"")] if header["c"] == "flush" else []
        return [*late, *accept(header, body)]


@asynccontextmanager
async def consumer(
    new_client: NewClient, port: int, queue: str
) -> AsyncIterator[tuple[AsyncClient, AsyncMessageStream]]:
    async with new_client() as client:
        await client.connect(f"tcp://127.0.0.1:{port}/amps/json")
        await client.logon()
        yield client, await client.subscribe(queue, sub_id="s", max_backlog=10)


async def next_batch(client: AsyncClient, stream: AsyncMessageStream) -> list[Message]:
    await client.flush()
    return await stream.batch(timeout=WAIT_SECONDS)


def waiting(stream: AsyncMessageStream) -> int:
    found = re.search(r"(\d+) waiting", repr(stream))
    assert found
    return int(found[1])


def told(peer: ScriptedPeer) -> list[tuple[str, str | None]]:
    """What the queue was told: bookmarks and options."""
    return [
        (header["bm"], header.get("o"))
        for header, _ in peer.received
        if header["c"] == "sow_delete"
    ]


def test_a_slow_worker_is_not_handed_again_what_it_has_acknowledged(
    new_client: NewClient, server: RunningServer
) -> None:
    async def scenario() -> None:
        async with consumer(new_client, server.port, "jobs") as (client, stream):
            await client.publish_all("jobs", [b'{"n":%d}' % n for n in range(5)])
            seen = [await anext(stream)]
            async with asyncio.timeout(WAIT_SECONDS):
                while waiting(stream) < 8:  # it is busy for more than a lease
                    await asyncio.sleep(0.01)
            seen[0].ack()
            await client.publish("jobs", b'{"n":-1}')
            while len(seen) < 6:
                seen.append(await anext(stream))
                assert seen[-1].is_leased
                seen[-1].ack()
                await client.flush()
            # Where a lease ends between two acknowledgements, that message comes behind the last.
            assert {message.json()["n"] for message in seen} == {0, 1, 2, 3, 4, -1}

    asyncio.run(scenario())


def test_of_copies_that_wait_the_last_is_handed_out(new_client: NewClient) -> None:
    async def scenario() -> None:
        script = Peer(copies("1a", "2a", "3a", "1b", "2b", "1c"))
        with scripted_peer(script) as peer:
            async with consumer(new_client, peer.port, "q") as (client, stream):
                found = await next_batch(client, stream)
                assert [message.text for message in found] == ["3a", "2b", "1c"]
                assert all(message.is_leased for message in found)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("say", "option", "later", "times"),
    [
        ("ack", None, ["2d"], 2),
        ("expire", "expire", ["2d"], 2),
        ("cancel", "cancel", ["1c", "2d"], 1),
    ],
)
def test_what_was_said_of_a_message_holds_for_its_copies(
    new_client: NewClient, say: str, option: str | None, later: list[str], times: int
) -> None:
    async def scenario() -> None:
        script = Peer(copies("1a"), copies("1b"), copies("1c", "2d"))
        with scripted_peer(script) as peer:
            async with consumer(new_client, peer.port, "q") as (client, stream):
                [message] = await next_batch(client, stream)
                await client.flush()  # another copy comes, and waits
                getattr(message, say)()
                found = await next_batch(client, stream)
                assert [message.text for message in found] == later
                await client.flush()
                assert told(peer) == [("7|1|", option)] * times, "once more for a late copy"

    asyncio.run(scenario())


def test_of_copies_in_hand_one_is_acknowledged(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer(Peer(copies("1a"), copies("1b"))) as peer:
            async with consumer(new_client, peer.port, "q") as (client, stream):
                [first] = await next_batch(client, stream)
                [second] = await next_batch(client, stream)
                first.ack()
                assert not second.is_leased
                second.ack()
                await client.flush()
                assert told(peer) == [("7|1|", None)]

    asyncio.run(scenario())
