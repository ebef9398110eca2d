"""Compacts the small files of a table, without changing its rows for readers.

A table that follows a topic gets a file every few seconds. When enough files of about the same size
are in one folder, they are merged into one. So there are never many files, and each row is written
only a few times. A new folder is built of the merged file and of links to the other files, and
replaces the old folder atomically (`pipeline.files`).
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

from pipeline.atomic_swap import can_exchange
from pipeline.errors import PipelineError
from pipeline.files import FOLDER, JobState, JobTarget

MERGE_FACTOR: Final = 8
"""Files of similar size that are merged into one; sizes within this factor are similar."""
MERGE_SIZE_LIMIT: Final = 128 << 20
"""Size in bytes from which a file is not merged any more."""
_ROW_GROUP_BYTES: Final = 64 << 20
"""Bytes in memory per row group."""


class CompactedTable(JobTarget):
    """A directory of files in folders, which are compacted; see `JobTarget`."""

    def compact(self, state: JobState) -> int:
        """Merge the small files of each folder that has enough of them.

        Args:
            state: the state of the table.

        Returns:
            The number of files merged into others; 0 where the file system cannot exchange folders.

        Raises:
            PipelineError: a file is not valid. Nothing has changed.
        """
        removed = 0
        for folder in list(_folders(self.path)):
            while (group := _due(folder)) and can_exchange(self.work_folder):
                together = _made_again(folder, group, self.work_folder)
                self.swap_folder(together.parent, folder, together.name, state)
                removed += len(group)
        return removed


def _folders(path: Path) -> Iterator[Path]:
    """Yield the folders that contain files of a table."""
    for directory, folders, files in os.walk(path):
        folders[:] = [name for name in folders if name != FOLDER]
        if any(name.endswith(".parquet") for name in files):
            yield Path(directory)


def _due(folder: Path) -> list[Path]:
    """Return files to merge; none if there are not enough."""
    by_size: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        size = path.stat().st_size
        if size < MERGE_SIZE_LIMIT:
            by_size[_magnitude(size)].append(path)
    for files in by_size.values():
        if len(files) < MERGE_FACTOR:
            continue
        alike: dict[str, list[Path]] = defaultdict(list)
        for path in files:
            schema = pq.read_schema(path)
            if not _has_old_times(path):
                alike[schema.to_string()].append(path)
        for group in alike.values():
            if len(group) >= MERGE_FACTOR:
                return group
    return []


def _magnitude(size: int) -> int:
    magnitude = 0
    while size >= MERGE_FACTOR:
        size //= MERGE_FACTOR
        magnitude += 1
    return magnitude


def _has_old_times(path: Path) -> bool:
    """Return whether a file has times in a form that Arrow reads as another type (INT96)."""
    schema = pq.read_metadata(path).schema
    return any(schema.column(number).physical_type == "INT96" for number in range(len(schema)))


def _made_again(folder: Path, group: Sequence[Path], work: Path) -> Path:
    """Build a copy of a folder in which some files are merged; return the merged file.

    Raises:
        PipelineError: rows are missing.
    """
    new_folder = work / uuid.uuid4().hex
    new_folder.mkdir(parents=True)
    for path in folder.iterdir():
        if path not in group:
            os.link(path, new_folder / path.name)
    run = group[0].name.partition("-")[0]
    together = new_folder / f"{run}-{uuid.uuid4().hex}.parquet"
    _join(group, together)
    row_count = pq.read_metadata(together).num_rows
    expected = sum(pq.read_metadata(path).num_rows for path in group)
    if row_count != expected:
        raise PipelineError(
            f"{folder}: {len(group)} files with {expected} rows were merged into {row_count} rows"
        )
    return together


def _join(files: Sequence[Path], together: Path) -> None:
    """Merge files into one, and sync it."""
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
    """Yield the same rows in tables of the size of a row group."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending, schema)
