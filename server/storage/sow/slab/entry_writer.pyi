"""Entries of a SOW file, many at once, in C; the theory of it is in entry_writer.pyx."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from mmap import mmap

from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.slab.map_guard import MapGuard

def write_run(
    mapped: mmap | bytearray, position: int, limit: int, epoch: int, run: SowRecordBatch, start: int
) -> array[int]:
    """Write entries for records of a run, as many as there is room for.

    Args:
        mapped: the slab.
        position: where in it the first of them goes; a multiple of 8.
        limit: where in it the last of them ends at most.
        epoch: the slab's epoch.
        run: the records, of the topic that entries need not name.
        start: the place of the first of them.

    Returns:
        The room that each takes; they follow on one another.

    Raises:
        ValueError: the columns of the run have different lengths, or the place is not in the slab.
    """

def place_run(
    rows: dict[str, int],
    locations: array[int],
    rooms: array[int],
    free: list[int],
    keys: Sequence[int],
    start: int,
    location: int,
    written: array[int],
) -> tuple[list[int], list[int], int]:
    """Let records be where entries have been written for them.

    Args:
        rows: by identity; new records are added.
        locations: of the entries, by rows.
        rooms: that they take, by rows.
        free: rows that are not in use; some are taken.
        keys: the SOW keys of a run.
        start: the place of the first of these that has an entry.
        location: of that entry.
        written: the room that each entry takes; they follow on one another.

    Returns:
        The rows of all of them, the rows that are of new records, and by how many bytes the records
        take more room than before.

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
    """Pass over entries that do not count any more, and write records that do anew.

    It stops early at what it does not know: past states, a record for which the other slab has no
    room, what is no entry, and when the file has lost its content.

    Args:
        guard: of the file.
        source: the slab that is cleaned.
        position: where in it the first entry is; a multiple of 8.
        end: where in it the entries end.
        amount: bytes that are to be cleaned, at least, if it can.
        source_start: the location of the slab's first byte.
        rows: by identity.
        locations: of the entries, by rows; those of what is written anew change.
        topic: of entries that name none, if identities have a topic; else None.
        target: the slab that is written to.
        to: where in it the first entry goes; a multiple of 8.
        target_start: the location of its first byte.
        epoch: its epoch.

    Returns:
        How far it has come in both slabs.

    Raises:
        ValueError: one of the places cannot be one in a slab.
    """
