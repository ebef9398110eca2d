"""Copies a journal that is being written to, up to an entry.

The bytes of entries on stable storage do not change any more, so they can be read while later ones
are written. The copy ends like a journal after a clean end: with a durability watermark.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    CRC,
    EXTRAS_LENGTH,
    PAGE,
    RECORD,
    RECORD_SIZE,
    TXID,
    CommitMark,
    JournalFileHeader,
    crc32c,
    pack_header,
    pack_mark,
)

if TYPE_CHECKING:
    from pathlib import Path

    from server.storage.backup.file_copy import AbortCheck, CopiedFile

from server.storage.backup.file_copy import CopyWriter

_MAX_DAMAGED_RECORDS: Final = 4096
"""Damaged records at the end of the part that are skipped in search of the end of the bodies."""


def copy_journal(
    source: Path, header: JournalFileHeader, last_txid: int, target: Path, check: AbortCheck
) -> CopiedFile:
    """Copy the entries of a journal up to one on stable storage.

    Args:
        source: the journal, not compressed.
        header: its header.
        last_txid: the last entry to copy; before the first one for a journal without entries.
        target: the copy.
        check: called between two pieces.

    Raises:
        OSError: it cannot be copied.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        count = max(last_txid - header.first_txid + 1, 0)
        bodies_end = _find_bodies_end(descriptor, header, count)
        with CopyWriter(target, check) as writer:
            writer.write(pack_header(header))
            writer.skip_to(PAGE)
            writer.copy(descriptor, PAGE, bodies_end)
            records_start = header.size - RECORD_SIZE * count
            if records_start - RECORD_SIZE >= bodies_end:
                writer.skip_to(records_start - RECORD_SIZE)
                writer.write(pack_mark(CommitMark(header.first_txid + count, bodies_end)))
            writer.skip_to(records_start)
            writer.copy(descriptor, records_start, header.size)
            return writer.finish()
    finally:
        os.close(descriptor)


def _find_bodies_end(descriptor: int, header: JournalFileHeader, count: int) -> int:
    """Return the end of the bodies of the first `count` entries: that of the last intact one."""
    for number in range(count - 1, max(count - _MAX_DAMAGED_RECORDS, 0) - 1, -1):
        data = os.pread(descriptor, RECORD_SIZE, header.size - RECORD_SIZE * (number + 1))
        if len(data) < RECORD_SIZE:
            continue
        row = RECORD.unpack(data)
        if row[CRC] == crc32c(data[:-4]) and row[TXID] == header.first_txid + number:
            end: int = row[BODY_START] + row[BODY_LENGTH] + row[EXTRAS_LENGTH]
            return end
    return PAGE
