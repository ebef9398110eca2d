"""History: each topic of the transaction log as a table with a row for each entry.

    _txid   _command        _key      fields ...
    17      publish         123       as published
    18      delta_publish   123       the merged message
    19      sow_delete      123       NULL

A `sow_delete` that removed several records is a row for each of them, so that the last row of each
key is its record, or says that there is none. These are the entries that bookmark subscriptions
get, with deletions (server/engine/replays/), and the permits apply as there: the permitted filter
and the select list to each message, and users with a filter see no deletions.

Nothing is read on the engine's thread. A query notes the last entry there, in the step in which
other tables get their snapshots, waits until that entry is on stable storage, and reads the log
with a cursor of its own, on the thread of DuckDB that uses the rows: forward, some entries at a
time, and no further than they are used (`LIMIT`). Each stream has a cursor of its own, since DuckDB
may read a table twice. The part of the log that is read is retained until the query has ended.

The columns of a topic are those of its records, and those of a sample of its entries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from config_schema.table_names import table_names
from server.expressions import ExpressionError
from server.expressions.regex.budget import TooCostlyError
from server.sql.query.lru_cache import LruCache
from server.sql.query.tables import HISTORY_SCHEMA, Table, TableKind
from server.sql.tables.columns import FieldColumn, LearnedColumns, Metadata, body_column
from server.sql.tables.errors import (
    ColumnsWidenedError,
    InvalidFilterError,
    ScanCancelledError,
    ScanError,
    TableGoneError,
    UnknownBookmarkError,
)
from server.sql.tables.history_rows import EntryFilter, EntryRows
from server.sql.tables.row_conversion import MisfitError
from server.storage.journal import (
    MESSAGES,
    JournalEntryKind,
    JournalTopic,
    JournalUnreadableError,
    LogSpan,
)
from server.storage.journal.errors import reason
from server.storage.journal.read.bookmarks import BookmarkError, EntryName, parse_bookmark
from server.topics.subscriptions.entitlement_limits import permitted_filter

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.expressions import Functions
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sql.query.errors import SqlError
    from server.sql.query.tables import LogBound, ScanRequest
    from server.storage.journal import Journal, JournalCursor
    from server.storage.journal.files import JournalFile
    from server.topics.transaction_log import TransactionLog
    from server.util.log_protocol import ServerLog

MAX_TABLES: Final = 1_000
"""Topics of the log that are tables; of expressions such as `.*`, there may be any number."""

_MAX_COLUMN_SETS: Final = 2_000
_BATCH_ENTRIES: Final = 256
_BATCH_BYTES: Final = 256 * 1024
"""Entries, and bytes of bodies, that are read at once: parsing them holds Python's lock."""

_SAMPLE_PLACES: Final = 5
_SAMPLE_ENTRIES: Final = 64
_SAMPLE_BYTES: Final = 256 * 1024
"""Places of the log at which entries are sampled, and what is read at each."""

_FIRST_PLACE_READS: Final = 16
_OTHER_PLACE_READS: Final = 4
"""Reads at a place until an entry is found; each examines some thousand entries."""

_TAIL_ENTRIES: Final = 20_000
"""Entries at the end of the log among which one of the topic is looked for."""

_RELEARN_SECONDS: Final = 5.0
_MAX_LEARNED_AGAIN: Final = 8
"""How often the newest entries of a topic are sampled, and of how many topics at a time."""

_DURABLE_TIMEOUT_S: Final = 60.0
"""Time limit for published messages to be on stable storage."""

_TIMESTAMP_SLACK_US: Final = 1_000_000
"""Microseconds by which the part of the log between two times is longer than necessary."""

_KINDS: Final = MESSAGES | {JournalEntryKind.SOW_DELETE}
_NO_NAME: Final = ""
"""The name of the column of a stream without columns."""


class HistoryColumns(LearnedColumns):
    """The columns of the history of one topic; used by one worker thread at a time.

    Args:
        topic: the topic.
        message_type: parses bodies.
        log: the log for widened columns.
        permit: what the user may see.
        functions: the functions that filters may call.

    Attributes:
        metadata: the metadata columns, in order.
        lock: held while columns are learned or widened.
    """

    def __init__(
        self,
        topic: JournalTopic,
        message_type: MessageType,
        log: ServerLog,
        permit: Permit,
        functions: Functions,
    ) -> None:
        self.metadata: Final = (
            Metadata.TXID,
            Metadata.BOOKMARK,
            Metadata.TIMESTAMP,
            Metadata.CLIENT,
            Metadata.USER,
            Metadata.COMMAND,
            Metadata.KEY,
            Metadata.CORRELATION_ID,
            body_column(message_type),
        )
        names = [metadata.value.name for metadata in self.metadata]
        super().__init__(f"{HISTORY_SCHEMA}.{topic.name}", message_type, log, names, permit.select)
        self.lock: Final = threading.Lock()
        self._topic: Final = topic
        self._filter: Final = EntryFilter(permit.filter, message_type, functions)
        self._sampled_txid = 0
        self._sampled_at_s = 0.0
        self._record_fields: Sequence[FieldColumn] = ()

    @property
    def is_new(self) -> bool:
        """True before the first sample."""
        return not self._sampled_txid

    def is_outdated(self, last_txid: int) -> bool:
        """Return whether the newest entries may be sampled now."""
        is_due = time.monotonic() - self._sampled_at_s >= _RELEARN_SECONDS
        return last_txid > self._sampled_txid and (is_due or self.is_new)

    def add_record_fields(self, fields: Sequence[FieldColumn]) -> None:
        """Add the columns of the topic's records, if they have changed."""
        if fields is not self._record_fields:
            self._record_fields = fields
            self.add_columns(fields)

    def learn(self, journal: Journal) -> None:
        """List the fields of some entries; a log that cannot be read now has none."""
        first_txid, last_txid = journal.first_txid, journal.durable_txid
        places = [max(self._sampled_txid, last_txid - _TAIL_ENTRIES)]
        if self.is_new:
            step = max((last_txid - first_txid) // _SAMPLE_PLACES, 1)
            places += range(first_txid - 1, last_txid, step)
        self._sampled_txid, self._sampled_at_s = last_txid, time.monotonic()
        self.learn_from((b"",))  # of types whose definition lists the fields
        for place in dict.fromkeys(places):
            is_first = place == first_txid - 1
            cursor = journal.replay(
                LogSpan(place, last_txid=last_txid), self._topic.__eq__, MESSAGES
            )
            try:
                self._learn_at(cursor, _FIRST_PLACE_READS if is_first else _OTHER_PLACE_READS)
            except (JournalUnreadableError, TooCostlyError):
                continue

    def _learn_at(self, cursor: JournalCursor, reads: int) -> None:
        for _ in range(reads):
            entries = cursor.read(_SAMPLE_ENTRIES, _SAMPLE_BYTES)
            bodies = [entry.body for entry in entries if self._filter.matches(entry)]
            self.learn_from(bodies)
            if entries or cursor.is_caught_up:
                return


class InstanceHistory:
    """The topics of the transaction log, and the columns of their tables.

    Args:
        engine: the engine.

    Attributes:
        engine: see above.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        self._lock: Final = threading.Lock()
        self._topics_by_file: dict[int, frozenset[JournalTopic]] = {}
        self._found: dict[JournalTopic, None] = {}
        self._recorded: dict[JournalTopic, bool] = {}  # on the engine's thread
        self._column_sets: Final = LruCache[tuple[JournalTopic, str, str], HistoryColumns](
            _MAX_COLUMN_SETS
        )

    def discover(self) -> None:
        """Find the topics of all files; on a worker thread. A file is read once, when it is full.

        A file that cannot be read now is left out.
        """
        log = self.engine.transaction_log
        if log is None:
            return
        journal = log.journal
        with self._lock:
            files = journal.files
            for file in files:
                topics = self._topics_by_file.get(file.number)
                if topics is None:
                    topics = _topics_in(file, journal)
                    if topics is None:
                        continue
                    if file.seal is not None:
                        self._topics_by_file[file.number] = topics
                for topic in topics:
                    if len(self._found) < MAX_TABLES:
                        self._found.setdefault(topic)
            for number in self._topics_by_file.keys() - {file.number for file in files}:
                del self._topics_by_file[number]

    def may_have_entries(self, topic: JournalTopic) -> bool:
        """Return whether a topic is in the log; True if it has too many topics to know."""
        return topic in self._found or len(self._found) >= MAX_TABLES

    def topics(self) -> Iterator[JournalTopic]:
        """Return the topics that are tables; on the engine's thread.

        They are those of the configuration that are recorded, and those that are in the log.
        """
        engine = self.engine
        log = engine.transaction_log
        if log is None:
            return
        configured = [
            JournalTopic(source.type_name, source.name)
            for source in engine.sow_registry.topics
            if not source.is_container and log.is_recorded(source.type_name, source.name)
        ]
        named = log.named_topics
        for topic in islice(dict.fromkeys((*configured, *named, *list(self._found))), MAX_TABLES):
            is_recorded = self._recorded.get(topic)
            if is_recorded is None:
                is_recorded = self._recorded[topic] = self._is_recorded(topic)
            if is_recorded:
                yield topic

    def _is_recorded(self, topic: JournalTopic) -> bool:
        topics = self.engine.topics
        queues = topics.queues
        if topic.message_type not in self.engine.settings.message_types or (
            queues is not None and queues.find(topic.message_type, topic.name) is not None
        ):
            return False
        return topics.find(topic.message_type, topic.name).is_journaled

    def columns_of(self, topic: JournalTopic, permit: Permit) -> HistoryColumns:
        """Return the columns of a table, as learned from the entries that a permit covers."""
        key = topic, permit.filter_text, permit.select_text
        with self._lock:
            columns = self._column_sets.get(key)
            if columns is None:
                settings = self.engine.settings
                message_type = settings.message_types[topic.message_type]
                columns = HistoryColumns(
                    topic, message_type, self.engine.log, permit, settings.functions
                )
                self._column_sets.put(key, columns)
        return columns


def _topics_in(file: JournalFile, journal: Journal) -> frozenset[JournalTopic] | None:
    """Return the topics of a file; None if it cannot be read now."""
    definitions = file.definitions
    if definitions is None:
        index = file.read_index()
        definitions = None if index is None else index.definitions
    if definitions is None:
        try:
            definitions = file.read_definitions(journal.cache.open(file.path))
        except OSError:
            return None
    return frozenset(list(definitions.topics.values()))


def wait_until_durable(is_durable: Future[None], is_cancelled: Callable[[], bool]) -> None:
    """Wait on a worker thread until entries of the log can be read.

    Args:
        is_durable: completed when they are on stable storage.
        is_cancelled: returns whether the statement is cancelled.

    Raises:
        ScanError: that takes too long, or the statement is cancelled.
    """
    deadline = time.monotonic() + _DURABLE_TIMEOUT_S
    while True:
        try:
            is_durable.result(0.1)
        except TimeoutError:
            if is_cancelled():
                raise ScanCancelledError("the query was cancelled") from None
            if time.monotonic() > deadline:
                raise ScanError(
                    "what was published has not been stored in the transaction log in time"
                ) from None
        else:
            return


class VisibleTopic(NamedTuple):
    """A topic of the log that a user may read.

    Attributes:
        topic: the topic.
        permit: the user's permit to read it.
        record_fields: the columns of its records, which its history has, too.
    """

    topic: JournalTopic
    permit: Permit
    record_fields: Sequence[FieldColumn]


class _UserTable(NamedTuple):
    """The table of a topic as a user sees it."""

    visible: VisibleTopic
    table: Table
    columns: HistoryColumns
    fields: Sequence[FieldColumn]
    outputs: Mapping[str, FieldColumn | Metadata]


def _make_table(
    name: str, visible: VisibleTopic, columns: HistoryColumns, fields: Sequence[FieldColumn]
) -> _UserTable:
    outputs: dict[str, FieldColumn | Metadata] = {field.column.name: field for field in fields} | {
        metadata.value.name: metadata for metadata in columns.metadata
    }
    shown = (
        *(field.column for field in fields),
        *(metadata.value for metadata in columns.metadata),
    )
    table = Table(HISTORY_SCHEMA, name, TableKind.HISTORY, shown)
    return _UserTable(visible, table, columns, fields, outputs)


class SessionHistory:
    """The tables of history of one session's user.

    Args:
        instance: the topics of the log.
        client_name: returns the name of the client, for the holder of the log.
        read_permit: returns the user's permit to read a topic, by its name and message type; None
            if there is none. Called on the engine's thread.
        is_cancelled: returns whether the query is cancelled; from any thread.
        on_widened: called when a column has got another type; from any thread.
        post: schedules a call on the engine's thread.
    """

    def __init__(
        self,
        instance: InstanceHistory,
        client_name: Callable[[], str],
        read_permit: Callable[[str, MessageType], Permit | None],
        is_cancelled: Callable[[], bool],
        on_widened: Callable[[], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._on_widened: Final = on_widened
        self._instance: Final = instance
        self._client_name: Final = client_name
        self._read_permit: Final = read_permit
        self._is_cancelled: Final = is_cancelled
        self._post: Final = post
        self._tables: Mapping[str, _UserTable] = {}

    def discover(self) -> None:
        """See `InstanceHistory.discover`."""
        self._instance.discover()

    def list_visible(
        self, only_type: str | None, record_fields: Mapping[JournalTopic, Sequence[FieldColumn]]
    ) -> Iterator[VisibleTopic | None]:
        """Yield the topics that the user may read, in steps; on the engine's thread.

        Args:
            only_type: the only message type; None for all.
            record_fields: the columns of the topics with records that the user may read.
        """
        message_types = self._instance.engine.settings.message_types
        for topic in self._instance.topics():
            if only_type in (None, topic.message_type):
                permit = self._read_permit(topic.name, message_types[topic.message_type])
                if permit is not None:
                    yield VisibleTopic(topic, permit, record_fields.get(topic, ()))
                    continue
            yield None

    def make_tables(self, visible: Sequence[VisibleTopic]) -> Sequence[Table]:
        """Return the tables of topics, learning columns where necessary; on a worker thread."""
        log = self._instance.engine.transaction_log
        if log is None:
            return ()
        names = table_names((one.topic.name, one.topic.message_type) for one in visible)
        learned_again = 0
        tables: dict[str, _UserTable] = {}
        for one, name in zip(visible, map(str, names), strict=True):
            topic = one.topic
            if name in tables:
                continue
            columns = self._instance.columns_of(topic, one.permit)
            with columns.lock:
                columns.add_record_fields(one.record_fields)
                if (
                    self._instance.may_have_entries(topic)
                    and columns.is_outdated(log.journal.durable_txid)
                    and (columns.is_new or learned_again < _MAX_LEARNED_AGAIN)
                ):
                    learned_again += not columns.is_new
                    columns.learn(log.journal)
                fields = columns.fields
            known = self._tables.get(name)
            if known is not None and known.fields is fields and known.columns is columns:
                tables[name] = known._replace(visible=one)
            else:
                tables[name] = _make_table(name, one, columns, fields)
        self._tables = tables
        return [one.table for one in tables.values()]

    def open(self, request: ScanRequest) -> HistoryStream:
        """Begin to scan a table, as it is now; on the engine's thread.

        Raises:
            ScanError: the table or a column does not exist for the user, or the filter is invalid.
        """
        engine = self._instance.engine
        log = engine.transaction_log
        name = request.table.name
        known = self._tables.get(name)
        message_types = engine.settings.message_types
        permit = (
            None
            if known is None
            else self._read_permit(
                known.visible.topic.name, message_types[known.visible.topic.message_type]
            )
        )
        if (
            known is None
            or permit is None
            or log is None
            or permit.filter_text != known.visible.permit.filter_text
        ):
            raise TableGoneError(f'relation "{HISTORY_SCHEMA}.{name}" does not exist')
        types = {column.name: column for column in request.table.columns}
        outputs: list[FieldColumn | Metadata] = []
        for column in request.columns:
            output = known.outputs.get(column)
            is_hidden = (
                isinstance(output, FieldColumn)
                and permit.select is not None
                and not permit.select.includes_whole(output.path)
            )
            if output is None or column not in types or is_hidden:
                raise TableGoneError(f'column "{column}" of "{name}" does not exist')
            if isinstance(output, FieldColumn):
                output = FieldColumn(types[column], output.path)
            outputs.append(output)
        requested = None
        if request.filter is not None:
            try:
                requested = engine.filter_parser.parse(request.filter)
            except ExpressionError as error:
                raise InvalidFilterError(str(error)) from None
        return HistoryStream(
            log,
            known.visible.topic,
            message_types[known.visible.topic.message_type],
            engine.settings.functions,
            known.columns,
            outputs,
            permit,
            requested,
            request,
            self._client_name(),
            self._is_cancelled,
            self._on_widened,
            self._post,
        )


class HistoryStream:
    """The rows of one scan of history: see `RowStream`.

    Args:
        log: the transaction log.
        topic: the topic.
        message_type: parses bodies.
        functions: the functions that filters may call.
        columns: the columns, which may be widened.
        outputs: the columns to return, in order.
        permit: the user's permit to read the topic.
        requested: the client's own filter, None for all entries.
        request: the scan.
        client_name: the name of the client.
        is_cancelled: returns whether the query is cancelled.
        on_widened: called when a column has got another type.
        post: schedules a call on the engine's thread.

    Attributes:
        schema: the columns.
        num_rows: the number of rows that have been read.
        records_scanned: the number of entries that have been read, of those that the user may see.
        error: the reason why reading has failed; None if it has not.
    """

    def __init__(
        self,
        log: TransactionLog,
        topic: JournalTopic,
        message_type: MessageType,
        functions: Functions,
        columns: HistoryColumns,
        outputs: Sequence[FieldColumn | Metadata],
        permit: Permit,
        requested: Expr | None,
        request: ScanRequest,
        client_name: str,
        is_cancelled: Callable[[], bool],
        on_widened: Callable[[], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._on_widened: Final = on_widened
        self.num_rows = 0
        self.records_scanned = 0
        self.error: SqlError | None = None
        self._log: Final = log
        self._topic: Final = topic
        self._message_type: Final = message_type
        self._functions: Final = functions
        self._columns: Final = columns
        self._outputs: Final = outputs
        self._permit: Final = permit
        self._filter: Final = permitted_filter(permit, requested)
        self._request: Final = request
        self._is_cancelled: Final = is_cancelled
        self._post: Final = post
        self._is_closed = False
        self._span = LogSpan(log.journal.first_txid - 1, last_txid=log.last_txid)
        self._is_durable: Final[Future[None]] = Future()
        self._release_log: Final = log.hold_files(
            lambda: self._span.after_txid + 1, f"SQL query of {client_name}"
        )
        if log.journal.write_error is None:
            log.when_durable(lambda: self._is_durable.set_result(None))
        else:
            self._span = LogSpan(self._span.after_txid, last_txid=log.durable_txid)
            self._is_durable.set_result(None)
        self.schema: pa.Schema = pa.schema(
            [
                (output.column.name, output.column.type.arrow_type)
                if isinstance(output, FieldColumn)
                else (output.value.name, output.value.type.arrow_type)
                for output in outputs
            ]
            or [(_NO_NAME, pa.bool_())]
        )

    def rename(self, names: Sequence[str]) -> None:
        """See `RowStream.rename`."""
        self.schema = pa.schema(
            [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        )

    def close(self) -> None:
        """See `RowStream.close`."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._post(self._release_log)
            except RuntimeError:  # the event loop has ended, and with it the log
                return

    def prepare(self) -> None:
        """Wait until the log can be read, and find the part to read; on a worker thread.

        Raises:
            ScanError: a bookmark is not in the log, or the log cannot be read.
        """
        wait_until_durable(self._is_durable, self._is_cancelled)
        try:
            self._span = self._part(self._request.bounds)
        except OSError as error:
            raise ScanError(f"the transaction log cannot be read: {reason(error)}") from None

    def _part(self, bounds: Sequence[LogBound]) -> LogSpan:
        first, last = self._span.after_txid + 1, self._span.last_txid or 0
        for bound in bounds:
            low, high = self._range_of(bound)
            if bound.sign in (">", ">=", "="):
                first = max(first, low + (bound.sign == ">"))
            if bound.sign in ("<", "<=", "="):
                last = min(last, high - (bound.sign == "<"))
        return LogSpan(first - 1, last_txid=max(last, first - 1))

    def _range_of(self, bound: LogBound) -> tuple[int, int]:
        """Return the first and the last place at which a value may be."""
        journal = self._log.journal
        if bound.kind == "timestamp":
            earliest = journal.first_since(int(bound.value) - _TIMESTAMP_SLACK_US)
            latest = journal.first_since(int(bound.value) + _TIMESTAMP_SLACK_US)
            # One further on each side, since `>` and `<` leave that out.
            return earliest - 1, latest
        if bound.kind == "txid":
            return int(bound.value), int(bound.value)
        txid = self._find(str(bound.value))
        if txid is None:
            if bound.sign == "=":
                return 1, 0
            raise UnknownBookmarkError(f"bookmark not found: {bound.value:.100}")
        last = txid
        if bound.sign == "=":  # an entry that came late may have the name, too
            (point,) = parse_bookmark(str(bound.value)).starts
            assert isinstance(point, EntryName)  # noqa: S101 - it was found
            later: int | None = txid
            while later is not None:
                last = later
                later = journal.find_later(point.client, point.sequence, last)
        return txid, last

    def _find(self, text: str) -> int | None:
        try:
            points = parse_bookmark(text).starts
        except BookmarkError:
            return None
        if len(points) != 1 or not isinstance(points[0], EntryName):
            return None
        return self._log.journal.find(points[0].client, points[0].sequence)

    # ---- reading, on any thread

    def __arrow_c_schema__(self) -> object:
        """Return the columns without beginning a stream."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """See `RowStream`."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read()
        except ScanError as error:
            self.error = error
            raise
        except TooCostlyError as error:
            self.error = InvalidFilterError(str(error))
            raise
        except JournalUnreadableError as error:
            self.error = ScanError(f"the transaction log cannot be read: {error}")
            raise
        except MisfitError as misfit:
            with self._columns.lock:
                for path, sql_type in misfit.types.items():
                    self._columns.widen(path, sql_type)
            self._on_widened()
            self.error = ColumnsWidenedError(
                f"columns of {HISTORY_SCHEMA}.{self._topic.name} have values of other types; "
                "they have these types now"
            )
            raise
        except Exception as error:  # any error: DuckDB would show its text to the client
            self.error = ScanError(f"internal error: {type(error).__name__}")
            raise

    def _read(self) -> Iterator[pa.RecordBatch]:
        hides_count = self._permit.filter is not None
        entry_filter = EntryFilter(self._filter, self._message_type, self._functions)
        rows = EntryRows(
            self._message_type,
            self._outputs,
            self._permit,
            entry_filter,
            self._log.journal.clock_steps,
        )
        kinds = MESSAGES if hides_count else _KINDS
        limit = self._request.limit
        last_txid = self._span.last_txid or 0
        cursor = self._log.journal.replay(self._span, self._topic.__eq__, kinds, lambda: last_txid)
        found = 0
        while not cursor.is_caught_up and (limit is None or found < limit):
            if self._is_cancelled() or self._is_closed:
                raise ScanCancelledError("the query was cancelled")
            before = cursor.position
            entries = cursor.read_raw_range(_BATCH_ENTRIES, _BATCH_BYTES)
            if not entries and cursor.position == before:
                raise ScanError("the transaction log ends before the last entry")
            if not len(entries):
                continue
            batch = rows.read(entries)
            self.records_scanned += batch.matches if hides_count else len(entries)
            if batch.row_count:
                found += batch.row_count
                self.num_rows += batch.row_count
                yield pa.RecordBatch.from_arrays(batch.arrays, schema=self.schema)
