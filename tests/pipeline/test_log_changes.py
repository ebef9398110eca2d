"""Streams that are started again after their log has changed: each change has one outcome.

No Spark runs: the reader of the stream is called as Spark calls it, and its offsets are all that is
left of it when it is started again.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.amps.source import AmpsDataSource
from pipeline.amps.stream import AmpsStreamReader
from pipeline.errors import DataLossError
from tests.pipeline.journals import columns
from tests.pipeline.topics import uri
from tests.support.old_journals import PER_FILE, fill
from tests.support.server import RunningServer, running_server

LOG: Final = """
<TransactionLog>
  <JournalDirectory>{directory}</JournalDirectory><JournalSize>10MB</JournalSize>
  <JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>others</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
READ: Final = 2 * PER_FILE + 5
"""Messages that the stream has read before the change."""
NEW: Final = 1000
"""The number of the first message after the change."""


@contextmanager
def instance(directory: Path, journals: str = "journal") -> Iterator[RunningServer]:
    """The server, which ends as an operator ends it before touching its files."""
    with running_server(directory, elements=LOG.format(directory=journals)) as server:
        yield server
        assert server.stop() == 0


class Checkpoint:
    """The offsets of a stream, and what Spark does with them."""

    def __init__(self, **options: str) -> None:
        self._options = {"topic": "orders"} | options
        self.begin: dict[str, Any] = {}
        self.end: dict[str, Any] = {}

    @contextmanager
    def reader(self, server: RunningServer) -> Iterator[AmpsStreamReader]:
        """The reader of a query that is started anew."""
        source = AmpsDataSource({"server": uri(server)} | self._options)
        reader = source.streamReader(columns("n long"))
        assert isinstance(reader, AmpsStreamReader)
        try:
            yield reader
        finally:
            reader.stop()

    def next(self, server: RunningServer) -> list[int]:
        """The rows of the next micro-batch."""
        with self.reader(server) as reader:
            begin = self.end or reader.initialOffset()
            reader.prepareForTriggerAvailableNow()
            end = reader.latestOffset(begin, ReadAllAvailable())
            self.begin, self.end = begin, json.loads(json.dumps(end))
            return rows(reader, self.begin, self.end)

    def repeated(self, server: RunningServer) -> list[int]:
        """The rows of the last micro-batch once more."""
        with self.reader(server) as reader:
            return rows(reader, self.begin, self.end)


def rows(reader: AmpsStreamReader, begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = [] if begin == end else reader.partitions(begin, end)
    return [n for part in parts for batch in reader.read(part) for n in batch["n"].to_pylist()]


def files(directory: Path, journals: str = "journal") -> list[Path]:
    return sorted(directory.joinpath(journals).glob("*.journal"))


def wipe(directory: Path, backup: Path) -> None:
    shutil.rmtree(directory / "journal")


def put_back(directory: Path, backup: Path) -> None:
    shutil.rmtree(directory / "journal")
    shutil.copytree(backup, directory / "journal")


def cut_what_was_read(directory: Path, backup: Path) -> None:
    first, *_ = files(directory)
    first.unlink()


def compress(directory: Path, backup: Path) -> None:
    for path in files(directory)[:2]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()


def archive(directory: Path, backup: Path) -> None:
    directory.joinpath("archive").mkdir(exist_ok=True)
    for path in files(directory)[:2]:
        shutil.move(path, directory / "archive")


def rename(directory: Path, backup: Path) -> None:
    directory.joinpath("journal").rename(directory / "renamed")


def leave(directory: Path, backup: Path) -> None:
    pass


GOES_ON: Final = [NEW]
WHOLE: Final = [*range(1, READ + 1)]
LOST: Final = "the position of this stream: journal files have been removed since"
INCOMPLETE: Final = f"the transaction log has .* of the {READ} messages of|does not contain"


class Case(NamedTuple):
    """What becomes of a stream.

    Attributes:
        change: changes the journals of the server, which does not run.
        next: the rows of the next micro-batch, or the error.
        lenient: its rows with `fail_on_data_loss=false`.
        repeated: the rows of the last micro-batch when it is repeated, or the error.
        journals: the directory of the journals afterwards.
    """

    change: Callable[[Path, Path], None]
    next: list[int] | str
    lenient: list[int]
    repeated: list[int] | str
    journals: str = "journal"


CASES: Final = [
    Case(leave, GOES_ON, GOES_ON, WHOLE),
    Case(rename, GOES_ON, GOES_ON, WHOLE, "renamed"),
    Case(compress, GOES_ON, GOES_ON, WHOLE),
    Case(archive, GOES_ON, GOES_ON, WHOLE),
    Case(cut_what_was_read, GOES_ON, GOES_ON, INCOMPLETE),
    Case(wipe, LOST, GOES_ON, INCOMPLETE),
    Case(put_back, LOST, [*range(1, PER_FILE + 6), NEW], INCOMPLETE),
]


@pytest.mark.parametrize("case", CASES, ids=[case.change.__name__ for case in CASES])
def test_a_stream_that_is_started_again(tmp_path: Path, case: Case) -> None:
    backup = tmp_path / "backup"
    strict, lenient = Checkpoint(), Checkpoint(failOnDataLoss="false")
    directory = tmp_path / "server"
    directory.mkdir()
    with instance(directory) as server:
        fill(server, 1, PER_FILE + 5)
    shutil.copytree(directory / "journal", backup)
    with instance(directory) as server:
        fill(server, PER_FILE + 6, READ)
        assert strict.next(server) == lenient.next(server) == WHOLE
    case.change(directory, backup)
    with instance(directory, case.journals) as server:
        fill(server, NEW, NEW)
        if isinstance(case.repeated, str):
            with pytest.raises(DataLossError, match=case.repeated):
                strict.repeated(server)
        else:
            assert strict.repeated(server) == case.repeated
        if isinstance(case.next, str):
            with pytest.raises(DataLossError, match=case.next):
                strict.next(server)
        else:
            assert strict.next(server) == case.next
        assert lenient.next(server) == case.lenient
        fill(server, NEW + 1, NEW + 1)
        assert lenient.next(server) == [NEW + 1]


def test_a_stream_whose_unread_messages_are_cut_off(tmp_path: Path) -> None:
    """The server has no record of a removal that was not its own: it cannot tell what is gone."""
    strict, lenient = Checkpoint(), Checkpoint(fail_on_data_loss="false")
    with instance(tmp_path) as server:
        fill(server, 1, 2)
        assert strict.next(server) == lenient.next(server) == [1, 2]
        fill(server, 3, READ)
    cut_what_was_read(tmp_path, tmp_path)
    with instance(tmp_path) as server:
        for stream in (strict, Checkpoint(topic="others", bookmark=strict.end["bookmark"])):
            with pytest.raises(DataLossError, match="removed; whether the topic had others is unk"):
                stream.next(server)
        assert lenient.next(server) == [*range(PER_FILE + 1, READ + 1)]
