"""Streams of journals that are archived, compressed and removed while somebody follows them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.errors import PipelineError
from pipeline.journal.options import read_options
from pipeline.journal.schema import JournalSchema
from pipeline.journal.stream import AmpsJournalStreamReader, JournalOffset
from tests.pipeline.journals import columns, journal, message


class Follower:
    """What Spark does with the reader of a stream, one micro-batch after the other."""

    def __init__(self, directory: Path, **options: str) -> None:
        given = read_options({"path": str(directory), **options})
        self._reader = AmpsJournalStreamReader(given, JournalSchema(columns("id long")))
        self.offset = self._reader.initialOffset()

    def rows(self, start: JournalOffset, end: dict[str, int]) -> list[int]:
        found: list[int] = []
        for piece in self._reader.partitions(start, end):
            for batch in self._reader.read(piece):
                found += batch["id"].to_pylist()
        return sorted(found)

    def latest(self) -> JournalOffset:
        return self._reader.latestOffset(self.offset, ReadAllAvailable())

    def next(self) -> list[int]:
        """The rows of the next batch."""
        start, self.offset = self.offset, self.latest()
        return self.rows(start, self.offset)


def write(directory: Path, ids: range, **more: Any) -> None:
    with journal(directory) as writer:
        for number in ids:
            writer.publish("t", message(number), client=7 + ids.start, **more)


def sealed(directory: Path) -> list[Path]:
    """All files but the one that is written to."""
    return sorted(directory.glob("*.journal"))[:-1]


def test_files_that_move_during_a_stream_are_found_where_they_are(tmp_path: Path) -> None:
    """Archived between two batches, and compressed between a batch's plan and its repetition."""
    here, archive = tmp_path / "here", tmp_path / "archive"
    archive.mkdir()
    write(here, range(5000))
    stream = Follower(here, archive=str(archive))
    begin = stream.offset
    assert stream.next() == list(range(5000))
    first = stream.offset
    for path in sealed(here):
        shutil.move(path, archive)
    write(here, range(5000, 9000))
    assert stream.next() == list(range(5000, 9000))
    for path in [*sealed(here), *archive.glob("*.journal")]:
        (archive / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
    assert stream.rows(begin, first) == list(range(5000)), "a batch that is repeated"
    assert stream.next() == []


def test_files_that_are_removed_before_they_were_read_are_missed(tmp_path: Path) -> None:
    write(tmp_path, range(100))
    stream, other = Follower(tmp_path), Follower(tmp_path, fail_on_data_loss="false")
    assert stream.next() == other.next() == list(range(100))
    write(tmp_path, range(100, 9000))
    gone = sealed(tmp_path)[:-1]
    assert len(gone) > 1
    for path in gone:
        path.unlink()
    with pytest.raises(PipelineError, match=r"do not have all entries from .*option archive"):
        stream.next()
    rest = other.next()
    assert rest == list(range(9000 - len(rest), 9000))


def test_a_topic_that_changes_its_message_type_goes_on(tmp_path: Path) -> None:
    """Each message is read as what it is; of a type that has no fields, the reader says so."""
    write(tmp_path, range(10))
    stream = Follower(tmp_path)
    assert stream.next() == list(range(10))
    with journal(tmp_path) as writer:
        for number in range(10, 15):
            writer.publish("t", b"id=%d\x01" % number, client=9, message_type="nvfix")
    assert stream.next() == list(range(10, 15))
    with journal(tmp_path) as writer:
        writer.publish("t", b"\x00", client=10, message_type="binary")
    with pytest.raises(PipelineError, match=r"binary.*options topic and message_type"):
        stream.next()
    json_only = Follower(tmp_path, message_type="json")
    assert json_only.next() == list(range(10))


def test_a_log_that_was_put_back_from_a_backup_is_not_taken_for_the_one_that_was_read(
    tmp_path: Path,
) -> None:
    """Whether it has fewer entries than were read by now, or more."""
    here, backup = tmp_path / "here", tmp_path / "backup"
    write(here, range(10))
    shutil.copytree(here, backup)
    write(here, range(10, 20))
    stream, other = Follower(here), Follower(here, fail_on_data_loss="false")
    assert stream.next() == other.next() == list(range(20))
    shutil.rmtree(here)
    shutil.copytree(backup, here)
    with pytest.raises(PipelineError, match=r"end with entry .* restored from a backup"):
        stream.next()
    write(here, range(100, 150))
    with pytest.raises(PipelineError, match=r"have another entry .* restored from a backup"):
        stream.next()
    assert other.next() == [*range(10), *range(100, 150)]
    write(here, range(150, 160))
    assert other.next() == list(range(150, 160))


def test_offsets_of_earlier_versions_count(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    stream = Follower(tmp_path)
    stream.next()
    stream.offset = {instance: place[0] for instance, place in stream.offset.items()}
    assert stream.next() == []
    write(tmp_path, range(10, 20))
    assert stream.next() == list(range(10, 20))
