"""OAuth: where the issuer's keys come from, and what happens when they change or cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from server.security.http_client import HttpClientError
from server.security.oauth.bearer import IssuerKeys
from server.security.oauth.tokens import BearerTokenError, KeysError
from tests.engine.support import RecordingLog
from tests.security.oauth.support import EC, RSA, SHORT, TOKENS, log_on, module
from tests.support.issuer import claims, ec_key, issuing, key_set, signed
from tests.support.server import running_server


def test_keys_in_a_file_may_change(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(RSA))
    with running_server(tmp_path, elements=module(TOKENS.format(source="keys.json"))) as server:
        assert log_on(server, signed(RSA, claims()))["status"] == "success"
        assert log_on(server, signed(EC, claims()))["status"] == "failure"
        keys.write_bytes(key_set(EC))
        assert server.waits_for(
            lambda _: log_on(server, signed(EC, claims()))["status"] == "success"
        )
        assert log_on(server, signed(RSA, claims()))["status"] == "failure"
        keys.write_text("{")
        assert log_on(server, signed(EC, claims()))["status"] == "success"
        assert server.waits_for(
            lambda log: (
                log_on(server, signed(EC, claims()))["status"] == "success"
                and "keys.json: it is no key set" in log
            )
        )


@dataclass
class Source:
    """Where keys come from, by hand.

    Attributes:
        text: the keys; None while they cannot be read.
        reads: how often they have been asked for.
    """

    text: bytes | None
    reads: int = 0
    fresh_seconds: float = 300.0
    retry_seconds: float = 10.0
    max_age_seconds: float = 3600.0

    async def read(self) -> bytes:
        self.reads += 1
        await asyncio.sleep(0)
        if self.text is None:
            raise HttpClientError("it is down")
        return self.text


@dataclass
class Rotation:
    """The keys of a source, at a time that only moves when it is told to."""

    source: Source
    now: float = 1000.0
    log: RecordingLog = field(default_factory=RecordingLog)

    def __post_init__(self) -> None:
        self.keys = IssuerKeys(self.source, self.log, lambda: self.now)

    async def has(self, name: str) -> bool:
        """Whether there is a key."""
        try:
            return bool(await self.keys.find(name, "ES256"))
        except BearerTokenError:
            return False


def test_keys_are_read_again_when_they_may_have_changed() -> None:
    async def run() -> None:
        old, new = ec_key("old"), ec_key("new")
        rotation = Rotation(Source(key_set(old)))
        assert await rotation.has("old")
        rotation.source.text = key_set(new)
        assert not await rotation.has("new")  # they have just been read
        rotation.now += 10.0
        assert await rotation.has("new")
        assert not await rotation.has("old")
        assert rotation.source.reads == 2
        rotation.now += 299.0
        assert await rotation.has("new")
        assert rotation.source.reads == 2
        rotation.now += 1.0
        assert await rotation.has("new")
        assert rotation.source.reads == 3

    asyncio.run(run())


def test_many_who_ask_at_once_make_one_request() -> None:
    async def run() -> None:
        rotation = Rotation(Source(key_set(EC)))
        found = await asyncio.gather(*(rotation.has(name) for name in 500 * ["ec", "made-up"]))
        assert found == 500 * [True, False]
        assert rotation.source.reads == 1

    asyncio.run(run())


def test_keys_that_cannot_be_read_again_count_for_an_hour() -> None:
    async def run() -> None:
        rotation = Rotation(Source(key_set(EC)))
        assert await rotation.has("ec")
        rotation.source.text = None
        rotation.now += 3600.0
        assert await rotation.has("ec")
        rotation.now += 1.0
        with pytest.raises(KeysError):
            await rotation.has("ec")
        assert rotation.source.reads == 2
        rotation.source.text = key_set(EC)
        rotation.now += 10.0
        assert await rotation.has("ec")

    asyncio.run(run())


BAD_KEYS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "no JSON": (lambda: (200, {}, b"<html>"), "it is no key set"),
    "no keys": (lambda: (200, {}, b"{}"), "it is no key set"),
    "none that could be used": (lambda: (200, {}, key_set(SHORT)), "there is no public RSA"),
    "not found": (lambda: (404, {}, key_set(RSA)), "its status is 404"),
    "elsewhere": (lambda: (302, {"location": "http://127.0.0.1:1/"}, b""), "its status is 302"),
    "too much": (lambda: (200, {}, b" " * 2_000_000), "more than 1048576 bytes"),
    "compressed": (lambda: (200, {"content-encoding": "gzip"}, b"x"), "compressed"),
}


@pytest.mark.parametrize(("answer", "why"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_without_keys_nobody_gets_in(tmp_path: Path, answer: Callable[[], Any], why: str) -> None:
    with issuing() as issuer:
        issuer.answers["/keys"] = answer
        elements = module(TOKENS.format(source=f"{issuer.url}/keys?api=s3cret"))
        issuer.answers["/keys?api=s3cret"] = answer
        with running_server(tmp_path, elements=elements, level="trace") as server:
            ack = log_on(server, signed(RSA, claims()))
            assert ack["detail"] == "the credentials cannot be checked at the moment"
            assert server.logs(why)
            assert server.logs(f"localhost:{issuer.port}")
            assert "s3cret" not in server.log().partition("initialization completed")[2]
