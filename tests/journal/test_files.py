"""Archiving, compressing and removing while the log is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from server.journal import JournalError, Span, parse_bookmark
from server.journal.entry import Topic
from server.journal.index import unpack_index
from server.journal.naming import INDEX, sibling
from tests.journal.support import Bench, opened, read_all


def fill(bench: Bench, messages: int = 100, first: int = 1) -> None:
    for sequence in range(first, first + messages):
        topic = bench.journal.topic("json", f"topic{sequence % 5}")
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
        cursor = journal.replay(Span(0))
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


def test_a_reader_goes_on_behind_what_was_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        fill(bench)
        cursor = bench.journal.replay(Span(0))
        removed_end = bench.journal.files[0].end_txid
        bench.journal.remove(0)
        entries = cursor.read()
        assert removed_end is not None
        assert entries[0].txid >= removed_end


@pytest.mark.parametrize("with_topic_index", [True, False])
@pytest.mark.parametrize("topics", [["topic1"], ["topic0", "topic4"], []])
def test_only_wanted_topics_are_replayed(
    tmp_path: Path, with_topic_index: bool, topics: list[str]
) -> None:
    with opened(tmp_path, with_topic_index=with_topic_index) as bench:
        fill(bench)
        wanted = {Topic("json", name) for name in topics}
        cursor = bench.journal.replay(Span(0), wanted.__contains__)
        found = []
        while not cursor.is_caught_up:
            found += cursor.read(4)
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
        topic = bench.journal.topic("json", "a")
        for sequence in range(1, 40):
            bench.journal.append(topic, 1, sequence, bytes(50_000), correlation_id=b"cid")
        bench.journal.commit()
        file = bench.journal.files[0]
        index = unpack_index(sibling(file.path, INDEX).read_bytes())
        assert len(index.offsets) == 2 * index.count + 1
        lengths = np.diff(index.offsets)[::2]
        assert set(lengths.tolist()) == {50_000, len(topic.definition)}


def test_empty_files_are_ready_in_advance(tmp_path: Path) -> None:
    bench = Bench(tmp_path, preallocated=3)
    bench.journal.start()
    bench.journal.close()
    assert len(list(tmp_path.glob("*.journal"))) == 3
    with opened(tmp_path, preallocated=3) as bench:
        fill(bench)
        assert bench.journal.resolve(parse_bookmark("0")).after == bench.journal.first_txid - 1
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
