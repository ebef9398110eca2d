"""`df.write.format("amps")` and `df.writeStream.format("amps")`: writes rows, each once.

A server with a transaction log identifies each publisher by its client name, and accepts only
messages with a sequence number above the highest that it has (AMPS User Guide, Message Sequence
Numbers). So the task for a partition always has the same name, and its rows always have the same
numbers, however often it runs:

    batch    name   <client_name>-<id of the write>-<partition>      number   row
    with write_id   <client_name>-<write_id>-<partition>             number   version * 2^32 + row
    stream   name   <client_name>-<id of the query>-<partition>      number   batch * 2^32 + row

A retried task, in a batch that is run again after any crash, logs on, receives the highest number
that the server has persisted, and resumes after it. Rows may come in another order then, as they do
after a shuffle: `resumption.py` finds the rows that are left, unless the option `order` declares
the order fixed or has the rows sorted.

Without `exactly_once`, each attempt has a name of its own, and sends all rows.

A task reports the messages that the server refused when it is done, and the driver fails the write.
If the task itself failed, Spark would retry it at once, and the server would refuse them again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.amps.connection import connected, require_log
from pipeline.amps.deletes import Deleter
from pipeline.amps.options import AmpsOptions
from pipeline.amps.publisher import RowPublisher
from pipeline.amps.row_order import sorted_messages
from pipeline.amps.sink import (
    MAX_REPORTED_REFUSALS,
    NOT_ONCE,
    RefusedMessage,
    TaskIdentity,
    TaskSink,
)
from pipeline.bodies import BodyFormat, OutgoingMessages
from pipeline.error_reports import brief_errors
from pipeline.errors import PipelineError, SchemaError, option_error
from pipeline.workers import freeze_objects

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""The properties in which Spark passes the micro-batch of a task."""


@dataclass(frozen=True, slots=True)
class WriteReport(WriterCommitMessage):
    """The report of a task.

    Attributes:
        rows: the number of its rows.
        refusals: the messages that the server refused, or some of them.
    """

    rows: int
    refusals: Sequence[RefusedMessage]


@brief_errors
class AmpsWriter(DataSourceArrowWriter):
    """Publishes or deletes the rows of a DataFrame.

    Args:
        options: the server and the command.
        schema: the columns.

    Raises:
        PipelineError: the rows cannot be sent.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        check(options, schema)
        self._options = options
        self._schema = schema
        self._id = options.write_id or uuid.uuid4().hex
        if options.topic is not None and options.exactly_once:
            with connected(options, "plan") as client:
                require_log(client, options.topic, NOT_ONCE, literal=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        options = self._options
        name = f"{options.client_name or 'spark'}-{self._id}-{_task().partitionId()}"
        identity = TaskIdentity(name, options.write_version, is_stream=False)
        return send(options, self._schema, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Fail if the server refused messages."""
        raise_refusals(self._options, messages)


@brief_errors
class AmpsStreamWriter(DataSourceStreamArrowWriter):
    """Publishes or deletes the rows of a stream.

    Args:
        options: the server and the command.
        schema: the columns.

    Raises:
        PipelineError: the rows cannot be sent.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        check(options, schema)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a micro-batch."""
        return send(self._options, self._schema, identity_in_stream(self._options), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Fail if the server refused messages."""
        raise_refusals(self._options, messages)


def identity_in_stream(options: AmpsOptions) -> TaskIdentity:
    """Return the identity of the task of a micro-batch.

    Raises:
        PipelineError: this is not such a task.
    """
    task = _task()
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    if query is None or batch is None:
        raise PipelineError(
            f"Spark does not pass the micro-batch ({_QUERY}, {_BATCH}) to its tasks"
        )
    return TaskIdentity(
        f"{options.client_name or 'spark'}-{query}-{task.partitionId()}", int(batch)
    )


def check(options: AmpsOptions, schema: StructType) -> None:
    """Check that rows can be sent.

    Raises:
        PipelineError: they cannot.
    """
    rows = _format(options, schema)
    if options.topic is None and "topic" not in rows.headers:
        raise PipelineError("option topic: missing; expected a topic, or a column topic")
    if options.topic is not None and "topic" in rows.headers:
        raise option_error(
            "topic", options.topic, "there is a column topic as well; use one of them"
        )
    if not rows.has_bodies and not (options.command == "sow_delete" and "sow_key" in rows.headers):
        raise SchemaError("schema: expected a column body, or columns that are fields of messages")


def send(
    options: AmpsOptions,
    schema: StructType,
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> WriteReport:
    """Send the rows of one task.

    Raises:
        PipelineError: the server has been unavailable for too long, or has no such topics.
    """
    freeze_objects()
    rows = _format(options, schema)
    count = 0
    messages: Iterator[OutgoingMessages] = map(rows.messages, batches)
    if options.sorts:
        # Numbers that an earlier run gave to rows in another order do not apply to these rows.
        identity = identity._replace(name=f"{identity.name}-sorted")
        messages = sorted_messages(messages)
    if not options.exactly_once:
        identity = identity.for_this_attempt()
    sink: TaskSink = (Deleter if options.command == "sow_delete" else RowPublisher)(
        options, identity
    )
    with sink:
        for outgoing in messages:
            sink.send(outgoing)
            count += len(outgoing.bodies)
        sink.finish()
    return WriteReport(count, sink.refusals)


def _format(options: AmpsOptions, schema: StructType) -> BodyFormat:
    deletes = options.command == "sow_delete"
    return BodyFormat(schema, options.message_type, deletes=deletes)


def raise_refusals(options: AmpsOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Fail the write if the server refused some of its rows.

    Raises:
        PipelineError: it refused some.
    """
    reported = [message.refusals for message in messages if isinstance(message, WriteReport)]
    refusals = [refusal for report in reported for refusal in report]
    if refusals:
        first = refusals[0]
        count = str(len(refusals))
        if any(len(report) >= MAX_REPORTED_REFUSALS for report in reported):
            count = f"at least {count}"
        raise PipelineError(
            f"{options.command} to topic {first.topic!r}: the server refused {count} of the"
            f" rows and accepted all others; the first: {first.error}; message:"
            f" {first.body[:200]!r}"
        )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise PipelineError("rows can only be written by a task of Spark")
    return task
