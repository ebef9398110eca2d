"""Entries whose bodies are damaged: what is missing, and putting it back in place.

A record says which bytes belong to its entry: how many, where, and their checksum. So a body that
does not check can be replaced by anything that does, wherever that comes from, and the log is what
it was. A damaged record says nothing; see `restoring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.journal.entry import EVENTS
from server.journal.layout import (
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
from server.journal.records import CHUNK, read_bodies, read_body, read_rows

if TYPE_CHECKING:
    from server.journal.files import FileTable, SourceCache
    from server.journal.layout import Row
    from server.journal.storage import Disk


class Damaged(NamedTuple):
    """An entry whose body is damaged.

    Attributes:
        txid: its number.
        client: the identity of its publisher.
        sequence: its publisher's number; with the identity, its name on all instances.
        length: bytes of body and extras.
        checksum: of these.
    """

    txid: int
    client: int
    sequence: int
    length: int
    checksum: int

    def is_body(self, data: bytes) -> bool:
        """Whether some bytes are what is missing."""
        return len(data) == self.length and crc32c(data) == self.checksum


class Mending:
    """Finds damaged bodies of a log, and replaces them.

    Args:
        table: the files of the log.
        cache: opens them.
        disk: how to write to them.
    """

    def __init__(self, table: FileTable, cache: SourceCache, disk: Disk) -> None:
        self._table: Final = table
        self._cache: Final = cache
        self._disk: Final = disk

    def damaged(self, txid: int) -> list[Damaged]:
        """The entries with damaged bodies, of some hundred from one on in the same file.

        Those of compressed files are not among them, for they cannot be replaced.

        Raises:
            OSError: the file cannot be read.
        """
        file = self._table.mendable(txid)
        if file is None:
            return []
        source, start = self._cache.open(file.path), txid - file.first_txid
        end = file.end_txid
        stop = start + CHUNK if end is None else min(start + CHUNK, end - file.first_txid)
        found = read_rows(source, file.first_txid, start, stop)
        rows = [row for row in found if row is not None and row[KIND] in EVENTS]
        bodies = read_bodies(source, rows)
        return [_damaged(row) for row, body in zip(rows, bodies, strict=True) if body is None]

    def is_compressed(self, txid: int) -> bool:
        """Whether an entry is in a file in which nothing can be replaced."""
        file = self._table.covering(txid)
        return file is not None and file.is_compressed

    def mend(self, damaged: Damaged, data: bytes) -> bool:
        """Put a body in place, on stable storage.

        Returns:
            Whether it is there now. It is not if it is none of this entry, or the file is not what
            it was.

        Raises:
            OSError: it cannot be written.
        """
        file = self._table.mendable(damaged.txid)
        if file is None:
            return False
        source, number = self._cache.open(file.path), damaged.txid - file.first_txid
        (row,) = read_rows(source, file.first_txid, number, number + 1) or [None]
        if row is None or _damaged(row) != damaged or not damaged.is_body(data):
            return False
        self._disk.replace(file.path, [(row[BODY_START], data)])
        return read_body(source, row) == data


def _damaged(row: Row) -> Damaged:
    length = row[BODY_LENGTH] + row[EXTRAS_LENGTH]
    return Damaged(row[TXID], row[CLIENT], row[SEQUENCE], length, row[BODY_CRC])
