"""Journals cannot be read for a while: replays wait, and nothing is left out of them.

Files that cannot be opened or read are not damaged. So nobody is told that a replay is complete
before it is, and nobody gets the rest without what comes before.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.support.unreadable import Trouble
from tests.support.waiting import wait_until
from tests.transports.support import Authority, transport

ELEMENTS: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize><PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
MESSAGES: Final = 400
SIZE: Final = 60_000
FILES: Final = 60
"""That the server with few descriptors may open."""


def fill(server: RunningServer) -> None:
    """Publish messages that take several journals."""
    with server.log_on("publisher") as peer:
        for number in range(1, MESSAGES + 1):
            body = json.dumps({"n": number, "pad": "x" * SIZE}).encode()
            peer.publish("events", body, s=number)
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})


def numbers(peer: RawPeer) -> list[int]:
    """The messages that a replay sends, up to its completion."""
    found: list[int] = []
    while (frame := peer.receive())[0]["c"] == "p":
        found.append(json.loads(frame[1])["n"])
    assert (frame[0]["a"], frame[0]["status"]) == ("completed", "success"), frame[0]
    return found


def begin_replay(peer: RawPeer) -> None:
    peer.send(
        {"c": "subscribe", "cid": "r", "t": "events", "bm": "0", "a": "completed", "sub_id": "r"}
    )


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("open", errno.EMFILE),
        ("open", errno.ENFILE),
        ("open", errno.EIO),
        ("open", errno.EACCES),
        ("read", errno.EIO),
        ("read", errno.ENOMEM),
    ],
)
def test_a_replay_waits_until_the_log_can_be_read(tmp_path: Path, call: str, number: int) -> None:
    """Whether it is the first thing that it reads, or it is under way, or has caught up."""
    sign = tmp_path / "sign"
    with running_server(tmp_path, elements=ELEMENTS, prepare=Trouble(sign)) as server:
        fill(server)
        with server.log_on("follower") as follower, server.log_on("late") as late:
            begin_replay(follower)
            assert numbers(follower) == list(range(1, MESSAGES + 1))
            sign.write_text(f"{call} {number}")
            begin_replay(late)
            with server.log_on("publisher") as peer:
                peer.publish("events", b'{"n":401}', s=MESSAGES + 1, a="persisted")
                assert peer.receive_header()["status"] == "success"
            assert server.logs(f": {os.strerror(number)}; replays that need it wait")
            assert late.hears_nothing()
            sign.unlink()
            assert numbers(late) == list(range(1, MESSAGES + 2))
            assert json.loads(follower.receive()[1]) == {"n": MESSAGES + 1}
        assert server.logs("1D-0013", 1)
        assert "1D-0004" not in server.log()
        assert "Traceback" not in server.log()


def test_a_bookmark_that_cannot_be_looked_for_is_not_taken_for_missing(tmp_path: Path) -> None:
    """The subscription is refused; it does not begin at the end of the log."""
    sign = tmp_path / "sign"
    with running_server(tmp_path, elements=ELEMENTS, prepare=Trouble(sign)) as server:
        fill(server)
        sign.write_text(f"open {errno.EIO}")
        with server.log_on("reader") as peer:
            ack = peer.subscribe("events", "s", bm="1|5|", a="processed,completed")
            assert ack["status"] == "failure"
            assert "the transaction log cannot be read: " in ack["detail"]
            sign.unlink()
            peer.publish("events", b"{}")
            assert peer.hears_nothing()


def few_files() -> None:
    """Let the process open few files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def sockets(server: RunningServer) -> int:
    """How many sockets the server has, whether or not anybody has logged on over them."""
    descriptors = list(Path(f"/proc/{server.process.pid}/fd").iterdir())
    return sum(is_socket(descriptor) for descriptor in descriptors)


def is_socket(descriptor: Path) -> bool:
    """Whether a descriptor of a process is a socket; one that is closed by now is none."""
    with suppress(FileNotFoundError):
        return os.readlink(descriptor).startswith("socket:")
    return False


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "before the handshake"])
def test_connections_leave_descriptors_to_replays(tmp_path: Path, secured: bool) -> None:
    """Those that are one too many are closed, and said to be; who is there is served."""
    certificate, key = Authority(tmp_path, "servers").issue("localhost")
    files = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    port = free_port()
    tls = transport("tls", "tcps", f"<InetAddr>127.0.0.1:{port}</InetAddr>{files}")
    with running_server(tmp_path, elements=ELEMENTS, transports=tls, prepare=few_files) as server:
        fill(server)
        with server.log_on("reader") as peer:
            before = sockets(server)
            address = ("127.0.0.1", port if secured else server.port)
            crowd = [socket.create_connection(address) for _ in range(2 * FILES)]
            assert server.logs("11-0020")
            begin_replay(peer)
            assert numbers(peer) == list(range(1, MESSAGES + 1))
            for one in crowd:
                one.close()
            wait_until(lambda: sockets(server) <= before, "closed connections are still there")
        with server.log_on("later") as peer:
            begin_replay(peer)
            assert len(numbers(peer)) == MESSAGES
        assert server.logs("11-0020", 1)
        assert "1D-0013" not in server.log()


def test_a_journal_that_has_been_taken_away_is_waited_for(tmp_path: Path) -> None:
    """A replay does not go on behind it as if it had never been."""
    with running_server(tmp_path, elements=ELEMENTS) as server:
        fill(server)
        journal = tmp_path / "journal" / "test-instance.0000000000.journal"
        aside = journal.rename(journal.with_suffix(".aside"))
        with server.log_on("reader") as peer:
            begin_replay(peer)
            assert server.logs("the file is not there")
            aside.rename(journal)
            assert numbers(peer) == list(range(1, MESSAGES + 1))
