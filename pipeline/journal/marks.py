"""Marks of entries, by which a reader detects that a log is another branch than it has read.

A log that was restored from a backup continues with txids that it had given before. So a reader
that stores the txid of the last entry read stores a mark of that entry, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from pipeline.errors import DataLossError
from pipeline.journal.log import JournalSnapshot, open_journal
from server.storage.journal.format.layout import (
    BODY_CRC,
    CLIENT,
    KIND,
    LAG,
    LAG_UNKNOWN,
    SEQUENCE,
    SOURCE,
    TIMESTAMP,
    EntryRow,
)
from server.storage.journal.format.records import read_rows

UNKNOWN: Final = ""
"""The mark of an entry that cannot be read."""


def entry_mark(log: JournalSnapshot, txid: int, archive: Path | None) -> str:
    """Return the mark of an entry; `UNKNOWN` if it is missing or damaged.

    Args:
        log: the journals.
        txid: the txid of the entry.
        archive: the directory of archived journals.

    Raises:
        PipelineError: its journal file cannot be read.
    """
    row = _row(log, txid, archive)
    return UNKNOWN if row is None else f"{_name(row)}-{row[TIMESTAMP]}"


def has(log: JournalSnapshot, txid: int, mark: str, archive: Path | None) -> bool:
    """Return whether a mark may be that of an entry; see `entry_mark`.

    Raises:
        PipelineError: its journal file cannot be read.
    """
    row = _row(log, txid, archive) if mark else None
    if row is None:
        return True
    name, _, timestamp = mark.partition("-")
    # A record that was rebuilt after damage has the time of the one before it.
    return name == _name(row) and (str(row[TIMESTAMP]) == timestamp or row[LAG] == LAG_UNKNOWN)


def check_place(
    log: JournalSnapshot, reached: int, mark: str, archive: Path | None, job: str, advice: str
) -> None:
    """Check that a job can resume after the last entry that it has processed.

    Args:
        log: the journals.
        reached: the txid of that entry.
        mark: the mark of that entry; see `entry_mark`.
        archive: the directory of archived journals.
        job: the name of the job for an error.
        advice: the advice for an error.

    Raises:
        PipelineError: it cannot: this is another log, or one restored from a backup.
    """
    last = max(file.end_txid or 0 for file in log.files) - 1
    where = f"{log.files[-1].path.parent}: the journals of {log.instance}"
    if reached > last:
        raise DataLossError(
            f"{where} end at entry {last}, and {job} has reached {reached}: they belong to another"
            f" log, or this one was restored from a backup; {advice}"
        )
    if not has(log, reached, mark, archive):
        raise DataLossError(
            f"{where} have another entry {reached} than {job}: the log was restored from a"
            f" backup; {advice}"
        )


def _name(row: EntryRow) -> str:
    fields = (row[CLIENT], row[SEQUENCE], row[SOURCE], row[KIND], row[BODY_CRC])
    return xxh3_64_hexdigest(" ".join(map(str, fields)).encode())


def _row(log: JournalSnapshot, txid: int, archive: Path | None) -> EntryRow | None:
    for file in log.files:
        if file.seal is not None and file.first_txid <= txid < file.first_txid + file.seal.count:
            number = txid - file.first_txid
            source = open_journal(file.path, archive)
            return read_rows(source, file.first_txid, number, number + 1)[0]
    return None
