"""Appending, committing, and what happens when the disk does not want to."""

from __future__ import annotations

import errno
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from server.storage.journal import (
    Disk,
    EntryColumns,
    EntryTooLargeError,
    Journal,
    JournalError,
    JournalSettings,
    JournalUnavailableError,
    LogSpan,
    parse_bookmark,
)
from server.storage.journal.format.entry import JournalEntryKind, JournalTopic
from server.storage.journal.format.layout import crc32c
from tests.storage.journal.support import FILE, START, Bench, FailingDisk, opened, read_all


def test_an_entry_comes_back_as_it_was_given(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        journal = bench.journal
        txid = journal.append(
            journal.topic_handle("nvfix", "orders/\u00e9"),
            2**64 - 1,
            2**64 - 2,
            b"\x00\xff body",
            kind=JournalEntryKind.SOW_DELETE,
            sow_key=2**64 - 1,
            expiration=3600,
            origin=journal.origin_handle("ann", "A,B"),
            correlation_id=b"corr",
            given_key=b"ACC-1|AAPL",
            source_txid=17,
            source=18,
        )
        journal.commit()
        (entry,) = journal.entries()
        assert entry.txid == txid
        assert entry.timestamp == START
        assert (entry.client, entry.sequence) == (2**64 - 1, 2**64 - 2)
        assert entry.kind == JournalEntryKind.SOW_DELETE
        assert entry.topic == JournalTopic("nvfix", "orders/\u00e9")
        assert entry.body == b"\x00\xff body"
        assert (entry.sow_key, entry.expiration) == (2**64 - 1, 3600)
        assert (entry.correlation_id, entry.given_key) == (b"corr", b"ACC-1|AAPL")
        assert (entry.source_txid, entry.source) == (17, 18)
        assert (entry.origin.auth_id, entry.origin.path) == ("ann", "A,B")


def test_nothing_is_read_before_it_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        txid = bench.journal.append(bench.journal.topic_handle("json", "a"), 1, 1, b"x")
        assert read_all(bench.journal) == []
        assert bench.durable == []
        assert bench.journal.commit()
        assert bench.durable == [txid]
        assert [entry.txid for entry in read_all(bench.journal)] == [txid]


def test_topics_are_forgotten_with_the_file_that_has_their_numbers(tmp_path: Path) -> None:
    """A name that was recorded once takes memory for as long as its file is written to."""
    with opened(tmp_path) as bench:
        journal = bench.journal
        kept = journal.topic_handle("json", "kept")
        seen: list[weakref.ref[object]] = []
        while len(journal.files) < 3:
            for number in range(len(seen), len(seen) + 100):
                handle = journal.topic_handle("json", f"topic/{number}")
                journal.append(
                    handle, 1, 1, b"x" * 500, origin=journal.origin_handle(f"user {number}")
                )
                seen.append(weakref.ref(handle))
                del handle
            journal.append(kept, 1, 1, b"x")
            journal.commit()
        known = [number for number, handle in enumerate(seen) if handle() is not None]
        assert 0 < len(known) < len(seen) / 2
        assert known == list(range(known[0], len(seen)))
        again = seen[-1]()
        assert journal.topic_handle("json", f"topic/{len(seen) - 1}") is again
        assert journal.topic_handle("json", "kept") is kept
        recorded = [entry.topic.name for entry in read_all(journal)]
        assert set(recorded) == {"kept", *(f"topic/{number}" for number in range(len(seen)))}


def test_time_never_goes_back_in_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for step in (0, 5, -10, 3):
            bench.clock.now += step
            bench.journal.append(topic, 1, 1, b"x")
        bench.journal.commit()
        assert [one.timestamp - START for one in read_all(bench.journal)] == [0, 5, 5, 5]


def test_files_never_grow_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for sequence in range(1, 60):
            bench.journal.append(topic, 1, sequence, bytes(50_000))
        bench.journal.commit()
        assert len(bench.journal.files) == 3
        assert {file.path.stat().st_size for file in bench.journal.files} == {FILE}
        assert [one.sequence for one in read_all(bench.journal)] == list(range(1, 60))


@pytest.mark.parametrize("size", [FILE, 10 * FILE])
def test_what_no_file_can_hold_is_refused(tmp_path: Path, size: int) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        with pytest.raises(EntryTooLargeError, match="JournalSize"):
            bench.journal.append(topic, 1, 1, bytes(size))
        assert bench.journal.last_sequence(1) == 0
        bench.journal.append(topic, 1, 1, b"small")
        bench.journal.commit()
        assert [one.body for one in read_all(bench.journal)] == [b"small"]


@pytest.mark.parametrize("spare", range(-3, 4))
def test_bodies_that_fill_a_file_to_the_last_byte(tmp_path: Path, spare: int) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        bench.journal.append(topic, 1, 1, b"x")  # with a definition before it: two records
        definition = len(topic.definition)
        room = FILE - 4096 - 2 * 96 - definition - 1
        half = (room - 2 * 96) // 2
        bench.journal.append(topic, 1, 2, b"a" * half)
        bench.journal.append(topic, 1, 3, b"b" * (room - 2 * 96 - half - spare))
        bench.journal.append(topic, 1, 4, b"last")
        bench.journal.commit()
        bodies = [one.body[:4] for one in read_all(bench.journal)]
        assert bodies == [b"x", b"aaaa", b"bbbb", b"last"]
        assert len(bench.journal.files) == 2


@pytest.mark.parametrize("text", ["n" * 70_000, "\u00e9" * 40_000])
def test_names_beyond_all_reason_are_refused(tmp_path: Path, text: str) -> None:
    with opened(tmp_path) as bench:
        with pytest.raises(JournalUnavailableError, match="longer"):
            bench.journal.topic_handle("json", text)
        with pytest.raises(JournalUnavailableError, match="longer"):
            bench.journal.append(
                bench.journal.topic_handle("json", "a"), 1, 1, b"", correlation_id=text.encode()
            )


def test_a_full_disk_refuses_publishes_until_there_is_space(tmp_path: Path) -> None:
    disk = FailingDisk()
    with opened(tmp_path, disk) as bench:
        topic = bench.journal.topic_handle("json", "a")
        disk.full = True
        appended = 20  # what the file in use has room for
        for sequence in range(1, appended + 1):
            bench.journal.append(topic, 1, sequence, bytes(50_000))
        for _ in range(3):
            with pytest.raises(JournalUnavailableError, match="No space left on device"):
                bench.journal.append(topic, 1, appended + 1, bytes(50_000))
        assert bench.journal.commit()
        assert bench.journal.last_sequence(1) == appended
        assert len(read_all(bench.journal)) == appended
        disk.full = False
        bench.journal.append(topic, 1, appended + 1, bytes(50_000))
        bench.journal.commit()
        assert [one.sequence for one in read_all(bench.journal)] == list(range(1, appended + 2))


def test_a_failing_disk_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    disk = FailingDisk()
    with opened(tmp_path, disk) as bench:
        topic = bench.journal.topic_handle("json", "a")
        bench.journal.append(topic, 1, 1, b"one")
        bench.journal.commit()
        bench.journal.append(topic, 1, 2, b"two")
        disk.broken = True
        assert not bench.journal.commit()
        assert bench.journal.write_error is not None
        with pytest.raises(JournalUnavailableError, match="Input/output error"):
            bench.journal.append(topic, 1, 3, b"three")
        assert [one.body for one in read_all(bench.journal)] == [b"one"]
        assert not bench.journal.commit()
        disk.broken = False
        assert bench.journal.commit()
        assert bench.journal.write_error is None
        bench.journal.append(topic, 1, 3, b"three")
        bench.journal.commit()
        assert [one.body for one in read_all(bench.journal)] == [b"one", b"two", b"three"]
        assert bench.events().count("WRITE_FAILED") == 1
        assert bench.events().count("WRITE_RESUMED") == 1
    with opened(tmp_path) as bench:
        assert [one.body for one in read_all(bench.journal)] == [b"one", b"two", b"three"]


def test_a_number_that_a_failing_disk_has_not_taken_is_not_known_after_the_close(
    tmp_path: Path,
) -> None:
    """Its publisher sends it again, and must not be told that it is a duplicate."""

    class StuckDisk(Disk):
        is_stuck = False

        def commit(self, *parts: Any) -> None:
            if self.is_stuck:
                raise OSError(errno.EIO, "Input/output error")
            super().commit(*parts)

    disk = StuckDisk()
    with opened(tmp_path, disk) as bench:
        topic = bench.journal.topic_handle("json", "a")
        bench.journal.append(topic, 1, 1, b"one")
        bench.journal.commit()
        disk.is_stuck = True
        bench.journal.append(topic, 1, 2, b"two")
    with opened(tmp_path) as bench:
        assert bench.journal.last_sequence(1) == 1


def test_topics_that_come_first_while_the_disk_fails_have_their_names_afterwards(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    with opened(tmp_path, disk) as bench:
        journal = bench.journal
        bench.journal.append(journal.topic_handle("json", "a"), 1, 1, b"one")
        disk.broken = True
        assert not journal.commit()
        handles = {
            number: (journal.topic_handle("json", name), journal.origin_handle(user, "A"))
            for number, (name, user) in enumerate((("b", "ann"), ("c", "bob")))
        }
        data = [b"two", b"three"]
        checksums = list(map(crc32c, data))
        content = EntryColumns([0, 1], 2, [1, 2], [1, 2], 9, 1, 0, 0, 0, checksums, data)
        assert isinstance(journal.append_copies(handles, content).problem, JournalUnavailableError)
        disk.broken = False
        assert journal.commit()
        assert journal.append_copies(handles, content).end == len(data)
        journal.commit()
    with opened(tmp_path) as bench:
        found = [(one.topic.name, one.origin.auth_id, one.body) for one in read_all(bench.journal)]
        assert found == [("a", "", b"one"), ("b", "ann", b"two"), ("c", "bob", b"three")]


def test_threads_commit_what_is_appended(tmp_path: Path) -> None:
    reached = threading.Event()
    last = 3_000

    def on_durable(txid: int) -> None:
        if txid >= target[0]:
            reached.set()

    target = [2**64]
    settings = JournalSettings("TEST", tmp_path, file_size=FILE, flush_interval=1_000)
    journal = Journal(settings, lambda: START, on_durable, lambda _: None)
    journal.start()
    topic = journal.topic_handle("json", "a")
    for sequence in range(1, last):
        journal.append(topic, 1, sequence, bytes(1_000))
    target[0] = journal.append(topic, 1, last, b"last")
    assert reached.wait(60) or journal.durable_txid == journal.last_txid
    assert [one.sequence for one in read_all(journal)] == list(range(1, last + 1))
    journal.close()
    assert len(list(tmp_path.glob("*.index.gz"))) == len(journal.files) - 1


def test_more_than_may_wait_is_written_before_more_is_accepted(tmp_path: Path) -> None:
    with opened(tmp_path, file_size=256 << 20) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for sequence in range(1, 100):
            bench.journal.append(topic, 1, sequence, bytes(1 << 20))
        assert bench.durable  # without a thread, appending itself made room
        bench.journal.commit()
        assert sum(len(one.body) for one in read_all(bench.journal)) == 99 << 20


def test_a_directory_belongs_to_one_instance_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(JournalError, match="in use"):
        Bench(tmp_path)


def test_a_journal_says_when_publishers_should_wait(tmp_path: Path) -> None:
    """Long before it has to hold them up itself, and no longer once everything is written."""
    with opened(tmp_path, file_size=100 << 20) as bench:
        topic = bench.journal.topic_handle("json", "a")
        crowded = []
        for sequence in range(1, 41):
            bench.journal.append(topic, 1, sequence, bytes(1 << 20))
            crowded.append(bench.journal.is_backlogged)
        assert not any(crowded[:31])
        assert all(crowded[32:])
        assert not bench.durable
        bench.journal.commit()
        assert not bench.journal.is_backlogged


def test_replay_goes_over_to_live_without_gap_or_repetition(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        cursor = bench.journal.replay(bench.journal.resolve_bookmark(parse_bookmark("0")))
        seen = []
        for sequence in range(1, 500):
            txid = bench.journal.append(topic, 1, sequence, bytes(4_000))
            if sequence % 7 == 0:
                bench.journal.commit()
            seen += [entry.sequence for entry in cursor.read(sequence % 5)]
        bench.journal.commit()
        while not cursor.is_caught_up:
            seen += [entry.sequence for entry in cursor.read(10)]
        assert seen == list(range(1, 500))
        assert cursor.position == txid == bench.journal.durable_txid


def test_one_read_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for sequence in range(1, 101):
            bench.journal.append(topic, 1, sequence, bytes(1_000))
        bench.journal.commit()
        cursor = bench.journal.replay(LogSpan(0))
        assert len(cursor.read(7)) <= 7
        assert sum(len(one.body) for one in cursor.read(100, 10_000)) <= 11_000


def test_starting_and_stopping_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    for round_ in range(60):
        bench = Bench(tmp_path)
        bench.journal.start()
        topic = bench.journal.topic_handle("json", "a")
        for _ in range(round_ % 4):
            bench.journal.append(topic, 1, bench.journal.last_sequence(1) + 1, b"x")
        bench.journal.close()
        assert bench.journal.durable_txid == bench.journal.last_txid
    with opened(tmp_path) as bench:
        assert [one.sequence for one in read_all(bench.journal)] == list(range(1, 91))
