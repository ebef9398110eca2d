"""Queues as tables: one row for each message that is in the queue, leased ones included.

A scan notes the messages, their states and leases in one step, as of one moment. It reads the
bodies in time slices, by the queue's browser (server/queues/topic/browser.py): from its cache, or
from the log, which is retained meanwhile. So a message that is acknowledged while it is scanned is
a row, as it was.

A user who may read the queue sees all of its messages that the permit covers, as a consumer would
get them, and the names of the clients that have leased them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from server.queues.core.inspection import contents
from server.queues.core.states import AVAILABLE, NAMES
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import text_column
from server.sql.tables.columns import LearnedColumns, Metadata, body_column
from server.sql.tables.metadata_arrays import to_metadata_arrays
from server.sql.tables.row_chunk import RowChunk
from server.storage.sow.query.adaptive_batch import AdaptiveBatchSize
from server.storage.sow.query.record_filter import RecordFilter

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection
    from server.queues.topic.queue_topic import QueueTopic
    from server.storage.sow.query.query import OpenQuery, QuerySpec
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import Record
    from server.topics.transaction_log import TransactionLog
    from server.util.log_protocol import ServerLog

_BATCH_SIZE: Final = 128
"""Messages read in a time slice."""

_SAMPLE_SIZE: Final = 200
"""Messages whose fields are listed: half of them the oldest, half of them the newest."""

WAITING: Final = "waiting"
"""The state of a message that no consumer has, and that may be delivered."""

_STATES: Final = tuple(WAITING if state == AVAILABLE else name for state, name in enumerate(NAMES))


class QueueSource:
    """A queue as a source of a table: a `RecordSource`.

    Args:
        queue: the queue.
        log: the transaction log, which has its messages.
        wall_clock_lead_us: returns the microseconds by which the wall clock is ahead of the steady
            one, which leases use.

    Attributes:
        queue: see above.
    """

    is_container: Final = False
    key_fields: Final[Sequence[Path]] = ()

    def __init__(
        self, queue: QueueTopic, log: TransactionLog, wall_clock_lead_us: Callable[[], int]
    ) -> None:
        self.queue: Final = queue
        self._log: Final = log
        self._wall_clock_lead_us: Final = wall_clock_lead_us
        self.name: Final = queue.spec.name
        self.type_name: Final = queue.message_type.name

    @property
    def table(self) -> RecordTable:
        """See `RecordSource.table`; it describes messages to filters."""
        return self.queue.browser.records.table

    def covers_topic(self, name: str) -> bool:
        """See `RecordSource.covers_topic`."""
        return name == self.name

    def query(self, spec: QuerySpec, now: int) -> OpenQuery:
        """See `RecordSource.query`."""
        return self.queue.browser.records.query(spec, now)

    def hold_log(self, txid: int) -> Callable[[], None]:
        """Retain the log from a txid on; return a function that releases it."""
        return self._log.hold_files(lambda: txid, f"SQL query of queue {self.name}")

    @property
    def wall_clock_lead_us(self) -> int:
        """The microseconds by which the wall clock is ahead of the steady one."""
        return self._wall_clock_lead_us()


class QueueColumns(LearnedColumns):
    """The columns of one queue.

    Args:
        source: the queue.
        log: the log for widened columns.
        filter_: the filter of the messages to learn from, None for all.
        select: the fields that may be columns, None for all.

    Attributes:
        metadata: the metadata columns, in order.
    """

    def __init__(
        self,
        source: QueueSource,
        log: ServerLog,
        filter_: Expr | None,
        select: FieldSelection | None,
    ) -> None:
        message_type = source.table.message_type
        self.metadata: Final = (
            Metadata.BOOKMARK,
            Metadata.TIMESTAMP,
            Metadata.STATE,
            Metadata.LEASE_UNTIL,
            Metadata.CONSUMER,
            Metadata.ATTEMPTS,
            Metadata.CORRELATION_ID,
            body_column(message_type),
        )
        names = [metadata.value.name for metadata in self.metadata]
        super().__init__(source.name, message_type, log, names, select)
        self._source: Final = source
        self._filter: Final = filter_
        self._sampled_end = -1

    @property
    def is_outdated(self) -> bool:
        """True if messages have arrived since the last sample."""
        return self._sampled_end != self._source.queue.core.lifecycle.entries.end

    def learn(self) -> Iterator[None]:
        """List the fields of a sample of messages, in slices."""
        self._sampled_end = self._source.queue.core.lifecycle.entries.end
        self.learn_from((b"",))  # of types whose definition lists the fields
        scan = QueueScan(self._source, self._filter, (), None, sample_size=_SAMPLE_SIZE)
        try:
            for chunks in scan.chunks():
                for chunk in chunks:
                    self.learn_from(chunk.bodies or ())
                yield
        finally:
            scan.close()


class _Lease(NamedTuple):
    """The lease of a message: the consumer's name, and the end by the steady clock."""

    consumer: str
    expires_us: int | None


class QueueScan:
    """A scan of one queue: its messages as they are when it is made, read in slices.

    Args:
        source: the queue.
        filter_: the filter, None for all messages.
        metadata: the metadata to return.
        limit: the maximum number of rows, None for all.
        sample_size: the number of messages to read, half of them the newest; None for all.

    Attributes:
        topic_matches: the number of messages in the queue.
        matches: the number of matching messages so far.
    """

    def __init__(
        self,
        source: QueueSource,
        filter_: Expr | None,
        metadata: Sequence[Metadata],
        limit: int | None,
        sample_size: int | None = None,
    ) -> None:
        core = source.queue.core
        found = contents(core)
        self.topic_matches: Final = len(found.txids)
        self.matches = 0
        if sample_size is not None and len(found.txids) > sample_size:
            half = sample_size // 2
            found = type(found)(*(np.concatenate([one[:half], one[-half:]]) for one in found))
        self._source: Final = source
        self._contents: Final = found
        self._rows_left: int = len(found.txids) if limit is None else limit
        self._metadata: Final = tuple(dict.fromkeys(metadata))
        wanted = set(self._metadata)
        lifecycle = core.lifecycle
        self._leases: Final[Mapping[int, _Lease]] = (
            {
                offset: _Lease(lease.slot.consumer.name, lease.expires_at)
                for offset, lease in lifecycle.leases.by_offset.items()
            }
            if wanted & {Metadata.LEASE_UNTIL, Metadata.CONSUMER, Metadata.ATTEMPTS}
            else {}
        )
        self._deliveries: Final[Mapping[int, int]] = (
            {offset: one.deliveries for offset, one in lifecycle.all_attempts.items()}
            if Metadata.ATTEMPTS in wanted
            else {}
        )
        self._lead_us: Final = source.wall_clock_lead_us
        self._has_filter: Final = filter_ is not None
        self._batch_size: Final = AdaptiveBatchSize(filter_, _BATCH_SIZE)
        self._record_filter: Final = RecordFilter(
            source.table, filter_, search_counter=self._batch_size.search_allowance
        )
        self._release_log: Callable[[], None] | None = None
        if len(found.txids):
            self._release_log = source.hold_log(int(found.txids.min()))

    def chunks(self) -> Iterator[Sequence[RowChunk]]:
        """Yield the rows found in each slice of the work, perhaps none.

        Raises:
            RecordStoreError: the log cannot be read at the moment.
            TooCostlyError: the filter takes too long.
        """
        start = 0
        while start < len(self._contents.txids) and self._rows_left > 0:
            end = start + self._batch_size.size
            if not self._has_filter:
                end = min(end, start + self._rows_left)
            chunk = self._batch_size.run_batch(partial(self._read, start, end))
            if chunk is not None:
                start = end
                yield (chunk,) if chunk.row_count else ()

    def close(self) -> None:
        """End the scan; harmless if it has ended."""
        if self._release_log is not None:
            self._release_log()
            self._release_log = None

    def _read(self, start: int, end: int) -> RowChunk:
        """Return the messages that match."""
        txids = self._contents.txids[start:end].tolist()
        records = self._source.queue.browser.read_records(txids)
        if self._has_filter:
            records = list(filter(self._record_filter, records))
        records = records[: self._rows_left]
        self.matches += len(records)
        self._rows_left -= len(records)
        bodies = [record.body for record in records]
        indexes = dict(zip(txids, range(start, end), strict=False))
        metadata = self._metadata_of(records, [indexes[record.sequence] for record in records])
        return RowChunk(len(records), None, None, bodies, metadata)

    def _metadata_of(
        self, records: Sequence[Record], indexes: Sequence[int]
    ) -> Mapping[Metadata, pa.Array]:
        arrays: dict[Metadata, pa.Array] = {}
        offsets: list[int] = self._contents.offsets[indexes].tolist() if indexes else []
        leases = [self._leases.get(offset) for offset in offsets]
        for metadata in self._metadata:
            match metadata:
                case Metadata.STATE:
                    states = self._contents.states[indexes].tolist() if indexes else []
                    arrays[metadata] = text_column(_STATES[state] for state in states)
                case Metadata.CONSUMER:
                    arrays[metadata] = text_column(lease and lease.consumer for lease in leases)
                case Metadata.LEASE_UNTIL:
                    ends = [
                        None
                        if lease is None or lease.expires_us is None
                        else lease.expires_us + self._lead_us
                        for lease in leases
                    ]
                    arrays[metadata] = pa.array(ends, SqlType.TIMESTAMPTZ.arrow_type)
                case Metadata.ATTEMPTS:
                    counts = [
                        self._deliveries.get(offset, 0) + (lease is not None)
                        for offset, lease in zip(offsets, leases, strict=True)
                    ]
                    arrays[metadata] = pa.array(counts, pa.int64())
                case _:
                    arrays |= to_metadata_arrays(records, (metadata,))
        return arrays
