"""`connect` and `connect_async`: from a URI, or the environment, to a session in one call."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from amperage.client import (
    CredentialsError,
    GaveUpError,
    InvalidUriError,
    PasswordAuthenticator,
    Server,
    ServerChooser,
    TimedOutError,
    parse_uri,
)
from tests.client.scripted_peer import Header, ScriptedPeer, accept, refuse, scripted_peer
from tests.client.shells import Connect
from tests.support.server import RunningServer, free_port, module_server
from tests.support.waiting import WAIT_SECONDS, comes_true

VARIABLES = ("AMPERAGE_URL", "AMPERAGE_USER", "AMPERAGE_PASSWORD", "AMPERAGE_PASSWORD_FILE")
server = module_server()


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def uri_of(port: int, user: str = "") -> str:
    return f"tcp://{user}127.0.0.1:{port}/amps/json"


def test_one_call_connects_and_logs_on(connect: Connect, server: RunningServer) -> None:
    async def scenario() -> None:
        async with await connect(uri_of(server.port), name="in-one-call") as client:
            assert client.name == "in-one-call"
            async with await client.subscribe("one-call") as messages:
                await client.publish("one-call", b"{}")
                message = await messages.next(WAIT_SECONDS)
                assert message is not None
                assert message.body == b"{}"

    asyncio.run(scenario())


def test_the_environment_names_the_server(
    connect: Connect, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPERAGE_URL", f" {uri_of(free_port())}, {uri_of(server.port)} ")

    async def scenario() -> None:
        async with await connect() as client:
            assert client.server == parse_uri(uri_of(server.port)), "the one that is there"
            await client.flush()

    asyncio.run(scenario())


@pytest.mark.parametrize("listed", [list, tuple, ",".join, ServerChooser])
def test_one_of_several_servers_is_enough(
    connect: Connect, server: RunningServer, listed: Any
) -> None:
    async def scenario() -> None:
        servers = listed([uri_of(free_port()), uri_of(server.port)])
        async with await connect(servers) as client:
            await client.flush()

    asyncio.run(scenario())


def logon_of(
    connect: Connect, user: str = "", url: Any = None, **options: Any
) -> tuple[str | None, str | None]:
    """The user and the password that a server is shown."""

    async def scenario(peer: ScriptedPeer) -> None:
        server = uri_of(peer.port, user) if url is None else url(uri_of(peer.port, user))
        async with await connect(server, **options):
            pass

    with scripted_peer() as peer:
        asyncio.run(scenario(peer))
        header = peer.header("logon")
        return header.get("user_id"), header.get("pw")


def test_the_environment_has_the_credentials_that_the_uri_lacks(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert logon_of(connect) == (None, None)
    monkeypatch.setenv("AMPERAGE_PASSWORD", "secret")
    assert logon_of(connect, "ann@") == ("ann", "secret")
    monkeypatch.setenv("AMPERAGE_USER", "ann")
    assert logon_of(connect) == ("ann", "secret")
    assert logon_of(connect, url=parse_uri) == ("ann", "secret")
    assert logon_of(connect, url=lambda uri: [Server(parse_uri(uri))]) == ("ann", "secret")
    assert logon_of(connect, "ann@") == ("ann", "secret")
    assert logon_of(connect, "ann:own@") == ("ann", "own")
    assert logon_of(connect, "bob@") == ("bob", None), "it is Ann's password"
    assert logon_of(connect, url=lambda uri: ServerChooser([uri])) == (None, None)
    assert logon_of(connect, authenticator=PasswordAuthenticator()) == (None, None)


def test_a_password_file_is_read_again_for_each_logon(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv("AMPERAGE_USER", "ann")
    monkeypatch.setenv("AMPERAGE_PASSWORD_FILE", str(file))
    file.write_text("old\n")

    async def scenario(peer: ScriptedPeer) -> None:
        client = await connect(uri_of(peer.port))
        file.write_text("new\n")
        await client.connect()
        await client.close()

    with scripted_peer() as peer:
        asyncio.run(scenario(peer))
        logons = [header["pw"] for header, _ in peer.received if header["c"] == "logon"]
    assert logons == ["old", "new"]


@pytest.mark.parametrize(
    ("variables", "url", "error", "said"),
    [
        ({}, None, InvalidUriError, "no server: pass a URI, such as .*, or set AMPERAGE_URL"),
        ({"AMPERAGE_URL": " "}, None, InvalidUriError, "set AMPERAGE_URL"),
        ({"AMPERAGE_URL": "ann:secret@h:1"}, None, InvalidUriError, "AMPERAGE_URL: .*begins with"),
        ({}, [], InvalidUriError, "url: expected at least one server"),
        ({}, "tcp://h", InvalidUriError, "tcp://h: expected host:port"),
        ({}, 9007, TypeError, "url: expected a list of URIs, not one int"),
        (
            {"AMPERAGE_PASSWORD": "secret"},
            "tcp://h:1",
            CredentialsError,
            "AMPERAGE_PASSWORD is set without a user: set AMPERAGE_USER",
        ),
        (
            {"AMPERAGE_USER": "a", "AMPERAGE_PASSWORD": "secret", "AMPERAGE_PASSWORD_FILE": "f"},
            "tcp://h:1",
            CredentialsError,
            "both AMPERAGE_PASSWORD and AMPERAGE_PASSWORD_FILE are set",
        ),
    ],
)
def test_a_mistake_is_named_without_the_password(
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    url: Any,
    error: type[Exception],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=said) as caught:
        asyncio.run(_connected(connect, url))
    assert "secret" not in str(caught.value)


async def _connected(connect: Connect, url: Any, **options: Any) -> None:
    await (await connect(url, **options)).close()


def test_a_server_that_is_not_there_is_named_and_no_attempt_goes_on(connect: Connect) -> None:
    port = free_port()
    with pytest.raises(TimedOutError, match=r"connection refused$") as caught:
        asyncio.run(_connected(connect, uri_of(port), name="in-vain", timeout=0.1))
    assert str(port) in str(caught.value)
    assert comes_true(lambda: "amps in-vain" not in {it.name for it in threading.enumerate()})


def test_a_refused_logon_is_raised_at_once(connect: Connect) -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "logon":
            return refuse(header, "auth failure", "who is ann?")
        return accept(header, body)

    with (
        scripted_peer(answer) as peer,
        pytest.raises(GaveUpError, match=r"auth failure: who is ann\?"),
    ):
        asyncio.run(_connected(connect, uri_of(peer.port), timeout=WAIT_SECONDS))
