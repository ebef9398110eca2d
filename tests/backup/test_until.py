"""amps-backup restore --until: the log ends at a moment or a message, and records follow it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.backup.support import (
    ELEMENTS,
    KEYS,
    amps_backup,
    content_of,
    create,
    instance,
    message,
    restored_instance,
)
from tests.support.raw import RawPeer
from tests.support.waiting import wait_until

LOGGED: Final = re.sub(r"<Topic>\s*<Name>unlogged.*?</Topic>", "", ELEMENTS, flags=re.DOTALL)
LAST: Final = 2_000


@dataclass(frozen=True)
class World:
    """A backup of messages 1 to `LAST`, in three journals, the first of which is compressed.

    Attributes:
        backup: the backup.
        halfway: a moment between the two halves of the messages.
        bookmarks: the bookmarks of the messages, by their numbers.
    """

    backup: Path
    halfway: str
    bookmarks: dict[int, str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("world")
    with instance(directory, LOGGED) as admin:
        with admin.server.log_on("world") as peer:
            _publish(peer, range(1, LAST // 2 + 1))
            time.sleep(0.05)
            halfway = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            time.sleep(0.05)
            _publish(peer, range(LAST // 2 + 1, LAST + 1))
        journals = "/amps/administrator/transaction_log/journals"
        first = admin.ask(f"{journals}.json").json
        name = first["amps"]["administrator"]["transaction_log"]["journals"][0]["id"]
        assert admin.ask(f"{journals}/{name}/compress").status == 200
        wait_until((directory / "journal" / f"{name}.gz").exists)
        backup = create(admin)
        with admin.server.log_on("reader") as peer:
            bookmarks = _bookmarks(peer)
    return World(backup, halfway, bookmarks)


def _publish(peer: RawPeer, numbers: range) -> None:
    for number in numbers:
        topic, body = message(number, 12_000)
        is_last = number == numbers[-1]
        peer.publish(topic, body, s=number, **({"a": "persisted"} if is_last else {}))
    while peer.receive_header().get("s") != numbers[-1]:
        pass


def _bookmarks(peer: RawPeer) -> dict[int, str]:
    everything = {"t": "orders|jobs", "bm": "0", "a": "completed"}
    peer.send({"c": "subscribe", "sub_id": "a"} | everything)
    bookmarks: dict[int, str] = {}
    while True:
        header, body = peer.receive()
        if header["c"] == "ack":
            return bookmarks
        bookmarks[json.loads(body)["n"]] = header["bm"]


@pytest.mark.parametrize("last", [1, 300, LAST // 2, 1_500, LAST])
def test_the_log_ends_with_a_message(world: World, tmp_path: Path, last: int) -> None:
    """In a compressed journal, a full one, or the last one."""
    _check(world, tmp_path, world.bookmarks[last], last)


def test_the_log_ends_at_a_moment(world: World, tmp_path: Path) -> None:
    _check(world, tmp_path, world.halfway, LAST // 2)


def _check(world: World, directory: Path, until: str, last: int) -> None:
    """Check that a restore until some point has all up to a message, and goes on from there."""
    target = directory / "restored"
    done = amps_backup("restore", world.backup.parent, "--to", target, "--until", until)
    assert done.returncode == 0, done.stderr
    with restored_instance(target) as server:
        content = content_of(server)
        assert not [line for line in server.log().splitlines() if " error: " in line]
    assert content.log == list(range(1, last + 1))
    assert content.records == {number % KEYS: number for number in range(1, last + 1, 2)}
    assert content.queue == set(range(2, last + 1, 2))


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        ("yesterday", "neither a time such as"),
        ("1|2|", "no message with the bookmark 1|2|"),
        ("2001-01-01T00:00:00Z", "begins after that time"),
    ],
)
def test_a_point_that_is_not_in_the_backup_is_refused(
    world: World, tmp_path: Path, until: str, reason: str
) -> None:
    _expect_refusal(world.backup, tmp_path, until, reason)


def _expect_refusal(backup: Path, directory: Path, until: str, reason: str) -> None:
    target = directory / "restored"
    done = amps_backup("restore", backup.parent, "--to", target, "--until", until)
    assert done.returncode == 1
    assert reason in done.stderr
    assert not target.exists()


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        (ELEMENTS, "unlogged.json.sow: its topic is not in the transaction log"),
        (
            LOGGED.replace("<SlabSize>", "<RecoveryPoint>now</RecoveryPoint><SlabSize>", 1),
            "RecoveryPoint now",
        ),
    ],
)
def test_records_that_are_not_in_the_log_are_not_rebuilt(
    tmp_path: Path, elements: str, reason: str
) -> None:
    with instance(tmp_path / "original", elements) as admin:
        with admin.server.log_on("world") as peer:
            _publish(peer, range(1, 11))
        backup = create(admin)
    bookmark = json.loads((backup / "manifest.json").read_text())["last_bookmark"]
    _expect_refusal(backup, tmp_path, bookmark, reason)
