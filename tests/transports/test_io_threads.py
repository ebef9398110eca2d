"""I/O threads write to the sockets of clients: each gets the same bytes as without them."""

from __future__ import annotations

import os
import random
import resource
import shlex
import socket
import struct
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.chances import chance_of
from tests.support.raw import RawPeer, frame
from tests.support.server import ROOT, RunningServer, free_port, running_server
from tests.support.waiting import comes_true
from tests.transports.support import CompressedPeer, WebsocketClient, transport

IO_THREADS = 3
TUNING = f"<Tuning><IOThreads>{IO_THREADS}</IOThreads></Tuning>"

LIMITS = """
<MessageMemoryLimit>4MB</MessageMemoryLimit>
<MessageDiskLimit>200MB</MessageDiskLimit>
<MessageDiskPath>{directory}</MessageDiskPath>
"""

LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def web_port() -> int:
    """Return the port of the websocket transport."""
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, web_port: int) -> Iterator[RunningServer]:
    """Start a server with I/O threads, small limits and a websocket transport."""
    directory = tmp_path_factory.mktemp("server")
    websocket = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{web_port}</InetAddr><Protocol>websocket</Protocol>"
    )
    elements = TUNING + LIMITS.format(directory=directory)
    with running_server(directory, transports=websocket, elements=elements) as running:
        yield running


def thread_names(server: RunningServer) -> list[str]:
    """Return the names of the server's threads."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return [(task / "comm").read_text().strip() for task in tasks]


def descriptor_count(server: RunningServer) -> int:
    """Return how many descriptors the server has open."""
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def random_bodies(chance: random.Random, count: int) -> list[bytes]:
    """Return bodies of very different sizes; few are large."""
    sizes = [int(10 ** chance.uniform(0.5, 4)) for _ in range(count)]
    sizes[chance.randrange(count)] = 400_000
    return [b"%06d" % number + chance.randbytes(size) for number, size in enumerate(sizes)]


def limit_descriptors() -> None:
    """Leave a process few descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def test_as_many_threads_run_as_configured(server: RunningServer) -> None:
    assert thread_names(server).count("io") == IO_THREADS


def test_many_clients_get_everything_in_order(server: RunningServer, web_port: int) -> None:
    """Small and large writes, to a crowd and to few, framed in several ways, all stay in order."""
    chance = chance_of()
    sent = random_bodies(chance, 300)
    with ExitStack() as opened:
        publisher = opened.enter_context(server.log_on("crowd-publisher", "binary"))
        crowd = [
            opened.enter_context(server.log_on(f"crowd-{number}", "binary")) for number in range(40)
        ]
        compressed = opened.enter_context(CompressedPeer(server.port))
        compressed.log_on("crowd-compressed", "binary")
        crowd.append(compressed)
        web = opened.enter_context(
            WebsocketClient(f"ws://127.0.0.1:{web_port}/amps/binary", max_queue=1)
        )
        web.ask({"c": "logon", "cid": "1", "client_name": "crowd-web", "a": "processed"})
        web.subscribe("crowd")
        for peer in crowd:
            peer.subscribe("crowd", "1")
        for start in range(0, len(sent), 20):
            with publisher.at_once():
                for body in sent[start : start + 20]:
                    publisher.publish("crowd", body)
            if chance.random() < 0.5:  # some writes begin when none is in progress
                publisher.flush()
        for peer in crowd:
            assert [peer.receive()[1] for _ in sent] == sent
        assert [web.receive()[1] for _ in sent] == sent


def test_a_client_that_pauses_gets_everything(server: RunningServer) -> None:
    """Bytes that the socket does not take wait in the thread, in memory and on disk, in order."""
    sent = [b"%06d" % number + os.urandom(100_000) for number in range(300)]
    with server.log_on("publisher", "binary") as publisher, server.connect() as pausing:
        pausing.log_on("io-pausing", "binary")
        pausing.subscribe("paused", "1")
        for body in sent:
            publisher.publish("paused", body)
        publisher.flush()
        assert server.logs("client[io-pausing] slow consumption detected, offline messages.")
        assert [pausing.receive()[1] for _ in sent] == sent


def test_clients_that_read_are_not_behind(server: RunningServer) -> None:
    """What waits for a thread is not what waits for a client: nothing goes to the disk."""
    with server.log_on("publisher", "binary") as publisher, ExitStack() as opened:
        readers = [opened.enter_context(server.log_on(f"fast-{n}", "binary")) for n in range(4)]
        for reader in readers:
            reader.subscribe("burst", "1")
        for _ in range(5):
            with publisher.at_once():
                for _ in range(8):
                    publisher.publish("burst", b"x" * 200_000)
            for reader in readers:
                for _ in range(8):
                    reader.receive()
    assert "client[fast-" not in "".join(
        line for line in server.log().splitlines() if "70-0011" in line
    )


def test_a_client_that_never_reads_is_disconnected(server: RunningServer) -> None:
    """Its write in progress ends with it; clients beside it get everything."""
    before = descriptor_count(server)
    with (
        server.log_on("publisher", "binary") as publisher,
        server.log_on("io-sleepy", "binary") as sleepy,
        server.log_on("awake", "binary") as awake,
    ):
        sleepy.subscribe("flood", "1")
        awake.subscribe("flood", "1")
        for number in range(900):
            publisher.publish("flood", b"%06d" % number + LARGE)
            assert awake.receive()[1][:6] == b"%06d" % number
        assert server.logs("client[io-sleepy] disconnected. Reason: slow client")
    assert comes_true(lambda: descriptor_count(server) <= before)


def test_a_client_that_reads_nothing_is_too_late_at_once(tmp_path: Path) -> None:
    """A single burst is enough: its age counts from when the thread finds the socket full."""
    limits = "<ClientMessageAgeLimit>1s</ClientMessageAgeLimit>"
    with (
        running_server(tmp_path, elements=TUNING + limits) as server,
        server.log_on("publisher", "binary") as publisher,
        ExitStack() as opened,
    ):
        for number in range(10):
            stalled = opened.enter_context(server.log_on(f"stalled-{number}", "binary"))
            stalled.subscribe(f"burst-{number}", "1")
            with publisher.at_once():
                for _ in range(60):  # more than sockets take
                    publisher.publish(f"burst-{number}", b"x" * 200_000)
        assert server.logs("Reason: slow client", times=10)


def test_clients_come_and_go_during_writes(server: RunningServer) -> None:
    """Connections that break while a thread writes to them leave nothing behind."""
    chance = chance_of()
    before = descriptor_count(server)
    with server.log_on("publisher", "binary") as publisher, ExitStack() as opened:
        steady = opened.enter_context(server.log_on("steady", "binary"))
        steady.subscribe("rush", "1")
        for turn in range(60):
            visitors = [RawPeer(server.port) for _ in range(10)]
            for number, visitor in enumerate(visitors):
                visitor.log_on(f"visitor-{turn}-{number}", "binary")
                visitor.subscribe("rush", "1")
            with publisher.at_once():
                for _ in range(3):
                    publisher.publish("rush", LARGE)
            for visitor in visitors:
                if chance.random() < 0.5:  # reset
                    linger = struct.pack("ii", 1, 0)
                    visitor.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                visitor.socket.close()
            assert [steady.receive()[1] for _ in range(3)] == [LARGE] * 3
    assert comes_true(lambda: descriptor_count(server) <= before)


def test_what_was_written_before_a_stop_arrives(tmp_path: Path) -> None:
    """The threads end when sockets have taken what they take at once."""
    bodies = [b"%06d" % number + b"x" * 1_000 for number in range(400)]
    with (
        running_server(tmp_path, elements=TUNING) as server,
        server.log_on("publisher", "binary") as publisher,
        server.log_on("reader", "binary") as reader,
    ):
        reader.subscribe("last", "1")
        with publisher.at_once():
            for body in bodies:
                publisher.publish("last", body)
        publisher.flush()
        assert server.stop() == 0
        assert [reader.receive()[1] for _ in bodies] == bodies
        assert reader.is_disconnected()


def test_with_few_descriptors_the_event_loop_writes(tmp_path: Path) -> None:
    """A second descriptor for each connection would leave none for files."""

    with (
        running_server(tmp_path, elements=TUNING, prepare=limit_descriptors) as server,
        server.log_on("publisher", "binary") as publisher,
        ExitStack() as opened,
    ):
        peers = [opened.enter_context(server.log_on(f"one-{n}", "binary")) for n in range(100)]
        for peer in peers:
            peer.subscribe("few", "1")
        for _ in range(2):
            publisher.publish("few", LARGE)
        for peer in peers:
            assert [peer.receive()[1] for _ in range(2)] == [LARGE] * 2
        assert descriptor_count(server) < 200


def test_a_result_arrives_though_the_client_sends_no_more(tmp_path: Path) -> None:
    """A client may close its end for writing behind its last command."""
    sow = (
        "<SOW><Topic><Name>rows</Name><MessageType>json</MessageType><Key>/id</Key>"
        f"<FileName>{tmp_path}/rows.sow</FileName></Topic></SOW>"
    )
    with (
        running_server(tmp_path, elements=TUNING + sow) as server,
        server.log_on("publisher") as publisher,
        server.log_on("reader") as reader,
    ):
        text = "y" * 20_000
        for number in range(20):
            publisher.publish("rows", b'{"id":%d,"text":"%s"}' % (number, text.encode()))
        publisher.flush()
        reader.socket.sendall(frame({"c": "sow", "cid": "1", "t": "rows", "bs": 1}))
        reader.socket.shutdown(socket.SHUT_WR)
        headers = [reader.receive()[0]["c"] for _ in range(22)]
        assert headers == ["group_begin", *["sow"] * 20, "group_end"]
        assert reader.is_disconnected()


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_share_nothing_unguarded(tmp_path: Path, sanitizer: str) -> None:
    """The C part by itself, on many sockets, built so that races and bad accesses end it."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    source = Path(__file__).with_name("io_threads_load.c")
    program = tmp_path / "load"
    build = [compiler, "-g", "-O1", "-pthread", f"-I{ROOT}/server/transports"]
    subprocess.run(
        [*build, f"-fsanitize={sanitizer}", "-o", program, source], check=True, timeout=120
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "48 sockets, 4800 writes\n"
