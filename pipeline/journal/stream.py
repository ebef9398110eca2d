"""`spark.readStream.format("amps-journal")`: follows journals while they are being written.

An offset has for each instance the txid of the last entry that has been read, and a mark of that
entry (`marks.py`): `{"AMPS-1": [1750000000000000123, "5d2c…-1750000000000000"]}`. That is enough to
read a micro-batch again, so a query resumes exactly where it stopped, as long as the journals still
exist or are archived. Offsets of earlier versions have the txid alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.error_reports import brief_errors
from pipeline.errors import DataLossError, option_error
from pipeline.journal.log import JournalSnapshot, SealedFiles, snapshot
from pipeline.journal.marks import UNKNOWN, entry_mark, has
from pipeline.journal.options import JournalOptions
from pipeline.journal.partitions import JournalPartition
from pipeline.journal.plan import PlannedLog, plan_log
from pipeline.journal.reader import JournalPartitionReader
from pipeline.journal.schema import JournalSchema
from server.storage.journal import LogSpan

JournalOffset: TypeAlias = dict[str, Any]
"""By instance, the txid of an entry and its mark, or the txid alone."""


@brief_errors
class AmpsJournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows journals for one query.

    Args:
        options: the options of the read.
        columns: the columns of the rows.

    Raises:
        PipelineError: the bookmark is a range.
    """

    def __init__(self, options: JournalOptions, columns: JournalSchema) -> None:
        if options.bookmark.strip().startswith(("[", "(")):
            raise option_error(
                "bookmark", options.bookmark, "expected a start, as a stream has no end"
            )
        self._options = options
        self._columns = columns
        self._stop_offset: JournalOffset | None = None
        self._sealed_files: SealedFiles = {}

    def initialOffset(self) -> JournalOffset:  # noqa: N802 - Spark's name
        """Return the offset of a new query: after the given bookmark, or before the first entry."""
        begins = {}
        for log in self._read_logs():
            after_txid = PlannedLog(log).span(self._options.bookmark).after_txid
            begins[log.instance] = self._offset_position(
                log, max(after_txid, log.files[0].first_txid - 1)
            )
        return begins

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch."""
        max_rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the current end of the journals, and no further."""
        self._stop_offset = self._last_txids({log.instance: log for log in self._read_logs()})

    def latestOffset(self, start: JournalOffset, limit: ReadLimit) -> JournalOffset:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; its start if there is nothing.

        Raises:
            PipelineError: the journals end before the start.
        """
        logs = {log.instance: log for log in self._read_logs()}
        ends = self._last_txids(logs) if self._stop_offset is None else self._stop_offset
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = dict(start)
        for instance, last in sorted(ends.items()):
            log = logs.get(instance)
            if log is None:
                continue
            before_first = log.files[0].first_txid - 1
            first = (
                self._resume_txid(log, start[instance], last) if instance in start else before_first
            )
            count = max(last - first, 0)
            if room is not None:
                count = min(count, room)
                room -= count
            if count or instance not in start:
                offset[instance] = self._offset_position(log, first + count)
        return offset

    def partitions(self, start: JournalOffset, end: JournalOffset) -> list[InputPartition]:
        """Return the tasks of a micro-batch.

        Raises:
            PipelineError: the journals do not have all its entries any more.
        """
        return [
            partition
            for log in self._read_logs()
            for partition in self._plan_partitions(log, start, end)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        assert isinstance(partition, JournalPartition)  # noqa: S101 - see partitions
        yield from JournalPartitionReader(self._options, self._columns, ()).read(partition)

    def _read_logs(self) -> list[JournalSnapshot]:
        options = self._options
        return snapshot(options.path, options.archive, options.instance, self._sealed_files)

    def _last_txids(self, logs: Mapping[str, JournalSnapshot]) -> dict[str, int]:
        return {instance: PlannedLog(log).last_txid for instance, log in logs.items()}

    def _offset_position(self, log: JournalSnapshot, txid: int) -> list[Any]:
        return [txid, entry_mark(log, txid, self._options.archive)]

    def _resume_txid(self, log: JournalSnapshot, start: Any, last: int) -> int:
        """Return the txid after which to resume in a log.

        Raises:
            PipelineError: the log is another one than was read, and the stream has to stop then.
        """
        read, mark = _parts(start)
        if read > last:
            problem = f"end with entry {last}, and this stream has read up to entry {read}"
        elif not has(log, read, mark, self._options.archive):
            problem = f"have another entry {read} than this stream has read"
        else:
            return read
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self._options.path}: the journals of {log.instance} {problem}: the log was"
                " created anew, or restored from a backup; use another checkpoint, or read all of"
                " it with the option fail_on_data_loss=false"
            )
        return log.files[0].first_txid - 1

    def _plan_partitions(
        self, log: JournalSnapshot, start: JournalOffset, end: JournalOffset
    ) -> Iterator[JournalPartition]:
        if log.instance not in end:
            return
        last, mark = _parts(end[log.instance])
        last_txid = PlannedLog(log).last_txid
        before_first = log.files[0].first_txid - 1
        after = before_first
        if log.instance in start:
            after = _parts(start[log.instance])[0]
            if start[log.instance] == end[log.instance]:
                return
            if after <= last_txid or not self._options.fail_on_data_loss:
                after = self._resume_txid(log, start[log.instance], last_txid)
        if after >= last:
            return
        is_whole = (
            before_first <= after
            and last <= last_txid
            and has(log, last, mark, self._options.archive)
        )
        if not is_whole and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self._options.path}: the journals of {log.instance} do not have all entries "
                f"from {after + 1} to {last}, but those from {before_first + 1} to {last_txid}; "
                "give the directory of archived journals (option archive), or set the option"
                " fail_on_data_loss=false to continue without the missing entries"
            )
        yield from plan_log(log, self._options, (), LogSpan(after, last_txid=last))


def _parts(place: Any) -> tuple[int, str]:
    """Return the txid and the mark of a place in an offset."""
    return (place, UNKNOWN) if isinstance(place, int) else (place[0], place[1])
