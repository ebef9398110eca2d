"""Much that is replicated at once, to a destination that does not keep up or goes away."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_replication_connections import destination, to
from tests.support.raw import QUICK_ACKS
from tests.support.replication_peer import (
    BATCH,
    BEGIN,
    HELLO,
    RESUME,
    Listening,
    ReplicationPeer,
)
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until

SIZE = 1024
COUNT = 12_000
"""What a destination is sent before it has acknowledged anything is limited; this is less."""

_BATCH = struct.Struct("<QQI")


@pytest.fixture
def address() -> Iterator[Listening]:
    """Where the destination listens."""
    with Listening() as listening:
        yield listening


@pytest.fixture
def server(tmp_path: Path, address: Listening) -> Iterator[RunningServer]:
    """A server that replicates there."""
    with running_server(tmp_path, elements=destination(to(address.port))) as running:
        yield running


def begin(address: Listening) -> tuple[ReplicationPeer, int]:
    """Be the destination, that has nothing; the number of the entry before the first."""
    peer = address.accept()
    assert peer.receive().kind == HELLO
    peer.greet()
    came = peer.receive()
    assert came.kind == BEGIN
    before = came.fields[1] - 1
    peer.send(RESUME, before, None)
    return peer, before


def publish(server: RunningServer) -> None:
    """Publish, and wait until all is persisted, whatever the destination does."""
    with server.log_on("publisher", o=QUICK_ACKS) as publisher:
        with publisher.at_once():
            for number in range(1, COUNT + 1):
                header = {"c": "publish", "t": "orders", "s": number, "a": "persisted"}
                publisher.send(header, body(number))
        while publisher.receive()[0].get("s") != COUNT:
            pass


def body(number: int) -> bytes:
    """A message that is told from others by its first bytes."""
    return (b'{"id":%d,"pad":"' % number).ljust(SIZE - 2, b"x") + b'"}'


def read_all(peer: ReplicationPeer, before: int) -> list[bytes]:
    """All messages, in the order in which they come; nothing is missing between batches."""
    bodies: list[bytes] = []
    while len(bodies) < COUNT:
        kind, payload = peer.receive()
        assert kind == BATCH
        after, upto, entries = _BATCH.unpack_from(payload)
        assert after == before
        before = upto
        data = payload[-SIZE * entries :]
        bodies += [data[place : place + SIZE] for place in range(0, len(data), SIZE)]
    return bodies


def test_what_is_read_late_comes_whole_and_in_order(
    server: RunningServer, address: Listening
) -> None:
    peer, before = begin(address)
    publish(server)
    assert read_all(peer, before) == [body(number) for number in range(1, COUNT + 1)]


def test_a_destination_that_goes_away_leaves_nothing_behind(
    server: RunningServer, address: Listening
) -> None:
    publish(server)
    threads = Path(f"/proc/{server.process.pid}/task")
    counts = set()
    for has_all in (False, True, False, True):
        peer, before = begin(address)
        with peer:
            if has_all:
                read_all(peer, before)
            else:
                peer.take(SIZE)  # much more is on its way
            counts.add(len(list(threads.iterdir())))
    peer, before = begin(address)
    assert read_all(peer, before) == [body(number) for number in range(1, COUNT + 1)]
    wait_until(lambda: len(list(threads.iterdir())) <= min(counts))


def test_a_server_stops_whose_destination_reads_nothing(
    server: RunningServer, address: Listening
) -> None:
    peer, _ = begin(address)
    publish(server)
    peer.take(SIZE)
    assert server.stop() == 0
