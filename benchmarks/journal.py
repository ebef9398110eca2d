"""What the transaction log costs, beside what the disk costs without it.

`python -m benchmarks.journal` prints, for bodies of 256 bytes and 1 KB: nanoseconds per append,
entries a second on stable storage from one and from eight publishers, the same bytes written and
synced by a bare loop at the same interval, entries a second replayed, and recovered. Then what
remains of that in a whole server: see `journal_server.py`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from amperage.wire.bookmarks import EPOCH
from benchmarks.journal_server import report
from server.storage.journal import Journal, JournalNotice, JournalSettings, parse_bookmark
from server.storage.journal.write.committer import MIN_COMMIT_INTERVAL_S

ENTRIES: Final = 200_000
_RECORD: Final = 96
_FILE: Final = 256 << 20


def _clock() -> int:
    return time.time_ns() // 1000


def _ignore(_: JournalNotice) -> None:
    pass


def open_journal(directory: Path) -> Journal:
    """A journal with files large enough that none becomes full."""
    return Journal(
        JournalSettings("bench", directory, file_size=_FILE, preallocated=1),
        _clock,
        lambda _: None,
        _ignore,
    )


def append(journal: Journal, body: bytes, publishers: int, entries: int) -> None:
    """Append as a number of publishers would, taking turns."""
    topic = journal.topic_handle("json", "orders")
    put = journal.append
    for sequence in range(1, entries // publishers + 1):
        for client in range(1, publishers + 1):
            put(topic, client, sequence, body)


def durable_rate(directory: Path, size: int, publishers: int) -> tuple[float, float]:
    """Entries a second until all are on stable storage, and nanoseconds per append on the way."""
    entries = min(ENTRIES, (_FILE - (1 << 20)) // (size + _RECORD))
    journal = open_journal(directory)
    _fill(journal)
    journal.start()
    started = time.perf_counter()
    append(journal, bytes(size), publishers, entries)
    appended = time.perf_counter()
    while journal.durable_txid < journal.last_txid:
        time.sleep(0.0005)
    finished = time.perf_counter()
    journal.close()
    return entries / (finished - started), (appended - started) / entries * 1e9


def ceiling(directory: Path, size: int) -> float:
    """Entries a second when a bare loop writes and syncs their bytes, one interval at a time."""
    entries = min(ENTRIES, (_FILE - (1 << 20)) // (size + _RECORD))
    path = directory / "ceiling"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    total = entries * (size + _RECORD)
    zeros = bytes(1 << 20)
    for offset in range(0, total, len(zeros)):
        os.pwrite(descriptor, zeros, offset)
    os.fsync(descriptor)
    piece = bytes(size + _RECORD)
    started = time.perf_counter()
    offset = written = 0
    while written < entries:
        begun = time.perf_counter()
        pieces: list[bytes] = []
        while written < entries and time.perf_counter() - begun < MIN_COMMIT_INTERVAL_S:
            pieces += [piece] * 64
            written += 64
        data = b"".join(pieces)
        os.pwrite(descriptor, data[: total - offset], offset)
        os.fdatasync(descriptor)
        offset = min(offset + len(data), total - len(data))
        offset = max(offset, 0)
    elapsed = time.perf_counter() - started
    os.close(descriptor)
    path.unlink()
    return written / elapsed


def replay_rate(directory: Path) -> float:
    """Entries a second that a replay of everything hands out."""
    journal = open_journal(directory)
    cursor = journal.replay(journal.resolve_bookmark(parse_bookmark(EPOCH)))
    started = time.perf_counter()
    count = 0
    while not cursor.is_caught_up:
        count += len(cursor.read())
    elapsed = time.perf_counter() - started
    journal.close()
    return count / elapsed


def recovery_rate(directory: Path, entries: int) -> float:
    """Entries a second that opening a journal goes through, with nothing to help it."""
    for helper in (*directory.glob("*.ack"), *directory.glob("*.index*")):
        helper.unlink()
    started = time.perf_counter()
    journal = open_journal(directory)
    elapsed = time.perf_counter() - started
    journal.close()
    return entries / elapsed


def append_cost(directory: Path, size: int) -> float:
    """Nanoseconds per append with nothing else going on; commits are not counted."""
    journal = open_journal(directory)
    times: list[float] = []
    for start in range(0, 40_000, 4_000):
        topic = journal.topic_handle("json", "orders")
        put, body = journal.append, bytes(size)
        started = time.perf_counter()
        for sequence in range(start + 1, start + 4_001):
            put(topic, 1, sequence, body)
        times.append((time.perf_counter() - started) / 4_000 * 1e9)
        journal.commit()
    journal.close()
    return statistics.median(times)


def _fill(journal: Journal) -> None:
    """Give the first file its zeros, as the ones after it get them in the background."""
    path = journal.files[0].path
    descriptor = os.open(path, os.O_RDWR)
    zeros = bytes(1 << 20)
    for offset in range(0, _FILE, len(zeros)):
        os.pwrite(descriptor, zeros, offset)
    os.fsync(descriptor)
    os.close(descriptor)


def _in_directory(measure: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        measure(Path(directory))


def main() -> None:
    """Print all figures."""
    for size in (256, 1024):

        def measure(directory: Path, size: int = size) -> None:
            cost = append_cost(directory / "cost", size)
            print(f"{size:5} B  append                    {cost:>12,.0f} ns")
            for publishers in (1, 8):
                rate, busy = durable_rate(directory / f"rate{publishers}", size, publishers)
                print(
                    f"{size:5} B  durable, {publishers} publisher(s)   {rate:>12,.0f} /s "
                    f"({busy:,.0f} ns per append while committing)"
                )
            print(f"{size:5} B  ceiling                   {ceiling(directory, size):>12,.0f} /s")
            rate = replay_rate(directory / "rate1")
            print(f"{size:5} B  replay                    {rate:>12,.0f} /s")
            entries = min(ENTRIES, (_FILE - (1 << 20)) // (size + _RECORD))
            rate = recovery_rate(directory / "rate1", entries)
            print(f"{size:5} B  recovery                  {rate:>12,.0f} /s")

        _in_directory(measure)
    report(ceiling)


if __name__ == "__main__":
    main()
