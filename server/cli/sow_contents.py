"""Reads the records of a SOW file, also of a running instance or from a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from server.cli.read_errors import SkipCounter
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.salvage import salvage
from server.storage.sow.slab.slab_file import DamagedFileError, SlabFile
from server.storage.sow.slab.slab_format import SlabEntryKind
from server.storage.sow.slab.slab_scan import scan
from server.storage.sow.store import RecordStoreError

_ATTEMPTS: Final = 3
"""Number of attempts. A file may change during a read: only damage in every attempt counts."""


class FileRecord(NamedTuple):
    """A record of the file.

    Attributes:
        record: the record; an empty topic stands for the file's own.
        location: the slab's index times the slab size, plus the position in the slab.
        checksum: checksum of the entry.
        allocated_bytes: bytes that the entry takes.
        is_past_state: True for a past state.
    """

    record: Record
    location: int
    checksum: int
    allocated_bytes: int
    is_past_state: bool


@dataclass(slots=True)
class SowFileContents:
    """The contents of a file.

    Attributes:
        records: identity -> location of its entry.
        entries: slab index -> number of entries in the slab.
        damage: description of the damage, None if the file is good.
        skipped: parts that cannot be read.
        changed_records: records that changed while they were read.
    """

    records: dict[tuple[object, ...], int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    damage: str | None = None
    skipped: SkipCounter = field(
        default_factory=lambda: SkipCounter("damaged part", "damaged parts")
    )
    changed_records: SkipCounter = field(
        default_factory=lambda: SkipCounter(
            "record that has changed meanwhile", "records that have changed meanwhile"
        )
    )


def read_contents(file: SlabFile) -> SowFileContents:
    """Find all records; in a damaged file, find the remaining ones and count the lost parts."""
    for _ in range(_ATTEMPTS):
        contents = SowFileContents()
        if file.has_lost_commit_points:
            damage = f"the commit points of {file.path} are damaged"
            break
        try:
            scan(file, lambda location, data: _apply_entry(file, contents, location, data))  # noqa: B023 - called at once
        except DamagedFileError as error:
            damage = str(error)
        else:
            return contents
    contents = SowFileContents(damage=damage)
    for gap in salvage(file, lambda location, data: _apply_entry(file, contents, location, data)):
        where = "a slab that is not there" if gap.offset is None else f"byte {gap.offset}"
        contents.skipped.add(gap.size, where)
    return contents


def records_of(file: SlabFile, contents: SowFileContents) -> Iterator[FileRecord]:
    """Yield the records, except records that a running instance has replaced in the meantime."""
    for location in contents.records.values():
        stored = _found(file, location)
        if stored is None:
            contents.changed_records.add(0, f"byte {file_offset(location)}")
        else:
            yield stored


def _apply_entry(file: SlabFile, contents: SowFileContents, location: int, data: bytes) -> None:
    """Apply an entry of the log."""
    slab = location // file.slab_size
    contents.entries[slab] = contents.entries.get(slab, 0) + 1
    kind = form.entry_kind(data)
    if kind in (SlabEntryKind.PAST, SlabEntryKind.PAST_DELETED, SlabEntryKind.DROPPED):
        identity: tuple[object, ...] = (form.entry_number(data),)
    else:
        record = form.decode_record(data, "")
        identity = (record.topic, record.key)
    if kind in (SlabEntryKind.DELETED, SlabEntryKind.DROPPED):
        contents.records.pop(identity, None)
    else:
        contents.records[identity] = location


def _found(file: SlabFile, location: int) -> FileRecord | None:
    try:
        data = file.read(location)
    except RecordStoreError:
        return None
    checksum = int.from_bytes(data[:4], "little")
    if len(data) < form.ENTRY.size or checksum != form.crc32c(data[4:]):
        return None
    return FileRecord(
        form.decode_record(data, ""),
        location,
        checksum,
        form.padded(len(data)),
        form.entry_kind(data) != SlabEntryKind.RECORD,
    )


def file_offset(location: int) -> int:
    """Return the offset in the file of a location."""
    return form.PAGE + location
