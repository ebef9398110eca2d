"""The columns of a topic's table: the fields seen in its records, with stable types.

Bodies have no schema. So the fields of a sample of records are listed when the table is first asked
for, and those of a few more records with each later scan. A field that has been seen stays a
column, at its place and under its name. The type of a column is the narrowest one that holds all
values seen so far; if a scan finds another value, the column is widened, never narrowed, and the
widening is logged.

    boolean -> text      integer of 64 bits -> double -> text      array (JSON) -> text

Metadata follow the fields: the columns whose names begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from server.message_types.bulk import bulk_extractor
from server.message_types.paths import format_path
from server.sql.query.tables import Column, SqlType
from server.sql.tables.arrow_columns import common_type, type_of_values
from server.sql.tables.field_paths import MAX_LISTED_BODY, field_lister
from server.storage.sow.query.query import Query, QuerySpec
from server.storage.sow.record_table import CURRENT, RecordTable

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection
    from server.topics.record_source import RecordSource
    from server.util.log_protocol import ServerLog

MAX_COLUMNS: Final = 1_600
"""Columns of a table, as in PostgreSQL (its documentation, PostgreSQL Limits)."""

_FIRST_SAMPLE_SIZE: Final = 1_000
_LATER_SAMPLE_SIZE: Final = 64
_FILTERED_SAMPLE_SIZE: Final = 200
"""Records that are searched for fields."""
_MAX_TESTED_ROWS: Final = 1_000_000
"""Rows that are looked at for records (1 ms)."""

_MAX_CHUNK_RECORDS: Final = 64
_MAX_CHUNK_VALUES: Final = 4_000
_MAX_CHUNK_BYTES: Final = 256 * 1024
"""Records, values and bytes of bodies that are read in a time slice."""

_TEXT_MODULES: Final = ("JsonType", "FixType", "XmlType")


def _metadata(name: str, kind: SqlType, description: str) -> Column:
    return Column(name, kind, description, is_metadata=True)


class Metadata(Enum):
    """The metadata that tables have as columns: of records, of messages, of entries of the log."""

    TOPIC = _metadata("_topic", SqlType.TEXT, "the logical topic")
    KEY = _metadata("_key", SqlType.TEXT, "the SOW key")
    TXID = _metadata("_txid", SqlType.BIGINT, "the place in the log of this instance")
    TIMESTAMP = _metadata("_timestamp", SqlType.TIMESTAMPTZ, "the time of the last update")
    BOOKMARK = _metadata("_bookmark", SqlType.TEXT, "the bookmark of the last update")
    CORRELATION_ID = _metadata("_correlation_id", SqlType.TEXT, "the publisher's correlation id")
    EXPIRES = _metadata("_expires", SqlType.TIMESTAMPTZ, "the time at which the record expires")
    CLIENT = _metadata("_client", SqlType.TEXT, "the publisher's number, as in bookmarks")
    USER = _metadata("_user", SqlType.TEXT, "the publisher's user")
    COMMAND = _metadata("_command", SqlType.TEXT, "publish, delta_publish or sow_delete")
    STATE = _metadata("_state", SqlType.TEXT, "waiting, leased, or why it cannot be delivered")
    LEASE_UNTIL = _metadata("_lease_until", SqlType.TIMESTAMPTZ, "the end of the lease")
    CONSUMER = _metadata("_consumer", SqlType.TEXT, "the client that has leased the message")
    ATTEMPTS = _metadata("_attempts", SqlType.BIGINT, "deliveries so far, a lease included")
    BODY = _metadata("_body", SqlType.TEXT, "the message")
    BINARY_BODY = _metadata("_body", SqlType.BYTEA, "the message")
    SEQUENCE = _metadata("\0sequence", SqlType.BIGINT, "the sequence of the last change")
    """It is no column of tables: statements that change records read it."""


def body_column(message_type: MessageType) -> Metadata:
    """Return the column of the bodies of a message type: as texts, or as bytes."""
    is_text = type(message_type).__name__ in _TEXT_MODULES
    return Metadata.BODY if is_text else Metadata.BINARY_BODY


class FieldColumn(NamedTuple):
    """A column of a field, with the field's path."""

    column: Column
    path: Path


class LearnedColumns:
    """The columns of the fields of one table, learned from bodies.

    Args:
        name: the table's name, for the log.
        message_type: parses bodies.
        log: the log for widened columns.
        reserved_names: names of other columns of the table.
        select: the fields that may be columns, None for all: names of hidden ones do not even make
            the name of another column longer.
    """

    def __init__(
        self,
        name: str,
        message_type: MessageType,
        log: ServerLog,
        reserved_names: Iterable[str],
        select: FieldSelection | None = None,
    ) -> None:
        self._name: Final = name
        self._message_type: Final = message_type
        self._select: Final = select
        self._log: Final = log
        self._list_fields: Final = field_lister(message_type)
        self._types: dict[Path, SqlType | None] = {}  # None: NULL in all records so far
        self._names: dict[Path, str] = {}
        self._used_names: set[str] = set(reserved_names)
        self._reserved_count: Final = len(self._used_names)
        self._sampled_records = 0
        self._fields: tuple[FieldColumn, ...] | None = ()
        self._is_full = False

    @property
    def fields(self) -> tuple[FieldColumn, ...]:
        """The columns of fields, in the order in which the fields were first seen."""
        if self._fields is None:
            self._fields = tuple(
                FieldColumn(
                    Column(self._names[path], kind or SqlType.TEXT, "", _path_text(path)), path
                )
                for path, kind in self._types.items()
            )
        return self._fields

    @property
    def has_sample(self) -> bool:
        """True if there have been records to learn from."""
        return self._sampled_records > 0

    def widen(self, path: Path, kind: SqlType) -> bool:
        """Make a column hold values of a type; return whether its type has changed."""
        if path not in self._types:
            return False
        current = self._types[path]
        wider = common_type(current, kind)
        if wider is current:
            return False
        shown = current or SqlType.TEXT
        self._types[path] = wider
        self._fields = None
        if current is not None and wider is not None:
            self._log.emit(
                "16-0030",
                topic=self._name,
                message_type=self._message_type.name,
                column=self._names[path],
                previous=shown.sql_name,
                type=wider.sql_name,
            )
        return wider is not shown

    def add_columns(self, fields: Iterable[FieldColumn]) -> None:
        """Add columns that another table has, with their types."""
        for field in fields:
            self._add_paths((field.path,))
            self.widen(field.path, field.column.type)

    def learn_from(self, bodies: Sequence[bytes]) -> None:
        """List the fields of a sample's bodies."""
        self._sampled_records += len(bodies)
        self._list_fields_of(bodies)

    def _list_fields_of(self, bodies: Sequence[bytes]) -> None:
        if self._list_fields is None or not bodies:
            return
        for body in bodies:
            self._add_paths(self._list_fields(body))
        paths = tuple(self._types)
        if not paths:
            return
        values_by_path = bulk_extractor(self._message_type, paths)(bodies)
        for path, values in zip(paths, values_by_path, strict=True):
            kind = type_of_values(values)
            if kind is not None:
                self.widen(path, kind)

    def _add_paths(self, paths: Iterable[Path]) -> None:
        for path in paths:
            is_hidden = self._select is not None and not self._select.includes_whole(path)
            if is_hidden or path in self._types:
                continue
            if len(self._types) + self._reserved_count >= MAX_COLUMNS:
                self._report_full()
                return
            self._types[path] = None
            self._names[path] = self._make_name(path)
            self._fields = None

    def _report_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            self._log.emit(
                "16-0031",
                topic=self._name,
                message_type=self._message_type.name,
                limit=MAX_COLUMNS,
            )

    def _make_name(self, path: Path) -> str:
        """Return a name for a new column; names differ by more than the case of their letters."""
        plain = ".".join(map(str, path)).encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        name = plain = plain or "_"  # no column of SQL has an empty name
        number = 2
        if name.lower() in self._used_names and name.startswith("_"):
            name = plain = f"_{plain}"
        while name.lower() in self._used_names:
            name = f"{plain}_{number}"
            number += 1
        self._used_names.add(name.lower())
        return name


class TopicColumns(LearnedColumns):
    """The columns of one topic.

    Args:
        source: the topic.
        log: the log for widened columns.
        filter_: the filter of the records to learn from, None for all.
        select: the fields that may be columns, None for all.

    Attributes:
        metadata: the metadata columns, in order.
    """

    def __init__(
        self,
        source: RecordSource,
        log: ServerLog,
        filter_: Expr | None = None,
        select: FieldSelection | None = None,
    ) -> None:
        message_type = source.table.message_type
        body = body_column(message_type)
        self.metadata: Final = (
            *((Metadata.TOPIC,) if source.is_container else ()),
            Metadata.KEY,
            Metadata.TIMESTAMP,
            Metadata.BOOKMARK,
            Metadata.CORRELATION_ID,
            Metadata.EXPIRES,
            body,
        )
        names = [metadata.value.name for metadata in self.metadata]
        super().__init__(source.name, message_type, log, names, select)
        self._source: Final = source
        self._filter: Final = filter_
        self._sampled_state: tuple[int, ...] = ()

    @property
    def is_outdated(self) -> bool:
        """True if records have changed since the last sample."""
        return self._sampled_state != self._state

    @property
    def _state(self) -> tuple[int, ...]:
        """Numbers that change with the records."""
        table = self._source.table
        return table.store.last_sequence, len(table), table.updates, table.deletes

    def known_type(self, path: Path) -> SqlType | None:
        """Return the type of the values of a field; None if it has had none but NULL."""
        return self._types.get(path)

    def learn_from_written(self, bodies: Sequence[bytes]) -> None:
        """List the fields of a few messages that a client has written just now.

        Args:
            bodies: the messages, which users without a permitted filter may all see.
        """
        if self._filter is None:
            self._list_fields_of(
                [body for body in bodies[:_MAX_CHUNK_RECORDS] if len(body) <= _MAX_CHUNK_BYTES]
            )

    def learn(self) -> Iterator[None]:
        """List the fields of a sample of records, in slices."""
        if self._list_fields is None or not self.is_outdated:
            return
        size = _LATER_SAMPLE_SIZE if self.has_sample else _FIRST_SAMPLE_SIZE
        self._sampled_state = self._state
        self._add_paths(self._list_fields(b""))  # of types whose definition lists the fields
        bodies_in_slices = (
            self._read_sample(size) if self._filter is None else self._query_sample(self._filter)
        )
        try:
            for bodies in bodies_in_slices:
                self.learn_from(bodies)
                yield
        finally:
            bodies_in_slices.close()

    def _read_sample(self, size: int) -> Generator[Sequence[bytes], None, None]:
        """Yield the bodies of records, in slices."""
        table = self._source.table
        rows = _spread(_rows_with_records(table), size)
        position = 0
        while position < len(rows):
            bodies: list[bytes] = []
            byte_count = 0
            limit = self._chunk_size
            while position < len(rows) and len(bodies) < limit and byte_count < _MAX_CHUNK_BYTES:
                row = rows[position]
                position += 1
                if row < len(table.row_states) and table.row_states[row] == CURRENT:
                    (body,) = table.store.read_bodies([row])
                    byte_count += len(body)
                    if len(body) <= MAX_LISTED_BODY:
                        bodies.append(body)
            yield bodies

    def _query_sample(self, filter_: Expr) -> Generator[Sequence[bytes], None, None]:
        """Yield the bodies of the records that match a filter, in slices."""
        query = Query(self._source.table, QuerySpec(filter=filter_), 0)
        records_left = _FILTERED_SAMPLE_SIZE
        try:
            for records in query:
                found = records[:records_left]
                records_left -= len(found)
                bodies = [record.body for record in found if len(record.body) <= MAX_LISTED_BODY]
                for start in range(0, max(len(bodies), 1), self._chunk_size):
                    yield bodies[start : start + self._chunk_size]
                if not records_left:
                    return
        finally:
            query.close()

    @property
    def _chunk_size(self) -> int:
        """The number of bodies that are read in a time slice."""
        return min(_MAX_CHUNK_RECORDS, 1 + _MAX_CHUNK_VALUES // (1 + len(self._types)))


def _path_text(path: Path) -> str | None:
    """Return a path for filters; None if no filter can have it."""
    try:
        return format_path(path)
    except ValueError:
        return None


def _rows_with_records(table: RecordTable) -> Sequence[int]:
    """Return the rows that have records, or all of a large table, of which most have."""
    states = table.row_states
    if len(states) > _MAX_TESTED_ROWS:
        return range(len(states))
    rows: list[int] = np.flatnonzero(np.frombuffer(states, np.uint8) == CURRENT).tolist()
    return rows


def _spread(rows: Sequence[int], count: int) -> Sequence[int]:
    """Return some of ascending rows: evenly distributed ones, and the last ones."""
    if len(rows) <= count:
        return rows
    newest = count // 4
    step = (len(rows) - newest) / (count - newest)
    return [*(rows[int(n * step)] for n in range(count - newest)), *rows[-newest:]]
