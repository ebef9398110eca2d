"""Finds entries by bookmark and by time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from server.storage.journal.clock_steps import ClockSteps
from server.storage.journal.files import FileTable, JournalFile, SourceCache
from server.storage.journal.format.layout import CLIENT, SEQUENCE, TIMESTAMP, TXID
from server.storage.journal.format.records import (
    CHUNK,
    columns,
    read_intact_records,
    read_rows,
    scan_columns,
)
from server.storage.journal.index import SequenceRange
from server.storage.journal.storage import ByteSource

_NEIGHBOURS: Final = 16  # entries to try for a timestamp when one is damaged


class EntryLookup:
    """Looks entries up in files; safe to use from any thread.

    Args:
        table: the files.
        cache: opens them.
        durable_txid: returns the last txid that can be read.
        steps: the steps of the wall clock, by place in the log.
    """

    def __init__(
        self,
        table: FileTable,
        cache: SourceCache,
        durable_txid: Callable[[], int],
        steps: ClockSteps,
    ) -> None:
        self._time_correction = steps.correction
        self._table = table
        self._cache = cache
        self._durable_txid = durable_txid
        self._publishers_by_file: dict[
            int, Mapping[int, SequenceRange]
        ] = {}  # by file number, of full files

    def find(self, client: int, sequence: int) -> int | None:
        """Return the txid of the entry with a bookmark, None if it is not in the log.

        Raises:
            OSError: a file that may have it cannot be read.
        """
        if self._is_entry_at(sequence, client, sequence):
            return sequence  # under a server-made identity, sequences are txids
        for file in reversed(self._table.files):
            span = self._sequence_range(file, client)
            if span is not None and span.first <= sequence <= span.last:
                txid = self._find_in_file(file, client, sequence)
                if txid is not None:
                    return txid
        return None

    def find_damaged_entry(self, client: int, sequence: int) -> int | None:
        """Return the txid of a damaged entry that a bookmark may name; None if there is none.

        Its record is damaged, but still has one of the two numbers, or stands between entries of
        the publisher with a lower and a higher number. The first of several such entries counts, so
        that a replay skips nothing after the named one.

        Raises:
            OSError: a file cannot be read.
        """
        for file in reversed(self._table.files):
            span = self._sequence_range(file, client)
            has_txid = file.first_txid <= sequence < file.first_txid + self._durable_count(file)
            if has_txid or (span is not None and span.first <= sequence <= span.last):
                txid = self._find_damaged_in_file(file, client, sequence)
                if txid is not None:
                    return txid
        return None

    def _find_damaged_in_file(self, file: JournalFile, client: int, sequence: int) -> int | None:
        source = self._open_file(file)
        if source is None:
            return None
        count, first_txid = self._durable_count(file), file.first_txid
        named_txids, damaged_txids = list[int](), list[int]()
        before, after = 0, first_txid + count  # entries of the publisher around the named one
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            rows = read_intact_records(source, first_txid, start, stop)
            block = columns(source, start, stop) if rows is None else rows
            if rows is None:
                intact = read_rows(source, first_txid, start, stop)
                damaged = np.array([row is None for row in intact])
                named = (block["client"] == client) | (block["sequence"] == sequence)
                named_txids += (first_txid + start + np.flatnonzero(damaged & named)).tolist()
                damaged_txids += (first_txid + start + np.flatnonzero(damaged)).tolist()
                block = block[~damaged]
            of_publisher = block[block["client"] == client]
            lower = of_publisher["txid"][of_publisher["sequence"] < sequence]
            higher = of_publisher["txid"][of_publisher["sequence"] > sequence]
            before = max(before, int(lower.max(initial=0)))
            after = min(after, int(higher.min(initial=after)))
        candidates = [txid for txid in named_txids if before < txid < after]
        if not candidates and before:
            candidates = [txid for txid in damaged_txids if before < txid < after]
        return candidates[0] if candidates else None

    def find_later(self, client: int, sequence: int, txid: int) -> int | None:
        """Return the txid of an entry with the same name, recorded after another one.

        Args:
            client: the identity of its publisher.
            sequence: its number.
            txid: txid of the other entry.

        Raises:
            OSError: a file cannot be read.
        """
        for file in self._table.files:
            if file.end_txid is not None and file.end_txid <= txid:
                continue
            span = self._sequence_range(file, client)
            if span is not None and span.first <= sequence <= span.last:
                later_txid = self._find_in_file(file, client, sequence, txid)
                if later_txid is not None:
                    return later_txid
        return None

    def invalidate_file(self, number: int) -> None:
        """Drop the cached publishers of a file, whose index has changed."""
        self._publishers_by_file.pop(number, None)

    def first_since(self, timestamp: int) -> int:
        """Return the txid of the first entry at a time or later.

        Args:
            timestamp: microseconds since the Unix epoch, by the wall clock as it is set now.

        Returns:
            The txid, or that of the next entry to come if there is none.

        Raises:
            OSError: a file cannot be read.
        """
        durable = self._durable_txid()
        files = [file for file in self._table.files if file.first_txid <= durable]
        index = bisect_left(files, timestamp, key=self._begin_timestamp)
        # Entries of that time may be at the end of the file before, or be the first of this one.
        for file in files[max(index - 1, 0) : index + 1]:
            source = self._open_file(file)
            if source is None:
                continue
            count = self._durable_count(file)
            number = bisect_left(
                range(count),
                timestamp,
                key=lambda number: self._entry_timestamp(source, file, number, count),
            )
            if number < count:
                return file.first_txid + number
        return durable + 1

    def _begin_timestamp(self, file: JournalFile) -> int:
        """Return the time when a file was begun, by the wall clock as it is set now."""
        return file.created + self._time_correction(file.first_txid)

    def _entry_timestamp(
        self, source: ByteSource, file: JournalFile, number: int, count: int
    ) -> int:
        """Return the time of an entry, or of one soon after it if that one is damaged."""
        rows = read_rows(source, file.first_txid, number, min(number + _NEIGHBOURS, count))
        times = (
            row[TIMESTAMP] + self._time_correction(row[TXID]) for row in rows if row is not None
        )
        return next(times, 0)

    def _is_entry_at(self, txid: int, client: int, sequence: int) -> bool:
        file = self._table.find_by_txid(txid)
        if file is None or not file.first_txid <= txid < file.first_txid + self._durable_count(
            file
        ):
            return False
        source = self._open_file(file)
        if source is None:
            return False
        number = txid - file.first_txid
        row = read_rows(source, file.first_txid, number, number + 1)[0]
        return row is not None and (row[CLIENT], row[SEQUENCE]) == (client, sequence)

    def _find_in_file(
        self, file: JournalFile, client: int, sequence: int, after: int = 0
    ) -> int | None:
        source = self._open_file(file)
        if source is None:
            return None
        for start, block in scan_columns(source, self._durable_count(file)):
            hits = np.flatnonzero((block["client"] == client) & (block["sequence"] == sequence))
            for hit in hits:
                number = start + int(hit)
                txid = file.first_txid + number
                if txid <= after:
                    continue
                if read_rows(source, file.first_txid, number, number + 1)[0] is not None:
                    return txid
        return None

    def _sequence_range(self, file: JournalFile, client: int) -> SequenceRange | None:
        """Return the range of sequences that a file may have of a publisher; None for none."""
        any_sequence = SequenceRange(0, 2**64 - 1, 0)
        if file.seal is None:
            return any_sequence
        clients = self._publishers_by_file.get(file.number)
        if clients is None:
            index = file.read_index()
            if index is None:
                return any_sequence
            clients = self._publishers_by_file[file.number] = index.clients
        return clients.get(client)

    def _durable_count(self, file: JournalFile) -> int:
        count = self._durable_txid() + 1 - file.first_txid
        return max(min(count, file.seal.count if file.seal else count), 0)

    def _open_file(self, file: JournalFile) -> ByteSource | None:
        """Open a file, even if it has just been moved; None if it has been removed.

        Raises:
            OSError: it exists and cannot be opened, so that its contents are not known.
        """
        try:
            return self._cache.open(file.path)
        except FileNotFoundError:
            moved_file = self._table.find(file.number)
            return None if moved_file is None else self._cache.open(moved_file.path)
