"""One client does what it should not, one thing after the other; a thousand others notice nothing.

What it does is what has held up others before: each row asks for much in few bytes, or for what
takes long. The others publish and subscribe, and get what they should: all of it, once, in order.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.soak.process import resident_bytes
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server

SERVED = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>^log</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

PATIENCE = 240.0
"""Seconds that the hostile client waits for an answer."""

CLIENTS, SOAK_CLIENTS = 30, 1000
MAX_GROWTH = 250 * 1024 * 1024

Attack = Callable[[int], Iterator[bytes]]
"""Given how much of it there shall be, from 1 to 10, the frames to be sent."""


def slow_terms(count: int) -> str:
    """A filter whose regular expressions take very long."""
    return " OR ".join(f"/v LIKE '(a+)+[x-z]{{{number + 1}}}$'" for number in range(count))


def long_searches(much: int) -> Iterator[bytes]:
    """Queries and subscriptions with costly patterns, on records of 5 KB."""
    for number in range(20):
        body = json.dumps({"id": number, "v": "a" * 5000 + "b"}).encode()
        yield frame({"c": "p", "t": "records"}, body)
    yield frame({"c": "sow", "t": "records", "query_id": "q", "f": slow_terms(10 * much)})
    yield frame({"c": "subscribe", "t": "evil", "sub_id": "l", "f": slow_terms(30 * much)})
    yield frame({"c": "p", "t": "evil"}, json.dumps({"v": "a" * 10_000 + "b"}).encode())


def many_filters(much: int) -> Iterator[bytes]:
    """Subscriptions beyond what a connection may have, and a message for them."""
    for number in range(1_200 * much):
        filter_ = f"/a = {number} AND /b LIKE 'x{number}'"
        yield frame({"c": "subscribe", "t": "evil", "sub_id": str(number), "f": filter_})
    yield frame({"c": "p", "t": "evil"}, b'{"a":5,"b":"x5"}')
    yield frame({"c": "unsubscribe", "sub_id": "all"})


def many_expressions(much: int) -> Iterator[bytes]:
    """Subscriptions to regular expressions, costly ones among them, and new topics."""
    for number in range(600 + 100 * much):
        topic = f"^t.*x{number}$" if number % 2 else f"^(\\w+)+[!#]{{{number + 1}}}$"
        yield frame({"c": "subscribe", "t": topic, "sub_id": f"r{number}"})
    for limited in "(*LIMIT_MATCH=0).*", "(*UTF)(*LIMIT_DEPTH=0)(a|.)+":
        yield frame({"c": "subscribe", "t": limited, "sub_id": limited})
    for number in range(10 * much):
        yield frame({"c": "p", "t": f"topic_that_nobody_has_used{number}x5"}, b"{}")
    yield frame({"c": "unsubscribe", "sub_id": "all"})


def many_topics(much: int) -> Iterator[bytes]:
    """Messages to ever new topics, in the log and elsewhere."""
    for number in range(3_000 * much):
        yield frame({"c": "p", "t": f"{'log' if number % 3 == 0 else ''}topic-{number}"}, b"{}")


def long_lists(much: int) -> Iterator[bytes]:
    """Commands with more keys, bookmarks, ids and acks than they may have."""
    numbers = ",".join(map(str, range(15_000 * much)))
    for command in "sow", "sow_and_subscribe", "sow_delete":
        yield frame({"c": command, "t": "records", "sub_id": "k", "sow_keys": numbers})
    bookmarks = ",".join(f"{number}|7|" for number in range(1, 12_000 * much))
    yield frame({"c": "subscribe", "t": "log1", "sub_id": "b", "bm": bookmarks})
    yield frame({"c": "unsubscribe", "sub_id": numbers})
    yield frame({"c": "subscribe", "t": "t", "sub_id": "f", "f": f"/a IN ({numbers})"})
    yield frame({"c": "sow", "t": "records", "orderby": ",".join(["/a"] * 50_000)})
    yield frame({"c": "heartbeat", "a": ",".join(["processed"] * 50_000)})
    yield frame({"c": "sow_delete", "t": "records", "sow_keys": "1" * 3_000_000})


def large_filters(much: int) -> Iterator[bytes]:
    """Filters of 64 KB, as many as there may be and more, and larger ones."""
    values = ", ".join(f"'value number {number}'" for number in range(3000))
    for number in range(20 * much):
        yield frame(
            {"c": "subscribe", "t": "t", "sub_id": f"g{number}", "f": f"/a{number} IN ({values})"}
        )
    terms = " OR ".join(f"/f{number} = 1" for number in range(60_000))
    yield frame({"c": "subscribe", "t": "t", "sub_id": "terms", "f": terms})


def pipelined_queries(much: int) -> Iterator[bytes]:
    """Thousands of queries, sent without waiting for an answer."""
    for number in range(500 * much):
        yield frame({"c": "sow", "t": "records", "query_id": "q", "f": f"/a = {number}"})


ATTACKS: tuple[Attack, ...] = (
    long_searches,
    many_filters,
    many_expressions,
    many_topics,
    long_lists,
    large_filters,
    pipelined_queries,
)


def attack(server: RunningServer, what: Attack, much: int) -> None:
    """Do it on a connection of its own, and wait until it has been done, or refused."""
    with server.log_on(what.__name__) as peer:
        peer.socket.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            for part in what(much):
                peer.socket.sendall(part)
            peer.send({"c": "heartbeat", "cid": "done", "a": "processed"})
            while peer.receive(PATIENCE)[0].get("cid") != "done":
                pass


def inflate(server: RunningServer, much: int) -> None:
    """Send 100 KB that stand for a hundred MB of messages."""
    packer = zlib.compressobj(9)
    logon = frame({"c": "logon", "cid": "1", "client_name": "zlib", "mt": "json"})
    messages = frame({"c": "p", "t": "nobody"}, b"{}") * 100_000
    with server.connect() as peer:
        peer.socket.settimeout(PATIENCE)
        peer.socket.sendall(packer.compress(logon) + packer.flush(zlib.Z_SYNC_FLUSH))
        for _ in range(3 * much):
            peer.socket.sendall(packer.compress(messages) + packer.flush(zlib.Z_SYNC_FLUSH))


def begin_frames(server: RunningServer) -> None:
    """Send the beginnings of large frames, without a logon."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(server.connect())
            with contextlib.suppress(ConnectionError):
                peer.socket.sendall(struct.pack(">I", 190_000_000))
                for _ in range(19):
                    peer.socket.sendall(bytes(1_000_000))


class Hostile(threading.Thread):
    """Does all of that, and keeps what goes wrong.

    Args:
        server: to whom.
        much: how much of it there shall be, from 1 to 10.

    Attributes:
        problem: what that was.
    """

    def __init__(self, server: RunningServer, much: int) -> None:
        super().__init__(daemon=True)
        self._much = much
        self._server = server
        self.problem: Exception | None = None

    def run(self) -> None:
        """Do one after the other."""
        try:
            for what in ATTACKS:
                attack(self._server, what, self._much)
            inflate(self._server, self._much)
            begin_frames(self._server)
        except Exception as error:
            self.problem = error


def serve_all(peers: list[RawPeer], number: int) -> None:
    """Everybody publishes a message, and hears that of a neighbour."""
    for position, peer in enumerate(peers):
        topic = f"{'log' if position % 2 else 'any'}/{position}"
        peer.publish(topic, b"%d" % number)
    for position, peer in enumerate(peers):
        neighbour = (position + 1) % len(peers)
        header, body = peer.receive(PATIENCE)
        assert (header["t"].partition("/")[2], body) == (str(neighbour), b"%d" % number)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hostile_client_harms_nobody(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The others get everything, the server stays small, and no defect shows."""
    soak = pytestconfig.getoption("--long")
    count = SOAK_CLIENTS if soak else CLIENTS
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(tmp_path, elements=SERVED))
        peers = [stack.enter_context(server.log_on(f"good-{number}")) for number in range(count)]
        for position, peer in enumerate(peers):
            assert peer.subscribe(f"/{(position + 1) % count}$", "1")["status"] == "success"
        serve_all(peers, 0)
        memory = resident_bytes(server.process.pid)
        hostile = Hostile(server, 10 if soak else 1)
        hostile.start()
        rounds, most = 0, memory
        while hostile.is_alive():
            rounds += 1
            serve_all(peers, rounds)
            most = max(most, resident_bytes(server.process.pid))
        assert hostile.problem is None
        serve_all(peers, rounds + 1)
        assert rounds > 10
        assert most - memory < MAX_GROWTH
        assert "01-0004" not in server.log()
        assert "Traceback" not in server.log()
