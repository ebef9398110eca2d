"""Archiving, compressing and removing while the log is read."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from server.storage.journal import Disk, JournalError, LogSpan, parse_bookmark
from server.storage.journal.files import open_source
from server.storage.journal.format.entry import JournalTopic
from server.storage.journal.format.file_names import INDEX, sibling
from server.storage.journal.format.layout import RECORD_SIZE
from server.storage.journal.index import SequenceRange as IndexSpan
from server.storage.journal.index import build_index, unpack_index
from server.storage.journal.storage import MemorySource
from tests.storage.journal.support import Bench, opened, read_all, read_next


def fill(bench: Bench, messages: int = 100, first: int = 1) -> None:
    for sequence in range(first, first + messages):
        topic = bench.journal.topic_handle("json", f"topic{sequence % 5}")
        bench.journal.append(topic, 1, sequence, sequence.to_bytes(4, "big") * 10_000)
    bench.journal.commit()


@pytest.mark.parametrize("with_topic_index", [True, False])
def test_files_change_form_and_place_under_a_reader(tmp_path: Path, with_topic_index: bool) -> None:
    archive = tmp_path / "archive"
    directory = tmp_path / "journal"
    settings: dict[str, Any] = {"archive": archive, "with_topic_index": with_topic_index}
    with opened(directory, **settings) as bench:
        fill(bench)
        journal = bench.journal
        cursor = journal.replay(LogSpan(0))
        seen = [one.sequence for one in cursor.read(3)]
        journal.archive(0)
        seen += [one.sequence for one in cursor.read(3)]
        journal.compress(0)
        journal.compress(1)
        seen += [one.sequence for one in cursor.read(3)]
        journal.archive(1)
        journal.remove(0)
        while not cursor.is_caught_up:
            seen += [one.sequence for one in cursor.read(3)]
        assert seen == list(range(1, 101))
        names = {path.name for path in archive.iterdir()}
        assert "TEST.0000000001.journal.gz" in names
        assert "TEST.0000000001.index.gz" in names
        assert not [name for name in names if "0000000000" in name]
        remaining = [one.sequence for one in read_all(journal)]
        assert remaining == list(range(remaining[0], 101))
    with opened(directory, **settings) as bench:
        assert [one.sequence for one in read_all(bench.journal)] == remaining
        assert bench.journal.find(1, remaining[3]) is not None
        assert bench.journal.find(1, 1) is None


def test_what_must_not_be_touched_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        fill(bench)
        last = bench.journal.files[-1].number
        with pytest.raises(JournalError, match="being written"):
            bench.journal.compress(last)
        with pytest.raises(JournalError, match="older"):
            bench.journal.remove(1)
        with pytest.raises(JournalError, match="no journal file"):
            bench.journal.compress(77)
        with pytest.raises(JournalError, match="JournalArchiveDirectory"):
            bench.journal.archive(0)


class Killed(BaseException):
    """The process is no more."""


class DyingDisk(Disk):
    """Lets the process die at one of the changes that it makes."""

    def __init__(self) -> None:
        self.changes = 0
        self.dies_at = 0

    def begin(self, dies_at: int) -> None:
        """Count from now on."""
        self.changes, self.dies_at = 0, dies_at

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)
        self._change()

    def remove(self, path: Path) -> None:
        if path.exists():
            self._change()
        super().remove(path)

    def _change(self) -> None:
        self.changes += 1
        if self.changes == self.dies_at:
            raise Killed


@pytest.mark.parametrize("operation", ["archive", "compress", "remove"])
@pytest.mark.parametrize("dies_at", range(1, 9))
def test_a_crash_at_any_moment_loses_nothing(tmp_path: Path, operation: str, dies_at: int) -> None:
    """And what it leaves twice does not come back when the file has been removed."""
    directory, archive = tmp_path / "journal", tmp_path / "archive"
    disk = DyingDisk()
    bench = Bench(directory, disk, archive=archive, with_topic_index=True)
    fill(bench)
    disk.begin(dies_at)
    with suppress(Killed):
        getattr(bench.journal, operation)(0)
    disk.begin(0)
    bench.journal.close()
    with opened(directory, archive=archive) as bench:
        found = [one.sequence for one in read_all(bench.journal)]
        assert found == list(range(found[0], 101))
        assert found[0] == 1 or operation == "remove"
        for number in range(2):
            if bench.journal.files[0].number == number:
                bench.journal.remove(number)
        found = [one.sequence for one in read_all(bench.journal)]
    with opened(directory, archive=archive) as bench:
        assert [one.sequence for one in read_all(bench.journal)] == found
        assert bench.journal.files[0].number == 2
        assert bench.journal.last_sequence(1) == 100


def test_what_is_given_up_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path, file_size=48 << 20) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for sequence in (1, 2, 3):
            bench.journal.append(topic, 1, sequence, os.urandom(20 << 20))
            bench.journal.commit()
        refused: list[str] = []

        def compress() -> None:
            try:
                bench.journal.compress(0)
            except JournalError as error:
                refused.append(str(error))

        thread = threading.Thread(target=compress)
        thread.start()
        while not list(tmp_path.glob("*.gz.tmp")) and thread.is_alive():
            time.sleep(0.001)
        bench.journal.abort_archiving()
        thread.join()
        assert refused == ["given up: the instance is stopping"]
        assert not list(tmp_path.glob("*.tmp"))
        assert [one.sequence for one in read_all(bench.journal)] == [1, 2, 3]


def test_a_file_that_cannot_be_removed_stays_part_of_the_log(tmp_path: Path) -> None:
    class Stubborn(Disk):
        def remove(self, path: Path) -> None:
            if path.suffix == ".journal":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            super().remove(path)

    with opened(tmp_path, Stubborn()) as bench:
        fill(bench)
        with pytest.raises(JournalError, match=r"cannot be removed: .*Permission denied"):
            bench.journal.remove(0)
        with pytest.raises(JournalError, match="older"):
            bench.journal.remove(1)
        assert [one.sequence for one in read_all(bench.journal)] == list(range(1, 101))


def test_what_a_reader_has_missed_with_removed_files_is_known(tmp_path: Path) -> None:
    """Also after a start, unless a kill has left more in the record than has been removed."""
    with opened(tmp_path / "log") as bench:
        begin = bench.journal.first_txid
        once = bench.journal.append(bench.journal.topic_handle("json", "once"), 2, 1, b"x")
        fill(bench)
        bench.journal.remove(0)
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
        bench.journal.remove(1)

    def missed(bench: Bench, after: int, topic: str = "once") -> int | None:
        journal = bench.journal
        assert not journal.has_unknown_removals
        removal = journal.find_last_removal(lambda found: found.name == topic, after)
        return None if removal is None else removal.txid

    with opened(tmp_path / "log") as bench:
        last = bench.journal.first_txid - 1
        assert [missed(bench, after) for after in (begin - 2, begin - 1, once - 1, once, last)] == [
            last,  # unknown
            once,
            once,
            None,
            None,
        ]
        assert once < (missed(bench, once, "topic1") or 0) <= last
    (record,) = (tmp_path / "log").glob("*.removed.ack")
    shutil.copy(record, tmp_path / "killed")
    with opened(tmp_path / "killed") as bench:
        assert missed(bench, once, "topic1") == bench.journal.first_txid - 1


def test_a_reader_goes_on_behind_what_was_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        fill(bench)
        cursor = bench.journal.replay(LogSpan(0))
        removed_end = bench.journal.files[0].end_txid
        bench.journal.remove(0)
        entries = cursor.read()
        assert removed_end is not None
        assert entries[0].txid >= removed_end


@pytest.mark.parametrize("with_topic_index", [True, False])
@pytest.mark.parametrize("as_passage", [True, False])
@pytest.mark.parametrize("topics", [["topic1"], ["topic0", "topic4"], []])
def test_only_wanted_topics_are_replayed(
    tmp_path: Path, with_topic_index: bool, as_passage: bool, topics: list[str]
) -> None:
    with opened(tmp_path, with_topic_index=with_topic_index) as bench:
        fill(bench)
        wanted = {JournalTopic("json", name) for name in topics}
        cursor = bench.journal.replay(LogSpan(0), wanted.__contains__)
        found = []
        while not cursor.is_caught_up:
            found += read_next(cursor, 4, as_passage=as_passage)
        expected = [n for n in range(1, 101) if f"topic{n % 5}" in topics]
        assert [one.sequence for one in found] == expected
        assert cursor.position == bench.journal.durable_txid


def test_a_column_of_bodies_is_the_mapped_file_and_the_offsets(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        fill(bench)
        file = bench.journal.files[0]
        index = unpack_index(sibling(file.path, INDEX).read_bytes())
        with pyarrow.memory_map(str(file.path)) as mapped:
            column = pyarrow.Array.from_buffers(
                pyarrow.large_binary(),
                index.count,
                [None, pyarrow.py_buffer(index.offsets), mapped.read_buffer()],
            )
            bodies = [body for body in column.to_pylist() if len(body) == 40_000]
        entries = [one.body for one in read_all(bench.journal) if one.txid < (file.end_txid or 0)]
        assert bodies == entries


def test_with_extras_the_offsets_come_in_pairs(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for sequence in range(1, 40):
            bench.journal.append(topic, 1, sequence, bytes(50_000), correlation_id=b"cid")
        bench.journal.commit()
        file = bench.journal.files[0]
        index = unpack_index(sibling(file.path, INDEX).read_bytes())
        assert len(index.offsets) == 2 * index.count + 1
        lengths = np.diff(index.offsets)[::2]
        runs = len(bench.journal.run_history.begin_run(0))
        assert set(lengths.tolist()) == {50_000, len(topic.definition), runs}


def test_an_index_says_the_same_of_publishers_where_records_are_damaged(tmp_path: Path) -> None:
    """Many records are looked at together, unless one of them is damaged: then one by one."""
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "a")
        for number in range(60):
            client, sequence = number % 7, number // 7 * (number % 3 > 0)  # 0: it gives none
            bench.journal.append(topic, client, sequence, bytes(50_000))
        bench.journal.commit()
        file = bench.journal.files[0]
        count = (file.end_txid or 0) - file.first_txid
        entries = [one for one in read_all(bench.journal) if one.txid < file.first_txid + count]
    last = entries[-1]
    own = [one for one in entries if one.sequence != one.txid and one is not last]
    expected = {
        client: IndexSpan(
            min(one.sequence for one in own if one.client == client),
            max(one.sequence for one in own if one.client == client),
            max(one.timestamp for one in own if one.client == client),
        )
        for client in {one.client for one in own}
    }
    whole = build_index(open_source(file.path), 0, file.first_txid, count - 1)
    data = bytearray(file.path.read_bytes())
    data[file.size - RECORD_SIZE * count] ^= 1  # of the last record, which is left out above
    damaged = build_index(MemorySource(bytes(data)), 0, file.first_txid, count)
    assert whole.clients == damaged.clients == expected
    assert whole.offsets.tolist() == damaged.offsets.tolist()[:-1]


def test_empty_files_are_ready_in_advance(tmp_path: Path) -> None:
    bench = Bench(tmp_path, preallocated=3)
    bench.journal.start()
    bench.journal.close()
    assert len(list(tmp_path.glob("*.journal"))) == 3
    with opened(tmp_path, preallocated=3) as bench:
        fill(bench)
        assert (
            bench.journal.resolve_bookmark(parse_bookmark("0")).after_txid
            == bench.journal.first_txid - 1
        )
        assert [one.sequence for one in read_all(bench.journal)] == list(range(1, 101))


def test_the_index_of_a_full_file_is_used(tmp_path: Path) -> None:
    """It says which file it belongs to; one that belongs to another is not believed."""
    with opened(tmp_path) as bench:
        fill(bench)
    with opened(tmp_path) as bench:
        full = [file for file in bench.journal.files if file.seal is not None]
        assert len(full) > 1
        for file in full:
            index = file.read_index()
            assert index is not None
            assert index.number == file.number
        sibling(full[0].path, INDEX).write_bytes(sibling(full[1].path, INDEX).read_bytes())
        assert full[0].read_index() is None


def test_how_much_of_the_log_is_behind_an_entry(tmp_path: Path) -> None:
    with opened(tmp_path / "journal") as bench:
        fill(bench)  # 100 bodies of 40,000 bytes, in some files
        journal = bench.journal
        assert len(journal.files) > 2
        each = 40_000 + RECORD_SIZE
        whole = journal.estimate_bytes_after(0)
        assert 100 * each <= whole <= 102 * each
        assert journal.estimate_bytes_after(journal.last_txid) == 0
        for count in (10, 50, 100):  # names of topics and runs are entries, too
            behind = journal.estimate_bytes_after(journal.last_txid - count)
            assert 0.7 * each * count <= behind <= each * count, count
        second = journal.files[1].first_txid
        journal.remove(0)
        assert journal.estimate_bytes_after(0) == journal.estimate_bytes_after(second - 1) < whole
