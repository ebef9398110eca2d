"""The blocking clients in any number of threads, in handlers, after a fork and at the end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amperage.client import (
    Backoff,
    Client,
    CommandError,
    ConnectionEvent,
    ConnectionLostError,
    ConnectionState,
    HAClient,
    Message,
    MessagesRefusedError,
    MessageStream,
    NotConnectedError,
    StoredMessage,
    TimedOutError,
)
from tests.client.scripted_peer import Header, ScriptedPeer, accept, scripted_peer
from tests.client.test_ha_shells import HangingUp, store_everything
from tests.support.raw import frame
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
BATCH_SIZE = Backoff(first=0.001, longest=0.01)


server = module_server()


def at(port: int) -> str:
    return f"tcp://127.0.0.1:{port}/amps/json"


def logged_on(port: int, **arguments: Any) -> Client:
    client = Client(timeout=WAIT_SECONDS, **arguments)
    client.connect(at(port))
    client.logon()
    return client


def staying_connected(port: int, **arguments: Any) -> HAClient:
    client = HAClient([at(port)], timeout=WAIT_SECONDS, backoff=BATCH_SIZE, **arguments)
    client.connect()
    return client


def take(stream: MessageStream, count: int) -> list[Message]:
    messages = [stream.next(WAIT_SECONDS) for _ in range(count)]
    return [message for message in messages if message is not None]


@pytest.mark.parametrize("connect", [logged_on, staying_connected])
def test_threads_publish_while_others_iterate(
    server: RunningServer, connect: Callable[[int], Client | HAClient]
) -> None:
    each, publishers, topics = 500, 4, ("a", "b")

    def publish(number: int) -> None:
        for n in range(each):
            client.publish(topics[n % 2], b'{"p":%d,"n":%d}' % (number, n))

    with connect(server.port) as client, ThreadPoolExecutor(publishers + len(topics)) as threads:
        streams = [client.subscribe(topic) for topic in topics]
        expected = each * publishers // len(topics)
        taken = [threads.submit(take, stream, expected) for stream in streams]
        for done in [threads.submit(publish, number) for number in range(publishers)]:
            done.result()
        for topic, result in zip(topics, taken, strict=True):
            messages = result.result()
            assert {message.topic for message in messages} == {topic}
            for number in range(publishers):
                its = [it.json()["n"] for it in messages if it.json()["p"] == number]
                assert its == list(range(topics.index(topic), each, 2)), "each in its order"


def beating(header: Header, body: bytes) -> list[bytes]:
    """Beats once for each beat of the client's."""
    return [
        *accept(header, body),
        *([frame({"c": "heartbeat"})] if "heartbeat" in header["c"] else []),
    ]


def test_heartbeats_are_answered_while_the_application_does_something_else() -> None:
    with scripted_peer(beating) as peer, logged_on(peer.port) as client:
        client.heartbeat(5)
        wait_until(lambda: peer.commands().count("heartbeat") > 10)


def test_a_handler_that_is_slow_keeps_its_connection_and_holds_back_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More waits than may; it is not read on, but the client shows that it is alive."""
    monkeypatch.setattr("amperage.client.backpressure.MAX_QUEUED_MESSAGES", 10)
    flood = frame({"c": "p", "t": "t", "sids": "3"}, b"x" * 4096) * 300  # buffers take it all

    def answer(header: Header, body: bytes) -> list[bytes]:
        return accept(header, body) + ([flood] if header["c"] == "subscribe" else [])

    with scripted_peer(answer) as peer, logged_on(peer.port) as client:
        client.heartbeat(1)
        stream = client.subscribe("t")
        assert stream.next(WAIT_SECONDS) is not None  # the handler begins
        beats = len([it for it in peer.commands() if it == "heartbeat"])
        wait_until(lambda: peer.commands().count("heartbeat") >= beats + 2)
        assert sum(1 for _ in range(299) if stream.next(WAIT_SECONDS)) == 299


def test_a_lost_connection_is_mended_without_a_call() -> None:
    states: list[ConnectionState] = []
    with (
        scripted_peer(HangingUp(2)) as peer,
        staying_connected(peer.port, on_state=lambda event: states.append(event.state)) as client,
    ):
        client.publish("t", b"lost on the way")
        wait_until(lambda: states.count(ConnectionState.RECOVERED) == 2)
        wait_until(lambda: len(client.publish_store) == 0)


def test_a_close_in_another_thread_ends_whoever_waits(server: RunningServer) -> None:
    client = logged_on(server.port)
    stream = client.subscribe("quiet")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: list(stream))
        client.close()
        assert waiting.result(WAIT_SECONDS) == []
    with pytest.raises(NotConnectedError):
        client.publish("t", b"")


def test_handlers_may_publish_and_close_and_are_told_that_they_cannot_wait() -> None:
    told: list[str] = []
    closed = threading.Event()

    def note(event: ConnectionEvent) -> None:
        if event.state is ConnectionState.RECOVERED:
            client.publish("t", b"from a handler")
            try:
                client.flush()
            except RuntimeError as error:
                told.append(str(error))
        if event.state is ConnectionState.DISCONNECTED:
            client.close()
            closed.set()

    with scripted_peer(store_everything) as peer:
        client = HAClient([at(peer.port)], timeout=WAIT_SECONDS, on_state=note)
        client.connect()
        client.flush()
        assert b"from a handler" in peer.bodies("p")
        assert "cannot wait" in told[0]
        peer.close()
    with scripted_peer(HangingUp(2)) as peer:
        client = HAClient([at(peer.port)], timeout=WAIT_SECONDS, on_state=note)
        with suppress(NotConnectedError):  # it may be closed before the session is seen here
            client.connect()
        assert closed.wait(WAIT_SECONDS)


@pytest.mark.parametrize("connect", [logged_on, staying_connected])
def test_what_a_handler_raises_reaches_whoever_waits(
    connect: Callable[..., Client | HAClient], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(header: Header, body: bytes) -> list[bytes]:
        if header["c"] != "p":
            return accept(header, body)
        failure = {"c": "ack", "a": "persisted", "s": header["s"], "status": "failure"}
        return [frame(failure | {"reason": "not entitled"})]

    def handler(_message: StoredMessage, _error: CommandError) -> None:
        raise LookupError("a mistake of the application")

    with scripted_peer(refuse) as peer, connect(peer.port, on_refused=handler) as client:
        client.publish("t", b"")
        with pytest.raises(ConnectionLostError, match="a mistake of the application"):
            client.flush()
    assert "a mistake of the application" in caplog.text


def test_flush_says_how_many_messages_were_refused() -> None:
    def refuse(header: Header, body: bytes) -> list[bytes]:
        if body not in (b"2", b"3"):
            return store_everything(header, body)
        failure = {"c": "ack", "a": "persisted", "s": header["s"], "status": "failure"}
        return [frame(failure | {"reason": "bad", "detail": f"message {body.decode()}"})]

    told: list[bytes] = []
    with scripted_peer(refuse) as peer:
        with staying_connected(peer.port) as client:
            client.publish_all("t", ["1", "2", "3"])
            with pytest.raises(MessagesRefusedError, match=r"^2 messages .* bad: message 2$") as it:
                client.flush()
            assert it.value.count == 2
            client.flush()
        with logged_on(peer.port, on_refused=lambda it, _: told.append(it.body)) as single:
            single.publish_all("t", ["1", "2", "3"])
            single.flush()
            assert told == [b"2", b"3"]


def test_a_client_that_is_closed_early_says_what_is_not_persisted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def silent(header: Header, body: bytes) -> list[bytes]:
        return [] if header["c"] == "p" else accept(header, body)

    with scripted_peer(silent) as peer, staying_connected(peer.port, name="early") as client:
        client.publish("t", b"")
        with pytest.raises(TimedOutError):
            client.publish_flush(0.01)
    assert "client early is closed while 1 messages are not known to be persisted" in caplog.text


def test_a_forgotten_client_ends_its_thread() -> None:
    with scripted_peer() as peer:
        before = threading.active_count()
        clients = [logged_on(peer.port), staying_connected(peer.port)]
        mine = [it for it in threading.enumerate() if it.name.startswith("amps ")]
        assert len(mine) >= 2
        clients.clear()
        gc.collect()
        wait_until(lambda: not any(it.is_alive() for it in mine))
        assert threading.active_count() <= before + 2  # the peer's


@pytest.mark.parametrize("connect", [logged_on, staying_connected])
def test_a_fork_leaves_the_connection_to_its_parent(
    connect: Callable[[int], Client | HAClient],
) -> None:
    with scripted_peer() as peer, connect(peer.port) as client:
        stream = client.subscribe("t")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.publish("t", b"from the child")
            except NotConnectedError as error:
                status = 0 if "forked" in str(error) else 2
            try:
                stream.next(1)
            except NotConnectedError:
                client.close()
            else:
                status = 3
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.publish("t", b"from the parent")
        client.flush()
        assert peer.bodies("p") == [b"from the parent"]


def run(text: str, peer: ScriptedPeer) -> subprocess.Popen[bytes]:
    begin = f"""
from amperage.client import Client, HAClient
client = Client(); client.connect("{at(peer.port)}"); client.logon()
other = HAClient(["{at(peer.port)}"]); other.connect()
stream = client.subscribe("t"); print("ready", flush=True)
"""
    return subprocess.Popen(
        [sys.executable, "-c", begin + text],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_interpreter_ends_with_clients_that_are_open() -> None:
    with scripted_peer() as peer:
        process = run("", peer)
        said, complained = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, said, complained) == (0, b"ready\n", b"")


@pytest.mark.parametrize("wait", ["stream.next()", "list(stream)", "other.connect()"])
def test_a_waiting_call_can_be_interrupted(wait: str) -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        logons = [it for it, _ in peer.received if it["c"] == "logon"]
        return [] if len(logons) > 2 else accept(header, body)

    with scripted_peer(answer) as peer:
        process = run(f"other._timeout = 1e9\nimport sys\nprint('now', flush=True)\n{wait}", peer)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"ready\n", b"now\n"]
        while process.poll() is None:  # until it waits
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        _, complained = process.communicate(timeout=WAIT_SECONDS)
        assert complained.rstrip().endswith(b"KeyboardInterrupt")
