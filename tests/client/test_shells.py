"""Both shells, against a server that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from amperage.client import (
    BadFilterError,
    ConnectError,
    ConnectionLostError,
    Credentials,
    LogonError,
    MessagesRefusedError,
    NameInUseError,
    ProtocolError,
    TimedOutError,
)
from tests.client.scripted_peer import HANG_UP, Header, accept, refuse, scripted_peer
from tests.client.shells import NewClient
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS

Script = Callable[[Header, bytes], list[bytes]]


def uri(port: int, user: str = "") -> str:
    return f"tcp://{user}127.0.0.1:{port}/amps/json"


def on(command: str, *then: bytes) -> Script:
    """Accept everything; one command has consequences."""

    def answer(header: Header, body: bytes) -> list[bytes]:
        return accept(header, body) + (list(then) if header["c"] == command else [])

    return answer


def test_a_session_of_publishing(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer() as peer:
            async with new_client("pricing") as client:
                await client.connect(uri(peer.port, "ann:secret@"))
                await client.logon(correlation_id="abc")
                await client.publish("t", b"1")
                await client.delta_publish("t", b"2", sow_key="k")
                await client.publish_all("t", (b"%d" % number for number in range(1500)))
                await client.confirmed_publish("t", b"3", "processed")
                await client.acknowledge("q", ["1|1|"])
                await client.flush()
            logon = peer.header("logon")
            assert (logon["client_name"], logon["user_id"], logon["pw"]) == (
                "pricing",
                "ann",
                "secret",
            )
            assert (logon["mt"], logon["x"]) == ("json", "abc")
            assert logon["version"] == f"amperage {metadata.version('amperage')}:python"
            numbers = [b"%d" % number for number in range(1500)]
            assert peer.bodies("p") == [b"1", *numbers, b"3"]
            assert peer.bodies("delta_publish") == [b"2"]
            assert peer.header("sow_delete")["bm"] == "1|1|"

    asyncio.run(scenario())


def test_messages_are_handed_out_as_they_come(new_client: NewClient) -> None:
    message = frame({"c": "p", "t": "t", "sids": "2"}, b"m")

    async def scenario() -> None:
        with scripted_peer(on("subscribe", message, message, message)) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t", filter="/a = 1")
                assert (await anext(stream)).text == "m"
                taken = 1
                while taken < 3:
                    taken += len(await stream.batch(timeout=WAIT_SECONDS))
                with pytest.raises(TimedOutError):
                    await stream.batch(timeout=0.01)
                await stream.unsubscribe()
                assert [it async for it in stream] == []
            assert peer.commands() == ["logon", "subscribe", "unsubscribe"]

    asyncio.run(scenario())


def test_a_query_is_iterated_to_its_end(new_client: NewClient) -> None:
    content = b'{"k":"1","l":1}a{"k":"2","l":1}b'
    answers = (
        frame({"c": "group_begin", "query_id": "2"}),
        frame({"c": "sow", "query_id": "2", "t": "t", "bs": 2}, content),
        frame({"c": "group_end", "query_id": "2"}),
    )

    async def scenario() -> None:
        with scripted_peer(on("sow", *answers)) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                found = [(it.sow_key, it.text) async for it in await client.sow("t")]
                assert found == [("1", "a"), ("2", "b")]

    asyncio.run(scenario())


def test_a_deletion_says_how_many_records_it_hit(new_client: NewClient) -> None:
    def answer(header: Header, _body: bytes) -> list[bytes]:
        if header["c"] != "sow_delete":
            return accept(header)
        success = {"c": "ack", "cid": header["cid"], "status": "success"}
        statistics = success | {"a": "stats", "records_deleted": "7"}
        return [frame(success | {"a": "processed"}), frame(statistics)]

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                assert await client.sow_delete("t", filter="1=1") == 7

    asyncio.run(scenario())


def test_a_refusal_is_raised_where_the_command_was_given(new_client: NewClient) -> None:
    def answer(header: Header, _body: bytes) -> list[bytes]:
        if header["c"] == "subscribe":
            return refuse(header, "bad filter", "at 3: expected a value")
        return accept(header)

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                with pytest.raises(BadFilterError, match="at 3: expected a value"):
                    await client.subscribe("t", filter="/a")
                await client.flush()

    asyncio.run(scenario())


def test_a_refused_logon_is_told_even_when_the_server_hangs_up_on_it(
    new_client: NewClient,
) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda it, _: [*refuse(it, "name in use"), HANG_UP]) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                with pytest.raises(NameInUseError):
                    await client.logon()

    asyncio.run(scenario())


def test_an_authenticator_answers_as_often_as_the_server_asks(new_client: NewClient) -> None:
    class Counting:
        def authenticate(self, given: Credentials) -> Credentials:
            return Credentials(given.user, "ticket-0")

        def retry(self, answered: Credentials) -> Credentials:
            return Credentials(answered.user, f"{answered.password}+")

    def answer(header: Header, _body: bytes) -> list[bytes]:
        if header["pw"] == "ticket-0++":
            return accept(header)
        again = {"user_id": header["user_id"], "pw": header["pw"]}
        return [
            frame({"c": "ack", "cid": header["cid"], "a": "processed", "status": "retry"} | again)
        ]

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client(authenticator=Counting()) as client:
                await client.connect(uri(peer.port, "ann@"))
                await client.logon()
            assert [header["pw"] for header, _ in peer.received] == [
                "ticket-0",
                "ticket-0+",
                "ticket-0++",
            ]
            async with new_client() as client:
                await client.connect(uri(peer.port, "ann:x@"))
                with pytest.raises(LogonError, match="rounds"):
                    await client.logon()

    asyncio.run(scenario())


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_said(
    new_client: NewClient,
) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda *_: []) as peer:
            async with new_client(timeout=0.01) as client:
                await client.connect(uri(peer.port), timeout=WAIT_SECONDS)
                with pytest.raises(TimedOutError, match="the answer to logon"):
                    await client.logon()
                with pytest.raises(TimedOutError, match=r"0\.02"):
                    await client.flush(timeout=0.02)

    asyncio.run(scenario())


def test_streams_learn_that_the_server_has_gone(new_client: NewClient) -> None:
    message = frame({"c": "p", "t": "t", "sids": "2"}, b"last words")

    async def scenario() -> None:
        with scripted_peer(on("subscribe", message, HANG_UP)) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t")
                assert (await anext(stream)).body == b"last words"
                with pytest.raises(ConnectionLostError):
                    await anext(stream)
                with pytest.raises(ConnectionLostError):
                    await client.flush()

    asyncio.run(scenario())


def test_a_server_that_speaks_something_else_is_left(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda *_: [b"HTTP/1.1 400 Bad Request\r\n" * 1000]) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                with pytest.raises(ProtocolError):
                    await client.logon()

    asyncio.run(scenario())


def test_a_refusal_is_raised_once_and_by_its_public_name(new_client: NewClient) -> None:
    """Its traceback does not print it a second time as the cause of itself."""

    def answer(header: Header, body: bytes) -> list[bytes]:
        is_wrong = header["c"] == "subscribe"
        return refuse(header, "bad filter", "at 3") if is_wrong else accept(header, body)

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                with pytest.raises(BadFilterError) as caught:
                    await client.subscribe("t", filter="/a +")
        text = "".join(traceback.format_exception(caught.value))
        assert text.count("at 3") == 1
        assert "amperage.BadFilterError: subscribe: bad filter: at 3" in text

    asyncio.run(scenario())


def test_a_timeout_is_told_as_it_was_asked_for(new_client: NewClient) -> None:
    def silent(header: Header, body: bytes) -> list[bytes]:
        return [] if header["c"] == "flush" else accept(header, body)

    async def scenario() -> None:
        with scripted_peer(silent) as peer:
            async with new_client(timeout=0.07) as client:
                await client.connect(uri(peer.port))
                await client.logon()
                with pytest.raises(TimedOutError, match=r"flush did not come within 0\.07 seconds"):
                    await client.flush()
                stream = await client.subscribe("t")
                with pytest.raises(TimedOutError, match=r"message did not come within 0\.02 sec"):
                    await stream.next(timeout=0.02)

    asyncio.run(scenario())


def test_refusals_are_raised_after_a_flush_that_timed_out(new_client: NewClient) -> None:
    """Although the server reports them once."""
    flushes: list[Header] = []

    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "flush":
            flushes.append(header)
        if header["c"] != "flush" or len(flushes) > 1:
            return accept(header, body)
        ack = {"c": "ack", "cid": header["cid"], "a": "completed", "status": "success"}
        return [frame(ack | {"matches": 2, "reason": "not entitled"})]

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                with pytest.raises(TimedOutError):
                    await client.flush(timeout=0.1)
                with pytest.raises(MessagesRefusedError, match="2 messages were refused"):
                    await client.flush()
                await client.flush()
        assert [header["o"] for header in flushes] == ["refusals"] * 3

    asyncio.run(scenario())


HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("pieces", [[HTTP], [HTTP[:2], HTTP[2:]]])
def test_a_peer_that_answers_in_http_is_named(new_client: NewClient, pieces: list[bytes]) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda *_: [*pieces, HANG_UP]) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                with pytest.raises(ProtocolError, match=r"answers in HTTP: .* admin interface"):
                    await client.logon()

    asyncio.run(scenario())


def test_a_server_that_ends_the_connection_at_the_logon_may_be_of_another_kind(
    new_client: NewClient,
) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda *_: [HANG_UP]) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                with pytest.raises(ConnectionLostError, match=r"of another type than .* the URI"):
                    await client.logon()

    asyncio.run(scenario())


def hang_up(listener: socket.socket) -> None:
    listener.accept()[0].close()


def test_a_server_that_does_not_answer_as_a_websocket_is_of_another_kind(
    new_client: NewClient,
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
            port = listener.getsockname()[1]
            async with new_client() as client:
                with pytest.raises(ConnectError, match="check that this is a transport of that ty"):
                    await client.connect(uri(port).replace("tcp:", "ws:"))

    asyncio.run(scenario())


def test_a_closed_client_ends_its_streams_and_can_connect_again(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer() as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t")
                await client.close()
                assert [it async for it in stream] == []
                with pytest.raises(ConnectionLostError):
                    await client.publish("t", b"")
                await client.connect(uri(peer.port))
                await client.logon()

    asyncio.run(scenario())


def test_publishing_to_a_server_that_writes_before_it_reads_does_not_lock_up(
    new_client: NewClient,
) -> None:
    flood = frame({"c": "p", "t": "t", "sids": "2"}, b"x" * 1000) * 20_000
    bodies = [b"y" * 1000] * 20_000

    async def scenario() -> None:
        with scripted_peer(on("subscribe", flood)) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t")
                await client.publish_all("t", bodies)
                await client.flush()
                taken = 0
                while taken < 20_000:
                    taken += len(await stream.batch(timeout=WAIT_SECONDS))
            assert len(peer.bodies("p")) == len(bodies)

    asyncio.run(scenario())


def test_a_client_stops_reading_for_a_stream_that_nobody_reads(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is queued stays near the limit, and in the end every message has been handed out."""
    limit, total = 10, 300
    monkeypatch.setattr("amperage.client.backpressure.MAX_QUEUED_MESSAGES", limit)
    flood = frame({"c": "p", "t": "t", "sids": "2"}, b"x" * 65536) * total
    most_in_one_read = 256 * 1024 // 65536 + 1

    async def scenario() -> None:
        with scripted_peer(on("subscribe", flood)) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t")
                taken: list[int] = []
                while sum(taken) < total:
                    await asyncio.sleep(0.005)  # time in which all of it would fit through
                    taken.append(len(await stream.batch(timeout=WAIT_SECONDS)))
                assert max(taken) <= limit + most_in_one_read

    asyncio.run(scenario())


def test_a_server_that_falls_silent_is_noticed(new_client: NewClient) -> None:
    """A server that beats is listened to; after two intervals without a beat it is gone."""

    def beat_once(header: Header, _body: bytes) -> list[bytes]:
        starts = header.get("o", "").startswith("start")
        return [*accept(header), frame({"c": "heartbeat"})] if starts else accept(header)

    async def scenario() -> None:
        with scripted_peer(beat_once) as peer:
            async with new_client() as client:
                await client.connect(uri(peer.port))
                await client.logon()
                stream = await client.subscribe("t")
                await client.heartbeat(1)
                with pytest.raises(ConnectionLostError, match="silent"):
                    await anext(stream)
            assert peer.commands() == ["logon", "subscribe", "heartbeat", "heartbeat"]
            assert [peer.received[2][0]["o"], peer.received[3][0]["o"]] == ["start,1", "beat"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("tcp://127.0.0.1:1/amps", "Unable to connect to AMPS at 127.0.0.1:1: connection refused"),
        ("tcp://localhost:1/amps", "connection refused"),
        ("tcp://no-such-host.invalid:1/amps", "unknown host"),
    ],
)
def test_a_connection_that_fails_says_why(new_client: NewClient, where: str, said: str) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            with pytest.raises(ConnectError, match=said):
                await client.connect(where)

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 in one file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    key = path.with_suffix(".key")
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
        f" -keyout {key} -out {path} -subj /CN=localhost"
        f" -addext subjectAltName=IP:127.0.0.1".split(),
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + key.read_text())
    return path


def tls_acceptor(certificate: Path) -> int:
    """Start a server that completes one TLS handshake after the other; return its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            raw, _ = listener.accept()
            with contextlib.suppress(OSError), context.wrap_socket(raw, server_side=True) as peer:
                peer.recv(65536)
                ack = {"c": "ack", "cid": "1", "a": "processed", "status": "success"}
                peer.sendall(frame(ack | {"version": "x" * 50_000}))

    threading.Thread(target=serve, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def test_tls_is_spoken_with_a_trusted_server_only(new_client: NewClient, certificate: Path) -> None:
    async def scenario() -> None:
        where = f"tcps://127.0.0.1:{tls_acceptor(certificate)}/amps/json"
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with new_client(ssl_context=trusting) as client:
            await client.connect(where)
            assert len((await client.logon()).version or "") == 50_000
        async with new_client() as client:
            with pytest.raises(ConnectError, match="certificate is not trusted"):
                await client.connect(where)

    asyncio.run(scenario())
