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
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.table_names import table_names
from server.expressions import ExpressionError
from server.expressions.regex.budget import TooCostlyError
from server.sql.query.lru_cache import LruCache
from server.sql.query.tables import HISTORY_SCHEMA, Table, TableKind
from server.sql.tables.columns import FieldColumn, LearnedColumns, Metadata, body_column
from server.sql.tables.errors import (
    InvalidFilterError,
    TableGoneError,
)
from server.sql.tables.history_rows import EntryFilter
from server.sql.tables.history_stream import HistoryStream
from server.storage.journal import (
    MESSAGES,
    JournalTopic,
    JournalUnreadableError,
    LogSpan,
)

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sql.query.tables import ScanRequest
    from server.storage.journal import Journal, JournalCursor
    from server.util.log_protocol import ServerLog

MAX_TABLES: Final = 1_000
"""Topics of the log that are tables; of expressions such as `.*`, there may be any number."""

_MAX_COLUMN_SETS: Final = 2_000

_SAMPLE_PLACES: Final = 5
_SAMPLE_ENTRIES: Final = 64
_SAMPLE_BYTES: Final = 256 * 1024
"""Positions in the log at which entries are sampled, and the bytes that are read at each."""

_FIRST_PLACE_READS: Final = 16
_OTHER_PLACE_READS: Final = 4
"""Reads at a place until an entry is found; each examines some thousand entries."""

_TAIL_ENTRIES: Final = 20_000
"""Entries at the end of the log among which one of the topic is looked for."""

_RELEARN_SECONDS: Final = 5.0
_MAX_LEARNED_AGAIN: Final = 8
"""How often the newest entries of a topic are sampled, and of how many topics at a time."""


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
        """List the fields of a sample of entries; a log that cannot be read now has none."""
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
        self._recorded: dict[JournalTopic, bool] = {}  # on the engine's thread, for a version
        self._version = -1  # of the topics
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
                    topics = file.topics(journal.cache)
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

        They are the recorded topics of the configuration, and the topics that are in the log.
        """
        engine = self.engine
        log = engine.transaction_log
        if log is None:
            return
        if self._version != engine.sow_registry.version:
            self._version = engine.sow_registry.version
            self._recorded.clear()
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
