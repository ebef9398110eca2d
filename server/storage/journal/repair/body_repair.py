"""Repair of damaged bodies.

A record has the length, the offset and the checksum of its entry's bytes. So a body that fails its
checksum can be replaced by any bytes that pass it, whatever their source, and the log is as before.
For damaged records see `record_repair`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.storage.journal.format.entry import EVENTS
from server.storage.journal.format.layout import (
    BODY_CRC,
    BODY_LENGTH,
    BODY_START,
    CLIENT,
    EXTRAS_LENGTH,
    KIND,
    SEQUENCE,
    TXID,
    crc32c,
)
from server.storage.journal.format.records import CHUNK, read_bodies, read_body, read_rows

if TYPE_CHECKING:
    from server.storage.journal.files import FileTable, SourceCache
    from server.storage.journal.format.layout import EntryRow
    from server.storage.journal.storage import Disk


class DamagedBody(NamedTuple):
    """An entry with a damaged body.

    Attributes:
        txid: its txid.
        client: the identity of its publisher.
        sequence: its publisher's number; with the identity, its name on all instances.
        length: bytes of body and extras.
        checksum: checksum of these.
    """

    txid: int
    client: int
    sequence: int
    length: int
    checksum: int

    def matches(self, data: bytes) -> bool:
        """Return whether `data` is the body with extras."""
        return len(data) == self.length and crc32c(data) == self.checksum


class JournalBodyRepair:
    """Finds and replaces damaged bodies of a log.

    Args:
        table: the files of the log.
        cache: opens them.
        disk: writes to them.
    """

    def __init__(self, table: FileTable, cache: SourceCache, disk: Disk) -> None:
        self._table: Final = table
        self._cache: Final = cache
        self._disk: Final = disk

    def find_damaged_bodies(self, txid: int) -> list[DamagedBody]:
        """Find the entries with damaged bodies among some thousand from one on in the same file.

        Those of compressed files are left out, for they cannot be replaced.

        Raises:
            OSError: the file cannot be read.
        """
        file = self._table.find_repairable(txid)
        if file is None:
            return []
        source, start = self._cache.open(file.path), txid - file.first_txid
        end_txid = file.end_txid
        stop = start + CHUNK if end_txid is None else min(start + CHUNK, end_txid - file.first_txid)
        intact_rows = read_rows(source, file.first_txid, start, stop)
        rows = [row for row in intact_rows if row is not None and row[KIND] in EVENTS]
        bodies = read_bodies(source, rows)
        return [_damaged_body(row) for row, body in zip(rows, bodies, strict=True) if body is None]

    def is_in_compressed_file(self, txid: int) -> bool:
        """Return whether an entry is in a compressed file, in which nothing can be replaced."""
        file = self._table.find_by_txid(txid)
        return file is not None and file.is_compressed

    def replace_body(self, damaged: DamagedBody, data: bytes) -> bool:
        """Write a body to its place, on stable storage.

        Returns:
            Whether it is there now. It is not if it does not fit the entry, or if the file has
            changed.

        Raises:
            OSError: it cannot be written.
        """
        file = self._table.find_repairable(damaged.txid)
        if file is None:
            return False
        source, number = self._cache.open(file.path), damaged.txid - file.first_txid
        (row,) = read_rows(source, file.first_txid, number, number + 1) or [None]
        if row is None or _damaged_body(row) != damaged or not damaged.matches(data):
            return False
        self._disk.overwrite(file.path, [(row[BODY_START], data)])
        return read_body(source, row) == data


def _damaged_body(row: EntryRow) -> DamagedBody:
    length = row[BODY_LENGTH] + row[EXTRAS_LENGTH]
    return DamagedBody(row[TXID], row[CLIENT], row[SEQUENCE], length, row[BODY_CRC])
