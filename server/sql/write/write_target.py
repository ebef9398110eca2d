"""The topic that a statement writes to, with the columns that its user knows.

A name is that of a table, or of a topic that is no table for the user: one that may be written but
not read, one in the transaction log, or a queue. An ad hoc topic has to be written with its message
type as the schema, so that a misspelled name is no topic.

All of this is called on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from server.message_types.bflat import BFlatType
from server.message_types.fix import FixType
from server.message_types.paths import Path, overlap
from server.security.permissions import Permission
from server.sql.query.errors import SqlError
from server.sql.query.tables import AMPS_SCHEMA, SqlType, Table, TableKind
from server.sql.sqlstate import (
    AMBIGUOUS_ALIAS,
    DUPLICATE_COLUMN,
    FEATURE_NOT_SUPPORTED,
    GENERATED_ALWAYS,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    WRONG_OBJECT_TYPE,
)
from server.sql.tables.catalogue import is_configured
from server.sql.tables.columns import FieldColumn, Metadata, TopicColumns
from server.sql.write.session_commands import with_message_type
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.message_types.base import MessageType
    from server.message_types.select_list import FieldSelection
    from server.sql.tables.catalogue import SessionTables
    from server.sql.tables.instance_tables import SessionTopic


_MAX_PATH_STEPS: Final = 20
"""Names in the path of a new field."""

INSERTED_METADATA: Final = frozenset(
    {Metadata.BODY.value.name, Metadata.KEY.value.name, Metadata.CORRELATION_ID.value.name}
)
"""The metadata that INSERT takes."""

_METADATA_NAMES: Final = frozenset(metadata.value.name for metadata in Metadata)


class WriteColumn(NamedTuple):
    """A column that is written.

    Attributes:
        path: the field.
        sql_type: the type of its values; None if it has none yet.
    """

    path: Path
    sql_type: SqlType | None


class WriteTarget(NamedTuple):
    """A topic to write to.

    Attributes:
        topic: its name.
        message_type: its message type.
        table: it as a table; None if it is none for the user.
        records: its records; None if it is no SOW topic.
        columns: the columns of fields that the user sees, by name.
        select: the fields that the user may see; None for all.
        is_binary: whether `_body` is of type bytea.
        key_fields: the fields that SOW keys are made from; none without records.
        known_columns: the columns, which learn from messages; None if they need not.
    """

    topic: str
    message_type: MessageType
    table: Table | None
    records: SowTopicRecords | None
    columns: Mapping[str, WriteColumn]
    select: FieldSelection | None
    is_binary: bool
    key_fields: tuple[Path, ...]
    known_columns: TopicColumns | None = None

    @property
    def is_flat(self) -> bool:
        """Whether fields do not nest: a path of several steps is one name."""
        return isinstance(self.message_type, FixType | BFlatType)

    def find_column(self, name: str) -> WriteColumn:
        """Return a column by its name, in any case if no other is meant; else a new field.

        Raises:
            SqlError: there can be no such field.
        """
        column = self.columns.get(name)
        if column is None:
            folded = [known for known in self.columns if known.lower() == name.lower()]
            if folded:
                return self.columns[folded[0]]
            return WriteColumn(self._new_path(name), None)
        return column

    def _new_path(self, name: str) -> Path:
        separators = self.message_type.separators if isinstance(self.message_type, FixType) else b""
        steps = name.split("/") if self.is_flat else name.split(".")
        octets = name.encode("utf-8", "replace")
        if (
            len(steps) > _MAX_PATH_STEPS
            or not all(steps)
            or (separators and any(byte in octets for byte in separators + b"="))
        ):
            raise SqlError(UNDEFINED_COLUMN, f'"{name[:100]}" cannot be the name of a field')
        return tuple(steps)

    def check_updatable(self, name: str, path: Path) -> None:
        """Raise an error if UPDATE may not set a field.

        Raises:
            SqlError: it is a part of the SOW key, or hidden.
        """
        if any(overlap(path, key) for key in self.key_fields):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'column "{name}" is a part of the key, which cannot be changed',
                hint="Insert a record with the other key, and delete this one.",
            )
        if self.select is not None and not self.select.includes_whole(path):
            raise SqlError(
                UNDEFINED_COLUMN, f'column "{name}" of relation "{self.topic}" does not exist'
            )

    def has_fields(self, path: Path) -> bool:
        """Return whether a field consists of other columns: it is an object, or has some."""
        return not self.is_flat and any(
            len(known.path) > len(path) and known.path[: len(path)] == path
            for known in self.columns.values()
        )


def check_no_overlap(columns: Mapping[str, WriteColumn]) -> None:
    """Raise an error if one of the fields is, or is within, another one.

    Raises:
        SqlError: it is.
    """
    paths: dict[Path, str] = {}
    for name, column in columns.items():
        if column.path in paths:
            raise SqlError(
                "42701", f'columns "{paths[column.path]}" and "{name}" are the same field'
            )
        paths[column.path] = name
    for path, name in paths.items():
        for length in range(1, len(path)):
            above = paths.get(path[:length])
            if above is not None:
                raise SqlError(DUPLICATE_COLUMN, f'column "{name}" is a field of column "{above}"')


def is_metadata(name: str, target: WriteTarget) -> bool:
    """Return whether a name is that of metadata, not of a field."""
    return name in _METADATA_NAMES and name not in target.columns


def metadata_refused(name: str) -> SqlError:
    """Return the error for metadata that cannot be written."""
    return SqlError(
        GENERATED_ALWAYS,
        f'column "{name}" cannot be written',
        hint="INSERT takes fields, _correlation_id, and _key of topics without a Key; or _body.",
    )


def require_fields(target: WriteTarget) -> None:
    """Raise an error if messages cannot be made of fields.

    Raises:
        SqlError: they cannot.
    """
    if not target.message_type.capabilities.build:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            f"messages of type {target.message_type.name} cannot be made of fields",
            hint="INSERT whole messages, by the column _body.",
        )


def describe_target(
    session: Session, tables: SessionTables, table: Table | None, schema: str | None, name: str
) -> WriteTarget:
    """Return the topic that a name means.

    Args:
        session: the user's session.
        tables: the user's tables.
        table: the table of this name; None if there is none.
        schema: the schema that it was written with.
        name: the name.

    Raises:
        SqlError: there is none that the user may write or read, or several.
    """
    known = None if table is None else tables.find_topic(table)
    if table is None or known is None or not isinstance(known.columns, TopicColumns):
        if table is not None and table.kind in (TableKind.HISTORY, TableKind.STATISTICS):
            raise not_writable(table)
        # queues have no records: messages are published to them
        return _describe_topic(session, tables, schema, name if table is None else table.name)
    return _make_target(known, known.columns, known.source.name, table)


def _make_target(
    known: SessionTopic, learned: TopicColumns, topic: str, table: Table | None
) -> WriteTarget:
    """Return a topic with the columns that the user sees."""
    source = known.source
    columns = {
        name: WriteColumn(output.path, learned.known_type(output.path))
        for name, output in known.outputs.items()
        if isinstance(output, FieldColumn)
    }
    return WriteTarget(
        topic,
        source.table.message_type,
        table,
        source if isinstance(source, SowTopicRecords) else None,
        columns,
        known.permit.select,
        Metadata.BINARY_BODY in learned.metadata,
        tuple(source.key_fields),
        learned,
    )


def not_writable(table: Table) -> SqlError:
    """Return the error for a table that is made from others."""
    return SqlError(
        WRONG_OBJECT_TYPE,
        f'cannot write to {table.kind.value} "{table.name}"',
        hint="Write to the topic that its records are made from.",
    )


def require_write_permission(session: Session, target: WriteTarget, topic: str) -> None:
    """Raise an error unless the user may publish to a topic.

    Raises:
        SqlError: the user may not.
    """
    with with_message_type(session, target.message_type.name):
        is_permitted = session.is_permitted(Permission.WRITE_TOPIC, topic)
    if not is_permitted:
        raise SqlError(INSUFFICIENT_PRIVILEGE, f'permission denied for topic "{topic}"')


def _describe_topic(
    session: Session, tables: SessionTables, schema: str | None, name: str
) -> WriteTarget:
    """Return a topic that is no table for the user."""
    engine = session.engine
    only_type = session.connection_context.message_type
    types = engine.settings.message_types
    if schema not in (None, AMPS_SCHEMA):
        is_allowed = schema in types and only_type in (None, schema)
        candidates = [schema] if is_allowed and schema is not None else []
    else:
        candidates = [only_type] if only_type is not None else list(types)
        candidates = [one for one in candidates if is_configured(session.engine, one, name)]
    permitted: list[str] = []
    for type_name in candidates:
        with with_message_type(session, type_name):
            if session.is_permitted(Permission.WRITE_TOPIC, name):
                permitted.append(type_name)
    full = f"{schema}.{name}" if schema else name
    if not permitted:
        raise SqlError(
            UNDEFINED_TABLE,
            f'relation "{full[:200]}" does not exist',
            hint="Topics that are not in the configuration are written with their message type,"
            ' such as json."name".',
        )
    if len(permitted) > 1:
        raise SqlError(
            AMBIGUOUS_ALIAS,
            f'relation "{full[:200]}" is ambiguous',
            hint=f"Write the message type as the schema, such as {permitted[0]}.",
        )
    message_type = types[permitted[0]]
    source = engine.sow_registry.find(message_type.name, name)
    known = None if source is None else tables.find_source(source)
    if known is not None and isinstance(known.columns, TopicColumns):  # a topic of a Pattern
        return _make_target(known, known.columns, name, None)
    records = source if isinstance(source, SowTopicRecords) else None
    return WriteTarget(
        name,
        message_type,
        None,
        records,
        {},
        None,
        not message_type.capabilities.fields,
        () if records is None else tuple(records.key_fields),
    )
