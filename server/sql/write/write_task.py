"""Writes the rows of one statement, in time slices, and waits until they are persisted.

    INSERT                   publish
    INSERT ... ON CONFLICT   delta_publish; publish of the changed record if a delta cannot say it
    UPDATE                   the same, for records that have not changed since they were read
    DELETE                   sow_delete of such records, some at a time

A delta has the key fields, the changed fields, and the fields that the user's entitlement filter
reads, with their values. It leaves out NULL, and so cannot set it (AMPS User Guide, Delta Publish):
such a change is a publish of the whole record, which is read, changed and published in one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from amperage.wire.header import Header
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.publish_target import NOT_ENTITLED
from server.expressions import to_text
from server.expressions.tree import Call, In, Literal, paths
from server.message_types.base import BodyError
from server.message_types.raw_trees import RawTreeType
from server.security.permissions import Permission
from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, INVALID_TEXT_REPRESENTATION, QUERY_CANCELED
from server.sql.write.field_values import check_verbatim
from server.sql.write.session_commands import execute_command, to_sql_error, with_message_type
from server.storage.sow.keys.key_source import KeyRefusedError, PublisherKeys
from server.storage.sow.store import RecordStoreError
from server.topics.sow_registry import when_all_settled

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.message_types.base import FieldValue, MessageType, Value
    from server.message_types.paths import Path
    from server.message_types.raw_trees import RawNode, RawTree
    from server.sql.query.cancellation import Cancellation
    from server.sql.write.returning_query import WrittenRows
    from server.sql.write.write_target import WriteTarget
    from server.storage.sow.records import Record
    from server.storage.sow.topic_records import SowTopicRecords

_SLICE_SECONDS: Final = 0.000_2
_BACKLOG_PAUSE_S: Final = 0.005
"""Time before the next message while the transaction log has a backlog."""

_DELETE_BATCH_SIZE: Final = 25
"""Records that are deleted in one step."""

_LITERAL: Final = "non_regex_topic"
"""The option that makes a topic a name, even with characters of regular expressions."""

_SAMPLE_SIZE: Final = 16
_MAX_SAMPLE_BODY: Final = 16 * 1024
"""Messages whose fields are columns at once, and the bytes of the longest of them."""


class InsertedMessage(NamedTuple):
    """A row of INSERT: a message, with the metadata that the statement gives."""

    body: bytes
    sow_key: str | None = None
    correlation_id: str | None = None


class Upsert(NamedTuple):
    """A row of INSERT ... ON CONFLICT DO UPDATE: a message, and its fields with the NULLs."""

    body: bytes
    fields: Sequence[FieldValue]


class RowVersion(NamedTuple):
    """A record, as a statement has read it: its SOW key, topic, and the sequence of its change."""

    key: str
    topic: str
    sequence: int


class RecordUpdate(NamedTuple):
    """A row of UPDATE: a record, and the fields to set."""

    row: RowVersion
    fields: Sequence[FieldValue]


class RecordDeletion(NamedTuple):
    """A row of DELETE."""

    row: RowVersion


RowWrite: TypeAlias = InsertedMessage | Upsert | RecordUpdate | RecordDeletion


@dataclass(slots=True)
class WriteOutcome:
    """The outcome of a statement that writes.

    Attributes:
        count: the number of rows that were written.
        conflicts: the records that have changed since they were read, and so were left alone.
        error: the error that ended the statement.
        has_new_columns: whether the messages have fields, or types of values, that are new.
    """

    count: int = 0
    conflicts: list[RowVersion] = field(default_factory=list)
    error: SqlError | None = None
    has_new_columns: bool = False


class WriteTask:
    """Writes rows: an `EngineTask`, and its outcome for another thread.

    Args:
        session: the client's session.
        target: the topic.
        rows: the rows; all of the same kind.
        cancellation: ends the task between two rows.
        returned: takes the records that are written; None if the statement has no RETURNING.

    Attributes:
        outcome: the outcome, once all rows are persisted, or refused.
    """

    def __init__(
        self,
        session: Session,
        target: WriteTarget,
        rows: Sequence[RowWrite],
        cancellation: Cancellation,
        returned: WrittenRows | None = None,
    ) -> None:
        self.outcome: Final[Future[WriteOutcome]] = Future()
        self._session: Final = session
        self._engine: Final = session.engine
        self._target: Final = target
        self._type: Final[MessageType] = target.message_type
        self._rows: Final = rows
        self._cancellation: Final = cancellation
        self._returned: Final = returned
        self._result: Final = WriteOutcome()
        self._next_row = 0
        self._written_topics: set[str] = set()
        self._sample: list[bytes] = []

    def start(self) -> None:
        """Begin to write."""
        self._engine.scheduler.start_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._session.client_name, "sql write"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        elapsed = self._engine.scheduler.elapsed
        end = elapsed() + _SLICE_SECONDS
        try:
            while self._next_row < len(self._rows):
                self._cancellation.check()
                if self._is_log_backlogged:
                    self._engine.clock.call_later(_BACKLOG_PAUSE_S, self.start)
                    return False
                self._write_some()
                if elapsed() >= end:
                    return True
        except SqlError as error:
            self._result.error = error
        except Exception as error:  # a defect: the worker thread must not wait without end
            with suppress(InvalidStateError):
                self.outcome.set_exception(error)
            return False
        self._wait_until_settled()
        return False

    @property
    def _is_log_backlogged(self) -> bool:
        log = self._engine.transaction_log
        return log is not None and log.journal.is_backlogged and log.journal.write_error is None

    def _write_some(self) -> None:
        """Write the next row, or delete the next rows.

        Raises:
            SqlError: one is refused; those before it are written.
        """
        row = self._rows[self._next_row]
        try:
            if isinstance(row, RecordDeletion):
                self._delete_some(row)
                return
            match row:
                case InsertedMessage():
                    self._publish(self._target.topic, row.body, row.sow_key, row.correlation_id)
                    self._result.count += 1
                    self._return_inserted(row.body, row.sow_key)
                case Upsert():
                    self._upsert(row)
                    self._result.count += 1
                case RecordUpdate():
                    self._update(row)
            self._next_row += 1
        except (CommandRefusedError, RecordStoreError) as error:
            raise to_sql_error(error) from None
        except (BodyError, KeyRefusedError) as error:
            raise SqlError(INVALID_TEXT_REPRESENTATION, str(error)) from None

    def _publish(
        self,
        topic: str,
        body: bytes,
        sow_key: str | None = None,
        correlation_id: str | None = None,
        command: str = "publish",
    ) -> None:
        header = Header(
            command=command, topic=topic, sow_key=sow_key, correlation_id=correlation_id or None
        )
        execute_command(self._session, self._type.name, header, body)
        self._written_topics.add(topic)
        if len(self._sample) < _SAMPLE_SIZE and len(body) <= _MAX_SAMPLE_BODY:
            self._sample.append(body)

    # ---- changes of records

    def _upsert(self, row: Upsert) -> None:
        topic = self._target.topic
        found = self._records.find_by_body(row.body, topic)
        if found:
            self._change(found[0], row.fields)
        else:
            self._publish(topic, row.body)
            self._return_inserted(row.body)

    def _update(self, row: RecordUpdate) -> None:
        version = row.row
        found = self._records.find_unchanged([(version.key, version.sequence)], version.topic)
        if not found:
            self._result.conflicts.append(version)
            return
        self._change(found[0], row.fields)
        self._result.count += 1

    def _change(self, record: Record, fields: Sequence[FieldValue]) -> None:
        """Set fields of a record.

        Raises:
            CommandRefusedError: the engine refuses the message.
            SqlError: a field is within a value, or the change would be one of another record.
        """
        self._check_nesting(record, fields)
        delta = self._make_delta(record, fields)
        if delta is not None:
            self._publish(record.topic, delta, command="delta_publish")
        else:
            self._replace(record, fields)
        self._return_present([record.key], record.topic)

    def _replace(self, record: Record, fields: Sequence[FieldValue]) -> None:
        """Publish a record as a whole, with some fields set."""
        body = self._type.update(record.body, fields)
        check_verbatim(self._type, fields, body)
        is_own_key = isinstance(self._records.key_source(record.topic), PublisherKeys)
        if not is_own_key and not self._is_of(record, body):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "the change would be one of another record",
                hint="The key of this topic cannot be made from the record's fields: publish the"
                " whole message.",
            )
        sow_key = record.key if is_own_key else None
        self._publish(record.topic, body, sow_key, record.correlation_id)

    def _make_delta(self, record: Record, fields: Sequence[FieldValue]) -> bytes | None:
        """Return the delta for a change; None if a delta cannot say it."""
        if not self._type.capabilities.delta or not self._target.key_fields:
            return None
        if any(value is None or value == "" or _nests(value) for _, value in fields):
            return None
        changed = {path for path, _ in fields}
        needed = [
            path
            for path in dict.fromkeys((*self._target.key_fields, *self._filter_paths(record.topic)))
            if path not in changed
        ]
        values = self._type.extractor(needed)(record.body)
        kept: list[tuple[Path, Value]] = []
        for path, value in zip(needed, values, strict=True):
            if value is None:
                continue
            if isinstance(value, list) or any(isinstance(step, int) for step in path):
                return None
            kept.append((path, value))
        delta = self._type.build([*kept, *fields])
        check_verbatim(self._type, fields, delta)
        return delta if self._is_of(record, delta) else None

    def _filter_paths(self, topic: str) -> Sequence[Path]:
        """Return the fields that the user's filter for messages reads."""
        with with_message_type(self._session, self._type.name):
            permit = self._session.get_permit(Permission.WRITE_TOPIC, topic)
        return () if permit.filter is None else paths(permit.filter)

    def _is_of(self, record: Record, body: bytes) -> bool:
        """Return whether a message would update a record."""
        return [found.key for found in self._records.find_by_body(body, record.topic)] == [
            record.key
        ]

    def _check_nesting(self, record: Record, fields: Sequence[FieldValue]) -> None:
        """Raise an error if a field to set is within a value that is no object, such as an array.

        Raises:
            SqlError: it is: setting it would replace the value.
        """
        nested = [path for path, _ in fields if len(path) > 1]
        if self._target.is_flat or not nested:
            return
        if isinstance(self._type, RawTreeType):
            tree = self._type.parse(record.body)
            values = [path for path in nested if not _has_object_at(self._type, tree, path[:-1])]
        else:
            above = [path[:length] for path in nested for length in range(1, len(path))]
            found = self._type.extractor(above)(record.body)
            values = [
                path for path, value in zip(above, found, strict=True) if isinstance(value, list)
            ]
        if values:
            name = ".".join(map(str, values[0]))
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'"{name}" cannot be set: it is within an array, or another value',
                detail=f"This is so in the record with the key {record.key}.",
                hint="Set the whole value.",
            )

    # ---- deletions

    def _delete_some(self, first: RecordDeletion) -> None:
        """Delete the next rows of one topic."""
        topic = first.row.topic
        batch: list[RowVersion] = []
        for row in self._rows[self._next_row : self._next_row + _DELETE_BATCH_SIZE]:
            if not isinstance(row, RecordDeletion) or row.row.topic != topic:
                break
            batch.append(row.row)
        self._next_row += len(batch)
        states = [(version.key, version.sequence) for version in batch]
        unchanged = self._records.find_unchanged(states, topic)
        keys = {record.key for record in unchanged}
        self._result.conflicts += [version for version in batch if version.key not in keys]
        if not unchanged:
            return
        found = [(record.key, record.sequence) for record in unchanged]
        try:
            self._delete([key for key, _ in found], topic)
        except CommandRefusedError as error:
            if error.reason != NOT_ENTITLED or not self._has_filter(topic):
                raise
        left = {record.key for record in self._records.find_unchanged(found, topic)}
        self._result.count += len(found) - len(left)
        if self._returned is not None:
            for record in unchanged:
                if record.key not in left:
                    self._returned.add(record)

    def _delete(self, keys: Sequence[str], topic: str) -> None:
        header = Header(command="sow_delete", topic=topic, short_options=_LITERAL)
        if all(key.isalnum() for key in keys):
            header.sow_keys = ",".join(keys)
        else:
            header.short_filter = to_text(In(Call("SOW_KEY", ()), tuple(map(Literal, keys))))
        self._written_topics.add(topic)
        execute_command(self._session, self._type.name, header, b"")

    def _has_filter(self, topic: str) -> bool:
        """Return whether the user may delete some records of a topic, and no others."""
        with with_message_type(self._session, self._type.name):
            permit = self._session.get_permit(Permission.WRITE_TOPIC, topic)
        return permit.is_allowed and permit.filter is not None

    @property
    def _records(self) -> SowTopicRecords:
        records = self._target.records
        assert records is not None  # noqa: S101 - by the caller, for rows of records
        return records

    # ---- RETURNING

    def _return_inserted(self, body: bytes, sow_key: str | None = None) -> None:
        """Note the record that a message has become, for RETURNING."""
        if self._returned is None:
            return
        topic = self._target.topic
        if sow_key is not None:
            self._return_present([sow_key], topic)
            return
        for record in self._records.find_by_body(body, topic):
            self._returned.add(record)

    def _return_present(self, keys: Sequence[str], topic: str) -> None:
        """Note records as they are now, for RETURNING."""
        if self._returned is not None:
            for record in self._records.find_by_keys(keys, lambda name: name == topic):
                self._returned.add(record)

    # ---- the end

    def _wait_until_settled(self) -> None:
        """Set the outcome when everything written is on stable storage, or the client cancels."""
        columns = self._target.known_columns
        if columns is not None and self._sample:
            before = columns.fields
            columns.learn_from_written(self._sample)
            # Other clients may have written fields since the tables were listed for this one, too.
            known = self._target.columns
            self._result.has_new_columns = columns.fields is not before or any(
                field.column.name not in known for field in before
            )
        topics = self._engine.topics
        waits = [topics.find(self._type.name, topic).when_settled for topic in self._written_topics]
        self._cancellation.on_cancel(self._give_up_waiting)
        if waits:
            when_all_settled(waits, self._finish)
        else:
            self._finish(None)

    def _finish(self, problem: RecordStoreError | None) -> None:
        if problem is not None and self._result.error is None:
            self._result.error = to_sql_error(problem)
        with suppress(InvalidStateError):
            self.outcome.set_result(self._result)

    def _give_up_waiting(self) -> None:
        """End the wait; called from any thread, after the last row."""
        if self._result.error is None:
            try:
                self._cancellation.check()
            except SqlError as error:
                self._result.error = SqlError(
                    QUERY_CANCELED,
                    error.message,
                    hint="The rows may not be on stable storage yet.",
                )
        with suppress(InvalidStateError):
            self.outcome.set_result(self._result)


def _has_object_at(message_type: RawTreeType, tree: RawTree, path: Path) -> bool:
    """Return whether there is an object at a path, or nothing that it would replace."""
    node: RawNode = tree
    for step in path:
        below = node.get(str(step)) if isinstance(node, dict) else None
        if below is None:
            return True
        node = below
        if isinstance(node, bytes):
            return message_type.is_null(node)
    return True


def _nests(value: Value) -> bool:
    """Return whether a value is an object: a delta would merge it with the stored one."""
    return isinstance(value, dict)
