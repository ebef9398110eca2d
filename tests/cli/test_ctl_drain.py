"""`amps-ctl drain`: an instance stops once clients and destinations have all that it owes them."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.test_ctl import ctl, results, run_ctl
from tests.support.queues import bookmarks, consume, numbers, put, take
from tests.support.quick import quick_command
from tests.support.raw import RawPeer
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    environment,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import WAIT_SECONDS, wait_until

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
QUEUE: Final = """
<SOW><LocalQueue>
  <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
  <Semantics>at-least-once</Semantics><MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
</LocalQueue></SOW>
"""
DESTINATION: Final = """
<Replication><Destination>
  <Name>B</Name><SyncType>sync</SyncType>
  <Topic><Name>jobs|orders</Name><MessageType>json</MessageType>
    <ExcludeValidation>replicate,cascade,sow</ExcludeValidation></Topic>
  <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
</Destination></Replication>
"""
RECEIVER: Final = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type>
  <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
</Transport>
"""


@contextmanager
def draining(admin: Admin, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, while it runs."""
    url = f"http://127.0.0.1:{admin.port}"
    command = [*quick_command("server.cli.amps_ctl"), "drain", "--url", url, *words]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The status and the output of a command that ends."""
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, out, err


def acknowledge(peer: RawPeer, marks: str) -> None:
    peer.send({"c": "sow_delete", "t": "work", "bm": marks})


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    """Consumers with leases, publishers at work, and a destination that they wait for."""
    here, there, port = tmp_path / "A", tmp_path / "B", free_port()
    here.mkdir()
    there.mkdir()
    elements = LOG + QUEUE + DESTINATION.format(port=port)
    own_port, transports = free_port(), RECEIVER.format(port=port)
    text = CONFIGURATION.format(port=own_port, elements=LOG, transports=transports, level="info")
    text = text.replace("test-instance", "B")
    with running_configuration(there, text, own_port) as other:
        with running_admin(here, elements=elements) as admin:
            assert admin.server.logs("21-0001 "), "the link is up"
            done, published = drain_at_work(admin)
        with running_server(here, elements=elements) as again, again.log_on("later") as later:
            consume(later, "work", 10)
            rest: list[int] = []
            while len(rest) < published - len(done):
                messages = take(later, 1)
                rest += numbers(messages)
                acknowledge(later, bookmarks(messages))
            assert sorted(done + rest) == list(range(published))
            assert later.hears_nothing()
        assert count_replayed(other) == published


def drain_at_work(admin: Admin) -> tuple[list[int], int]:
    """Drain an instance; give what a consumer has done, and how many messages were acknowledged."""
    server = admin.server
    put(server, "jobs", range(50))
    with server.log_on("worker") as worker, server.log_on("publisher") as publisher:
        consume(worker, "work", 10)
        leased = take(worker, 10)
        with draining(admin, "--timeout", "60s") as process:
            wait_until(lambda: "being drained" in admin.ask("/readyz").text)
            with pytest.raises(OSError):  # noqa: PT011 - refused or reset
                server.connect().receive()
            assert process.stdout is not None
            assert process.stdout.readline() == "draining: queue work: 10 messages leased\n"
            acknowledge(worker, bookmarks(leased[:5]))
            for number in range(50, 60):
                header = {"c": "publish", "t": "jobs", "a": "persisted", "s": number, "cid": "p"}
                publisher.send(header, b'{"n":%d}' % number)
            acks = 0
            while acks < 59:
                acks = int(publisher.receive_header()["s"])
            assert worker.hears_nothing(), "no new messages"
            acknowledge(worker, bookmarks(leased[5:]))
            status, out, err = ended(process)
            assert (status, err) == (0, "")
            assert out.endswith("drained\nThe instance has stopped.\n")
        assert server.process.wait(WAIT_SECONDS) == 0
        with suppress(EOFError, ConnectionError):
            while True:
                assert publisher.receive_header()["s"] == "59", "no other is acknowledged"
        assert worker.is_disconnected()
    return numbers(leased), 60


def count_replayed(server: RunningServer) -> int:
    """How many messages the other instance has."""
    with server.log_on("reader") as reader:
        reader.send({"c": "subscribe", "t": "jobs", "cid": "r", "bm": "0", "a": "completed"})
        count = 0
        while reader.receive()[0]["c"] != "ack":
            count += 1
        return count


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=LOG + QUEUE) as running:
        yield running


def test_what_is_not_finished_is_said_and_the_instance_serves_again(admin: Admin) -> None:
    put(admin.server, "jobs", range(3))
    with admin.server.log_on("worker") as worker:
        consume(worker, "work", 1)
        first = take(worker, 1)
        done = ctl(admin, "drain", "--timeout", "300ms")
        assert done.returncode == 1
        assert "the instance is not drained: queue work: 1 message leased" in done.stderr
        assert admin.ask("/readyz").status == 200
        acknowledge(worker, bookmarks(first))
        assert numbers(take(worker, 1)) == [1], "deliveries go on"
    with admin.server.log_on("another") as another:
        consume(another, "work", 1)
        assert numbers(take(another, 1)) == [1]


def test_a_subscription_during_a_drain_gets_nothing(admin: Admin) -> None:
    put(admin.server, "jobs", range(3))
    with admin.server.log_on("worker") as worker, admin.server.log_on("late") as late:
        consume(worker, "work", 1)
        first = take(worker, 1)
        with draining(admin) as process:
            wait_until(lambda: "being drained" in admin.ask("/readyz").text)
            consume(late, "work", 1)
            assert late.hears_nothing()
            assert ctl(admin, "drain").returncode == 1, "it goes on already"
            assert "being drained" in ctl(admin, "reload").stderr
            assert admin.server.logs("00-0060 ")
            assert ctl(admin, "drain", "--cancel").returncode == 0
            assert ended(process)[0] == 1
        assert numbers(take(late, 1)) == [1]
        acknowledge(worker, bookmarks(first))
        assert numbers(take(worker, 1)) == [2]
    assert ctl(admin, "drain", "--cancel").returncode == 1


def test_a_signal_during_a_drain_stops_it_at_once(admin: Admin) -> None:
    put(admin.server, "jobs", range(3))
    with admin.server.log_on("worker") as worker:
        consume(worker, "work", 1)
        take(worker, 1)
        with draining(admin):
            wait_until(lambda: "being drained" in admin.ask("/readyz").text)
            assert admin.server.stop() == 0
    assert admin.server.log().count("11-0001 ") == 1, "no transport is opened again"


def test_force_stops_it_anyway(admin: Admin) -> None:
    put(admin.server, "jobs", range(3))
    with admin.server.log_on("worker") as worker:
        consume(worker, "work", 1)
        take(worker, 1)
        done = ctl(admin, "drain", "--timeout", "300ms", "--force", "--json")
        assert done.returncode == 1
        (result,) = results(done)
        assert result["result"] == "the instance has stopped with queue work: 1 message leased"
        assert admin.server.process.wait(WAIT_SECONDS) == 0


def test_an_instance_without_a_log_is_drained(tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin, admin.server.log_on("client") as client:
        assert ctl(admin, "drain").returncode == 0
        assert admin.server.process.wait(WAIT_SECONDS) == 0
        assert client.is_disconnected()


class ScriptedAdmin(BaseHTTPRequestHandler):
    """Answers as the admin interface of an instance does that is drained: state by state."""

    states: ClassVar[list[str | int]] = []

    def do_POST(self) -> None:
        self.answer({"instance": {"begin": "The drain has begun."}})

    def do_GET(self) -> None:
        state = self.states.pop(0)
        if isinstance(state, int):
            self.send_error(state)
        else:
            self.answer([{"id": "instance", "name": state}])

    def answer(self, value: object) -> None:
        body = json.dumps({"amps": {"administrator": {"drain": value}}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["drained", 503, 401, "drained", 503, "serving"], "The instance has stopped."),
        (["draining: queue work", "serving"], "another process of the instance serves"),
    ],
)
def test_only_another_process_or_a_closed_connection_is_a_stop(
    states: list[str | int], said: str
) -> None:
    """A refusal, or no answer in time, is none; a supervisor may start the next process at once."""
    ScriptedAdmin.states = list(states)
    with ThreadingHTTPServer(("127.0.0.1", 0), ScriptedAdmin) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = run_ctl("drain", "--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert said in done.stdout + done.stderr
    assert done.returncode == (5 if done.stderr else 0)
    assert ScriptedAdmin.states == []


@pytest.mark.parametrize("words", ["--timeout long", "--timeout -1s"])
def test_a_time_that_makes_no_sense_begins_nothing(admin: Admin, words: str) -> None:
    done = ctl(admin, "drain", *words.split())
    assert done.returncode in (1, 2)
    assert admin.ask("/readyz").status == 200
