"""Puts the small files of a table together, without changing what anybody reads there.

A table that is kept in step with a topic gets a file every few seconds. Whenever some files of
about the same size lie in one folder, they become one: so that there are never many files, and each
row is written only a few times. A new folder is made of the large file and of links to those that
stay as they are, and takes the place of the old one at once (`pipeline.files`).
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import PipelineError
from pipeline.exchanging import can_exchange
from pipeline.files import FOLDER, State, Target

TOGETHER: Final = 8
"""Files of about the same size that become one; sizes within this factor are about the same."""
LARGE: Final = 128 << 20
"""Bytes from which on a file stays as it is."""
_GROUP: Final = 64 << 20
"""Bytes in memory that become one row group."""


class Table(Target):
    """A directory of files in folders, which stay few; see `Target`."""

    def compact(self, state: State) -> int:
        """Put small files together, wherever there are enough of them.

        Args:
            state: what is remembered of the table.

        Returns:
            How many files have become part of others; 0 where the file system cannot exchange
            folders.

        Raises:
            PipelineError: a file is not what it should be. Everything is as it was.
        """
        gone = 0
        for folder in list(_folders(self.path)):
            while (group := _due(folder)) and can_exchange(self.work):
                together = _made_again(folder, group, self.work)
                self.swap(together.parent, folder, together.name, state)
                gone += len(group)
        return gone


def _folders(path: Path) -> Iterator[Path]:
    """The folders with files of a table."""
    for directory, folders, files in os.walk(path):
        folders[:] = [name for name in folders if name != FOLDER]
        if any(name.endswith(".parquet") for name in files):
            yield Path(directory)


def _due(folder: Path) -> list[Path]:
    """Files that should become one; none if there are not enough."""
    by_size: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        size = path.stat().st_size
        if size < LARGE:
            by_size[_magnitude(size)].append(path)
    for files in by_size.values():
        if len(files) < TOGETHER:
            continue
        alike: dict[str, list[Path]] = defaultdict(list)
        for path in files:
            schema = pq.read_schema(path)
            if not _has_old_times(path):
                alike[schema.to_string()].append(path)
        for group in alike.values():
            if len(group) >= TOGETHER:
                return group
    return []


def _magnitude(size: int) -> int:
    magnitude = 0
    while size >= TOGETHER:
        size //= TOGETHER
        magnitude += 1
    return magnitude


def _has_old_times(path: Path) -> bool:
    """Whether times are in the form that Arrow reads as something else (INT96)."""
    schema = pq.read_metadata(path).schema
    return any(schema.column(number).physical_type == "INT96" for number in range(len(schema)))


def _made_again(folder: Path, group: Sequence[Path], work: Path) -> Path:
    """Make a folder like another one, but with some files in one; gives that.

    Raises:
        PipelineError: not all rows are there.
    """
    made = work / uuid.uuid4().hex
    made.mkdir(parents=True)
    for path in folder.iterdir():
        if path not in group:
            os.link(path, made / path.name)
    run = group[0].name.partition("-")[0]
    together = made / f"{run}-{uuid.uuid4().hex}.parquet"
    _join(group, together)
    there = pq.read_metadata(together).num_rows
    expected = sum(pq.read_metadata(path).num_rows for path in group)
    if there != expected:
        raise PipelineError(f"{folder}: {expected} rows of {len(group)} files became {there}")
    return together


def _join(files: Sequence[Path], together: Path) -> None:
    """Write the rows of files into one, on stable storage."""
    schema = pq.read_schema(files[0])
    with pq.ParquetWriter(together, schema) as writer:
        for table in _large(_batches(files), schema):
            writer.write_table(table, row_group_size=table.num_rows)
    with together.open("rb") as written:
        os.fsync(written.fileno())


def _batches(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _large(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in pieces that are worth a row group."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _GROUP:
            yield pa.Table.from_batches(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
