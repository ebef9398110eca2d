"""Streams, messages and clients as a program handles them, in both shells."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from amperage.client import FileBookmarkStore, TimedOutError
from amperage.client.message import Message
from amperage.wire.header import Header
from tests.client.scripted_peer import Answer, accept, scripted_peer
from tests.client.scripted_peer import Header as Keys
from tests.client.shells import HA_SHELLS, NewClient
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS


def deliver(*bodies: bytes, sids: str = "s") -> bytes:
    return b"".join(
        frame({"c": "p", "t": "t", "sids": sids, "bm": f"7|{number}|"}, body)
        for number, body in enumerate(bodies, 1)
    )


def answering(frames: bytes) -> Answer:
    def answer(header: Keys, body: bytes) -> list[bytes]:
        return accept(header, body) + ([frames] if header["c"] == "subscribe" else [])

    return answer


def test_a_stream_is_a_context_that_ends_its_subscription(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer(answering(deliver(b"1", b"2"))) as peer:
            async with new_client("mine") as client:
                assert repr(client).endswith("mine: not connected>")
                await client.connect(f"tcp://127.0.0.1:{peer.port}/amps/json")
                await client.logon()
                async with await client.subscribe("t", filter="/a = 1", sub_id="s") as stream:
                    message = await stream.next(timeout=WAIT_SECONDS)
                    assert message is not None
                    assert message.body == b"1"
                    assert "s: subscribe t where /a = 1, open" in repr(stream)
                    assert (await anext(stream)).body == b"2"
                    with pytest.raises(TimedOutError):
                        await stream.next(timeout=0.01)
                assert await stream.next() is None
                assert "ended" in repr(stream)
                assert "connected to tcp://127.0.0.1" in repr(client)
            assert peer.header("unsubscribe")["sub_id"] == "s"

    asyncio.run(scenario())


@pytest.mark.parametrize("shell", HA_SHELLS)
def test_a_message_counts_as_dealt_with_when_the_next_is_asked_for(
    shell: str, tmp_path: Path
) -> None:
    """A run that fails at a message begins with it when it is started again."""

    async def one_run(fail_at: bytes | None) -> tuple[str, list[bytes]]:
        store = FileBookmarkStore(tmp_path / "bookmarks")
        taken: list[bytes] = []
        with scripted_peer(answering(deliver(b"1", b"2", b"3"))) as peer:
            uri = f"tcp://127.0.0.1:{peer.port}/amps/json"
            async with HA_SHELLS[shell]([uri], bookmark_store=store) as client:
                await client.connect()
                with contextlib.suppress(ZeroDivisionError, TimedOutError):
                    async with await client.subscribe("t", bookmark="recent", sub_id="s") as stream:
                        while (message := await stream.next(timeout=0.5)) is not None:
                            taken.append(message.body)
                            1 / (message.body != fail_at)
            store.close()
            return peer.header("subscribe")["bm"], taken

    async def scenario() -> None:
        assert await one_run(b"2") == ("0", [b"1", b"2"])
        assert await one_run(b"2") == ("7|1|", [b"2"])
        assert await one_run(None) == ("7|1|", [b"2", b"3"])
        assert await one_run(None) == ("7|3|", [])

    asyncio.run(scenario())


def test_a_message_tells_what_it_is() -> None:
    header = Header(command="publish", topic="t", sids="s", timestamp="now", correlation_id="x")
    message = Message(header, b'{"n": [1, "\xc3\xbc"]}')
    assert message.json() == {"n": [1, "ü"]}
    assert (message.sub_id, message.timestamp, message.correlation_id) == ("s", "now", "x")
    assert repr(header) == (
        "Header(command='publish', topic='t', sids='s', correlation_id='x', timestamp='now')"
    )
    with pytest.raises(ValueError, match="Expecting value"):
        Message(header, b"no json").json()
