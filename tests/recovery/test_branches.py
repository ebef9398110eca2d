"""Names of messages that a log has lost: in a kill, by damage, or by a backup put back."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

ELEMENTS = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType>
    <MaxPerSubscriptionBacklog>1000</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <FlushInterval>{flush}</FlushInterval>
  <Topic><Name>^(jobs|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
QUICK = ELEMENTS.format(flush="1ms")
SLOW = ELEMENTS.format(flush="1s")  # only the first commit is made at once
LOST = 20
ATTEMPTS = 60
BACKLOG = "max_backlog=1000"


def publish(peer: RawPeer, topic: str, ids: range, first: int = 0) -> None:
    """Publish messages, numbered from `first` on if that is given, and wait until they are safe."""
    for place, number in enumerate(ids):
        numbered = {"s": first + place} if first else {}
        peer.send({"c": "publish", "t": topic} | numbered, b'{"id":%d}' % number)
    assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["a"] == "persisted"


def take(peer: RawPeer, count: int) -> list[tuple[int, str]]:
    """Receive messages: their ids and bookmarks."""
    got = list[tuple[int, str]]()
    while len(got) < count:
        header, body = peer.receive()
        if header["c"] == "p":
            got.append((json.loads(body)["id"], header["bm"]))
    return got


@contextmanager
def resumed(
    server: RunningServer, bookmark: str, options: str = ""
) -> Iterator[tuple[RawPeer, dict[str, Any]]]:
    """Subscribe to events from a bookmark on; gives the connection and the processed ack."""
    command = {"c": "subscribe", "cid": "r", "t": "events", "bm": bookmark, "o": options}
    with server.log_on("reader") as peer:
        yield peer, peer.ask(command | {"a": "processed"})


def lose_the_end(root: Path, topic: str, options: dict[str, str]) -> tuple[Path, list[str]]:
    """Kill servers until a subscriber has got more than the log has.

    Returns:
        The directory of the last server, and the names that its log has lost.
    """
    for attempt in range(ATTEMPTS):
        directory = root / str(attempt)
        directory.mkdir()
        names = _killed_while_it_delivers(directory, topic, options)
        with running_server(directory, elements=QUICK) as server:
            found = re.search(r"up to entry (\d+)", server.log())
        assert found is not None
        lost = [name for name in names if int(name.split("|")[1]) > int(found[1])]
        if lost:
            return directory, lost
    raise AssertionError("every message that was delivered has been written")


def _killed_while_it_delivers(directory: Path, topic: str, options: dict[str, str]) -> list[str]:
    with (
        running_server(directory, elements=SLOW) as server,
        server.log_on("subscriber") as subscriber,
        server.log_on("publisher") as publisher,
    ):
        command = {"c": "subscribe", "cid": "s", "t": topic, "a": "processed"}
        assert subscriber.ask(command | options)["status"] == "success"
        publish(publisher, topic, range(1))
        with publisher.at_once():
            for number in range(1, 1 + LOST):
                publisher.send({"c": "publish", "t": topic}, b'{"id":%d}' % number)
        names = [name for _, name in take(subscriber, 1 + LOST)]
        server.stop(signal.SIGKILL)
    return names


def test_a_late_acknowledgement_removes_no_other_message(tmp_path: Path) -> None:
    directory, lost = lose_the_end(tmp_path, "jobs", {"o": BACKLOG})
    with running_server(directory, elements=QUICK) as server, server.log_on("publisher") as peer:
        ack = {"c": "sow_delete", "cid": "a", "t": "jobs", "bm": ",".join(lost), "a": "persisted"}
        assert peer.ask(ack)["a"] == "persisted"
        publish(peer, "jobs", range(100, 100 + 2 * LOST))
        assert peer.ask(ack)["a"] == "persisted"
        with server.log_on("consumer") as consumer:
            consumer.send({"c": "subscribe", "cid": "s", "t": "jobs", "o": BACKLOG})
            got = take(consumer, 2 * LOST)
            while got[-1][0] != 99 + 2 * LOST:
                got += take(consumer, 1)
    assert [number for number, _ in got if number >= 100] == [*range(100, 100 + 2 * LOST)]
    assert not {name for _, name in got} & set(lost)


@pytest.mark.parametrize("options", ["", "live"])
def test_a_subscriber_that_is_ahead_of_the_log_gets_all_that_is_new(
    tmp_path: Path, options: str
) -> None:
    directory, lost = lose_the_end(tmp_path, "events", {"bm": "0", "o": "live"})
    for start in range(2):  # the runs are known in later runs, too
        with running_server(directory, elements=QUICK) as server:
            with server.log_on("publisher") as peer:
                publish(peer, "events", range(100 * (start + 1), 100 * (start + 1) + LOST))
            with resumed(server, lost[-1], options) as (peer, ack):
                assert ack["reason"] == "bookmark not found"
                got = [number for number, _ in take(peer, LOST * (start + 1))]
            assert got[:LOST] == [*range(100, 100 + LOST)]
            assert server.logs("1D-0029")
            with resumed(server, lost[-1], "bookmark_not_found=fail") as (_, ack):
                assert (ack["status"], ack["reason"]) == ("failure", "bookmark not found")


def place(server: RunningServer) -> str:
    """Return the name of the end of the log, as a count tells it."""
    command = {"c": "subscribe", "cid": "c", "t": "events", "bm": "[0:0|1|]", "o": "count"}
    with server.log_on("counter") as peer:
        told: str = peer.ask(command | {"a": "completed"})["opts"]
    return told.partition("places=[")[2].partition("]")[0]


def test_names_of_a_log_that_was_put_back_are_not_found(tmp_path: Path) -> None:
    """Not those of messages, nor those of places, whatever has been recorded since."""
    here, backup = tmp_path / "here", tmp_path / "backup"
    here.mkdir()
    with running_server(here, elements=QUICK) as server, server.log_on("publisher") as peer:
        publish(peer, "events", range(10))
        kept = place(server)
    shutil.copytree(here, backup)
    with running_server(here, elements=QUICK) as server, server.log_on("publisher") as peer:
        publish(peer, "events", range(10, 20))
        with resumed(server, "0") as (reader, _):
            lost = [take(reader, 20)[-1][1], place(server)]
    shutil.rmtree(here)
    backup.rename(here)
    with running_server(here, elements=QUICK) as server, server.log_on("publisher") as peer:
        publish(peer, "events", range(100, 120))
        for name in lost:
            with resumed(server, name, "bookmark_not_found=fail") as (_, ack):
                assert (ack["status"], ack["reason"]) == ("failure", "bookmark not found"), name
            with resumed(server, name, "bookmark_not_found=epoch") as (reader, ack):
                assert ack["reason"] == "bookmark not found", name
                assert len(take(reader, 30)) == 30
            with resumed(server, name) as (reader, ack):
                assert (ack["status"], ack["reason"]) == ("success", "bookmark not found"), name
                publish(peer, "events", range(200, 201))
                assert [number for number, _ in take(reader, 1)] == [200]
        with resumed(server, kept, "bookmark_not_found=fail") as (reader, ack):
            assert "reason" not in ack
            assert [number for number, _ in take(reader, 20)] == [*range(100, 120)]


@pytest.mark.parametrize("is_numbered", [True, False])
@pytest.mark.parametrize("field", [0, 16, 24], ids=["txid", "client", "sequence"])
def test_a_subscriber_whose_last_message_is_damaged_gets_what_follows(
    tmp_path: Path, is_numbered: bool, field: int
) -> None:
    with running_server(tmp_path, elements=QUICK) as server, server.log_on("publisher") as peer:
        publish(peer, "events", range(50), first=1 if is_numbered else 0)
        with resumed(server, "0") as (reader, _):
            names = [name for _, name in take(reader, 50)]
    journal = tmp_path / "journal" / "test-instance.0000000000.journal"
    content = bytearray(journal.read_bytes())
    body = content.find(b'{"id":24}')
    record = next(
        offset
        for offset in range(len(content) - 96, 0, -96)
        if content[offset + 88] == 1
        and int.from_bytes(content[offset + 56 : offset + 64], "little") == body
    )
    content[record + field] ^= 1
    journal.write_bytes(content)
    with running_server(tmp_path, elements=QUICK) as server:
        with resumed(server, names[24], "bookmark_not_found=fail") as (reader, ack):
            assert ack["status"] == "success"
            assert "damaged" in ack["detail"]
            assert [number for number, _ in take(reader, 25)] == [*range(25, 50)]
        assert server.logs("1D-0004")
