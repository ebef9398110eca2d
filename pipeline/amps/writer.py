"""`df.write.format("amps")` and `df.writeStream.format("amps")`: rows to the server, each once.

A server with a transaction log knows each publisher by its client name, and takes from it only
messages with a sequence number above the highest that it has (AMPS User Guide, Message Sequence
Numbers). So the task for a partition always has the same name, and its rows always the same
numbers, however often it runs:

    batch    name   <client_name>-<id of the write>-<partition>      number   row
    with write_id   <client_name>-<write_id>-<partition>             number   version * 2^32 + row
    stream   name   <client_name>-<id of the query>-<partition>      number   batch * 2^32 + row

A task that is tried again, in a batch that is run again, after a crash of whatever, logs on, is
told the highest number that is stored, and goes on behind it. Rows need not come in the same order
again, for behind a shuffle they do not: `resuming.py` finds out which ones are left, unless the
option `order` says that this is known, or has them sorted.

Without `exactly_once`, each try has a name of its own, and sends everything.

What the server refuses, a task reports when it is done and the driver fails the write: were the
task itself to fail, it would be tried again at once, to be refused the same.
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
from pipeline.amps.deleting import Deleter
from pipeline.amps.options import AmpsOptions
from pipeline.amps.ordering import sorted_messages
from pipeline.amps.publishing import Publisher
from pipeline.amps.sink import NOT_ONCE, REFUSALS_KEPT, Identity, Refusal, Sink
from pipeline.bodies import MessageFormat, Outgoing
from pipeline.errors import PipelineError, option_error
from pipeline.workers import settle

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Where Spark says to which micro-batch a task belongs."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task reports.

    Attributes:
        rows: how many rows it had.
        refusals: those that the server refused, or some of them.
    """

    rows: int
    refusals: Sequence[Refusal]


class AmpsWriter(DataSourceArrowWriter):
    """Publishes or deletes the rows of a DataFrame.

    Args:
        options: where to, and with which command.
        schema: the columns.

    Raises:
        PipelineError: that cannot be done.
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
        identity = Identity(name, options.write_version, is_stream=False)
        return send(options, self._schema, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Fail if the server refused something."""
        raise_refusals(self._options, messages)


class AmpsStreamWriter(DataSourceStreamArrowWriter):
    """Publishes or deletes the rows of a stream.

    Args:
        options: where to, and with which command.
        schema: the columns.

    Raises:
        PipelineError: such rows cannot be sent.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        check(options, schema)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a micro-batch."""
        return send(self._options, self._schema, identity_in_stream(self._options), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Fail if the server refused something."""
        raise_refusals(self._options, messages)


def identity_in_stream(options: AmpsOptions) -> Identity:
    """Who the task of a micro-batch sends as.

    Raises:
        PipelineError: this is no such task.
    """
    task = _task()
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    if query is None or batch is None:
        raise PipelineError(f"Spark does not tell the micro-batch ({_QUERY}, {_BATCH})")
    return Identity(f"{options.client_name or 'spark'}-{query}-{task.partitionId()}", int(batch))


def check(options: AmpsOptions, schema: StructType) -> None:
    """Find out whether rows can be sent.

    Raises:
        PipelineError: they cannot.
    """
    rows = _format(options, schema)
    if options.topic is None and "topic" not in rows.headers:
        raise PipelineError("option topic: missing; expected a topic, or a column that has it")
    if options.topic is not None and "topic" in rows.headers:
        raise option_error("topic", options.topic, "there is a column of that name as well")
    if not rows.has_bodies and not (options.command == "sow_delete" and "sow_key" in rows.headers):
        raise PipelineError("schema: there is no column that a message could be made of")


def send(
    options: AmpsOptions, schema: StructType, identity: Identity, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Send the rows of one task.

    Raises:
        PipelineError: the server has been away for too long, or does not know such topics.
    """
    settle()
    rows = _format(options, schema)
    count = 0
    messages: Iterator[Outgoing] = map(rows.messages, batches)
    if options.sorts:
        # Rows that an earlier run has numbered in another order are not its own.
        identity = identity._replace(name=f"{identity.name}-sorted")
        messages = sorted_messages(messages)
    if not options.exactly_once:
        identity = identity.of_this_try()
    sink: Sink = (Deleter if options.command == "sow_delete" else Publisher)(options, identity)
    with sink:
        for some in messages:
            sink.send(some)
            count += len(some.bodies)
        sink.finish()
    return Written(count, sink.refusals)


def _format(options: AmpsOptions, schema: StructType) -> MessageFormat:
    deletes = options.command == "sow_delete"
    return MessageFormat(schema, options.message_type, deletes=deletes)


def raise_refusals(options: AmpsOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Fail the write if the server refused some of its rows.

    Raises:
        PipelineError: it did.
    """
    told = [message.refusals for message in messages if isinstance(message, Written)]
    refusals = [refusal for one in told for refusal in one]
    if refusals:
        first = refusals[0]
        count = str(len(refusals))
        if any(len(one) >= REFUSALS_KEPT for one in told):
            count = f"at least {count}"
        raise PipelineError(
            f"{options.command} to topic {first.topic!r}: the server refused {count} of the"
            f" rows and took all others; the first: {first.error}; it is {first.body[:200]!r}"
        )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise PipelineError("a row can only be written by a task of Spark's")
    return task
