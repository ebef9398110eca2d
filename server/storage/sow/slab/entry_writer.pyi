"""Writes and cleans entries of a SOW file, in C; entry_writer.pyx has the theory of operation."""

from __future__ import annotations

from array import array
from mmap import mmap

from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.slab.map_guard import MapGuard

def write_batch(
    mapped: mmap | bytearray,
    position: int,
    limit: int,
    epoch: int,
    batch: SowRecordBatch,
    start: int,
    own_topic: str,
) -> array[int]:
    """Write entries for the records of a batch, as many as there is space for.

    Args:
        mapped: the slab.
        position: the position of the first entry in the slab; a multiple of 8.
        limit: the limit of the end of the last entry.
        epoch: the slab's epoch.
        batch: the records.
        start: the index of the first of them.
        own_topic: the topic that entries need not name.

    Returns:
        The size of each entry with padding; they are contiguous.

    Raises:
        ValueError: the columns of the batch have different lengths, or the position is not in the
            slab.
    """

def index_batch(
    rows: dict[str, int],
    locations: array[int],
    sizes: array[int],
    free: list[int],
    batch: SowRecordBatch,
    start: int,
    location: int,
    written: array[int],
) -> tuple[list[int], list[int], int]:
    """Set the locations of records to those of the entries written for them.

    Args:
        rows: the rows by identity; new records are added.
        locations: the locations of entries, by rows.
        sizes: the sizes of entries, by rows.
        free: rows that are not in use; some of them are used.
        batch: the records.
        start: the index of the first of them that has an entry.
        location: the location of that entry.
        written: the size of each entry with padding; they are contiguous.

    Returns:
        The rows of all of them, the rows of new records, and the number of bytes by which the
        records have grown.

    Raises:
        ValueError: there are more entries than keys.
    """

def clean(
    guard: MapGuard,
    source: mmap | bytearray,
    position: int,
    end: int,
    amount: int,
    source_start: int,
    rows: dict[str, int],
    locations: array[int],
    topic: str | None,
    target: mmap | bytearray,
    to: int,
    target_start: int,
    epoch: int,
) -> tuple[int, int]:
    """Skip superseded entries, and write live records again.

    It stops early at a past state, at a record for which the other slab has no space, at bytes that
    are no entry, and when the file has lost its content.

    Args:
        guard: the guard of the file.
        source: the slab to clean.
        position: the position of the first entry in that slab; a multiple of 8.
        end: the end of the entries in that slab.
        amount: bytes to clean, at least, if possible.
        source_start: the location of that slab's first byte.
        rows: the rows by identity.
        locations: the locations of entries, by rows; updated for entries written again.
        topic: the topic of entries that name none, if identities have a topic; else None.
        target: the slab to write to.
        to: the position of the first entry in that slab; a multiple of 8.
        target_start: the location of that slab's first byte.
        epoch: the epoch of that slab.

    Returns:
        The positions reached in both slabs.

    Raises:
        ValueError: one of the positions is not in a slab.
    """
