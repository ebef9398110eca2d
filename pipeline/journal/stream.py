"""`spark.readStream.format("amps-journal")`: journals followed while they are being written.

An offset says for each instance the txid of the last entry that has been dealt with. That is all it
takes to read a micro-batch again, so a query goes on exactly where it stopped, as long as the
journals are still there or in the archive.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.errors import PipelineError, option_error
from pipeline.journal.log import Log, Sealed, snapshot
from pipeline.journal.options import JournalOptions
from pipeline.journal.pieces import Piece
from pipeline.journal.planning import PlannedLog, plan_log
from pipeline.journal.reading import PieceReader
from pipeline.journal.schema import JournalSchema
from server.journal import Span

Offset = dict[str, int]


class AmpsJournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows journals for one query.

    Args:
        options: what is asked for.
        columns: as what.

    Raises:
        PipelineError: the bookmark is a range.
    """

    def __init__(self, options: JournalOptions, columns: JournalSchema) -> None:
        if options.bookmark.strip().startswith(("[", "(")):
            raise option_error("bookmark", options.bookmark, "a stream has a beginning and no end")
        self._options = options
        self._columns = columns
        self._end: Offset | None = None
        self._sealed: Sealed = {}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a new query begins: behind the bookmark given, else with the first entry."""
        begins = {}
        for log in self._logs():
            after = PlannedLog(log).span(self._options.bookmark).after
            begins[log.instance] = max(after, log.files[0].first_txid - 1)
        return begins

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How large a micro-batch may be."""
        most = self._options.max_rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to where the journals end now, and no further."""
        self._end = self._ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; at its start if there is nothing.

        Raises:
            PipelineError: the journals end before the start.
        """
        ends = self._ends() if self._end is None else self._end
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = dict(start)
        for instance, last in sorted(ends.items()):
            first = start[instance] if instance in start else self._first(instance)
            if first > last:
                first = self._of_another_log(instance, first, last)
            count = max(last - first, 0)
            if room is not None:
                count = min(count, room)
                room -= count
            offset[instance] = first + count
        return offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a micro-batch.

        Raises:
            PipelineError: the journals do not have all its entries any more.
        """
        return [piece for log in self._logs() for piece in self._pieces(log, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece."""
        assert isinstance(partition, Piece)  # noqa: S101 - see partitions
        yield from PieceReader(self._options, self._columns, ()).read(partition)

    def _logs(self) -> list[Log]:
        options = self._options
        return snapshot(options.path, options.archive, options.instance, self._sealed)

    def _ends(self) -> Offset:
        return {log.instance: PlannedLog(log).last_txid for log in self._logs()}

    def _first(self, instance: str) -> int:
        """The txid before the first of an instance that was not there when the query began."""
        return next(log.files[0].first_txid - 1 for log in self._logs() if log.instance == instance)

    def _of_another_log(self, instance: str, read: int, last: int) -> int:
        """Where to begin in journals that end before what has been read.

        Raises:
            PipelineError: the stream is to stop there.
        """
        if self._options.fail_on_data_loss:
            raise PipelineError(
                f"{self._options.path}: the journals of {instance} end with entry {last}, and this"
                f" stream has read up to entry {read}: the log has been begun anew; begin with"
                " another checkpoint, or read all of it with the option fail_on_data_loss=false"
            )
        return self._first(instance)

    def _pieces(self, log: Log, start: Offset, end: Offset) -> Iterator[Piece]:
        last = end.get(log.instance, 0)
        before_first = log.files[0].first_txid - 1
        after = start.get(log.instance, before_first)
        if after > last and not self._options.fail_on_data_loss:
            after = before_first
        if after >= last:
            return
        there = PlannedLog(log).last_txid
        if (after < before_first or last > there) and self._options.fail_on_data_loss:
            raise PipelineError(
                f"{self._options.path}: the journals of {log.instance} do not have all entries "
                f"from {after + 1} to {last}, but those from {before_first + 1} to {there}; name "
                "the directory where they were archived (option archive), or go on with what there"
                " is with the option fail_on_data_loss=false"
            )
        yield from plan_log(log, self._options, (), Span(after, last=last))
