"""Clients that come and go leave nothing behind."""

from __future__ import annotations

import gc
import socket
import struct
import time
from pathlib import Path

import pytest

from server.engine.session import Session
from server.topics.subscriptions.subscription import Subscription
from server.topics.topic import Topic
from tests.engine.support import Core
from tests.soak.process import open_files, resident_bytes
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until

CONNECTIONS_A_SECOND = 1000
SECONDS = 1
SOAK_SECONDS = 60
MAX_GROWTH = 4 * 1024 * 1024
POLITE = 10
"""One client in so many closes its connection in an orderly way; the others reset theirs."""


def come_and_go(server: RunningServer, number: int) -> None:
    """One client's life: log on, subscribe, publish, hear it, vanish."""
    with server.log_on(f"client-{number}") as peer:
        peer.subscribe("churn", "1", f=f"/n = {number}")
        peer.publish("churn", b'{"n": %d}' % number)
        assert peer.receive()[1] == b'{"n": %d}' % number
        if number % POLITE:
            reset = struct.pack("ii", 1, 0)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)


@pytest.mark.long
@pytest.mark.timeout(SOAK_SECONDS * 5)
def test_a_thousand_connections_a_second_leak_nothing(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """After a warm-up, neither memory nor open files grow."""
    seconds = SOAK_SECONDS if pytestconfig.getoption("--long") else SECONDS
    with running_server(tmp_path) as server:
        pid = server.process.pid
        files = open_files(pid)
        for number in range(CONNECTIONS_A_SECOND):
            come_and_go(server, number)
        memory = resident_bytes(pid)
        begin = time.monotonic()
        for number in range(seconds * CONNECTIONS_A_SECOND):
            come_and_go(server, number)
            ahead = begin + number / CONNECTIONS_A_SECOND - time.monotonic()
            if ahead > 0.001:
                time.sleep(ahead)
        with server.log_on("last") as peer:
            peer.flush()
            wait_until(lambda: open_files(pid) <= files + 1)
            assert resident_bytes(pid) - memory < MAX_GROWTH


def test_what_clients_had_is_let_go_of() -> None:
    """Sessions and subscriptions of clients that left are gone, and their topic is the only one."""
    core = Core()
    stayer = core.log_on("stayer")
    counted = (Session, Subscription, Topic)

    def census() -> list[int]:
        gc.collect()
        living = gc.get_objects()
        return [sum(type(one) is kind for one in living) for kind in counted]

    def visit(number: int) -> None:
        peer = core.log_on(f"visitor-{number}")
        peer.send({"c": "subscribe", "sub_id": "1", "t": "churn", "f": f"/n = {number}"})
        peer.send({"c": "subscribe", "sub_id": "2", "t": "^ch", "o": "conflation=1s"})
        peer.send({"c": "publish", "t": "churn"}, b'{"n": %d}' % number)
        peer.leave()

    visit(0)
    core.clock.advance(60)
    before = census()
    for number in range(2000):
        visit(number)
    core.clock.advance(60)
    assert census() == before
    assert len(core.engine.sessions) == 1
    stayer.send({"c": "publish", "t": "churn"}, b"{}")
