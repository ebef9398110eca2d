"""A process that writes a log is killed at any moment; what it acknowledged must be there.

`make test-long` does it for longer.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from server.storage.journal import (
    Journal,
    JournalEntry,
    JournalError,
    JournalSettings,
    parse_bookmark,
)
from tests.storage.journal.support import FILE, opened, read_all
from tests.support.chances import chance_of, examples

LOGS: Final = examples(6, 3)
KILLS_OF_ONE_LOG: Final = 6
_TXID: Final = struct.Struct("<Q")
_CLIENTS: Final = 3


def message(number: int) -> tuple[int, int, bytes]:
    """The n-th message of every workload: client, sequence (0: without), body."""
    size = number * 7919 % 3_000
    client = 1 + number % _CLIENTS
    sequence = 0 if client == _CLIENTS else 1 + number // _CLIENTS
    return client, sequence, (number.to_bytes(4, "big") * (size // 4 + 1))


def write_until_killed(directory: Path, start: int, acknowledgements: int, seed: int) -> None:
    """What the process does: open, append, now and then tidy up, and tell what is durable."""
    chance = random.Random(seed)
    settings = JournalSettings(
        "TEST",
        directory / "journal",
        directory / "archive",
        file_size=FILE,
        flush_interval=chance.choice((1_000, 100_000_000)),
    )
    journal = Journal(
        settings,
        lambda: time.time_ns() // 1000,
        lambda txid: _tell(acknowledgements, txid),
        lambda _: None,
    )
    journal.start()
    topics = [journal.topic_handle("json", f"topic{number}") for number in range(5)]
    number = start
    while True:
        for _ in range(chance.randrange(200)):
            client, sequence, body = message(number)
            journal.append(topics[number % 5], client, sequence, body)
            number += 1
        if chance.random() < 0.05:
            with suppress(JournalError):
                file = chance.choice(journal.files)
                chance.choice((journal.archive, journal.compress))(file.number)
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.003)


def _tell(pipe: int, txid: int) -> None:
    os.write(pipe, _TXID.pack(txid))


def run_and_kill(directory: Path, start: int, chance: random.Random) -> int:
    """Let a process write for a while and kill it; returns the last txid that it acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(directory, start, writing, chance.randrange(2**32))
        finally:
            traceback.print_exc()
            os._exit(1)  # the test's own process must not go on twice
    os.close(writing)
    acknowledged = 0
    if chance.random() < 0.9:
        select.select([reading], [], [], 10)
    until = time.monotonic() + chance.random() ** 2 * 0.12
    while (left := until - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            acknowledged = _last(os.read(reading, 1 << 16), acknowledged)
    os.kill(child, signal.SIGKILL)
    while piece := os.read(reading, 1 << 16):
        acknowledged = _last(piece, acknowledged)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the process ended by itself"
    return acknowledged


def _last(piece: bytes, before: int) -> int:
    whole = len(piece) // _TXID.size * _TXID.size
    for (txid,) in _TXID.iter_unpack(piece[:whole]):
        before = max(before, txid)
    return before


def check(found: list[JournalEntry]) -> None:
    """Nothing is missing, nothing is there twice, everything is in order and as it was sent."""
    for number, entry in enumerate(found):
        client, sequence, body = message(number)
        assert entry.body == body
        assert entry.topic.name == f"topic{number % 5}"
        if sequence:
            assert (entry.client, entry.sequence) == (client, sequence)
        else:
            assert (entry.source_txid, entry.sequence) == (client, entry.txid)


@pytest.mark.long
@pytest.mark.parametrize("log", range(LOGS))
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, log: int) -> None:
    chance = chance_of(log)
    count = 0
    for _ in range(KILLS_OF_ONE_LOG):
        acknowledged = run_and_kill(tmp_path, count, chance)
        with opened(tmp_path / "journal", archive=tmp_path / "archive") as bench:
            journal = bench.journal
            assert journal.durable_txid >= acknowledged
            found = read_all(journal)
            check(found)
            assert not found or found[-1].txid == journal.durable_txid or count <= len(found)
            count = len(found)
            for client in range(1, _CLIENTS):
                own = [entry.sequence for entry in found if entry.client == client]
                assert journal.last_sequence(client) == max(own, default=0)
            if found:
                entry = chance.choice(found)
                span = journal.resolve_bookmark(parse_bookmark(entry.bookmark), "fail")
                assert span.after_txid == entry.txid
            assert "DAMAGED" not in bench.events()
