"""Destinations of the events of a streaming view, one micro-batch at a time.

A micro-batch that is run again, after any crash, has the same events in the same order in the same
partitions, and the same result as the first time: a server detects duplicates
(`pipeline.amps.writer`), and files are replaced.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipeline.amps.connection import connected, require_log
from pipeline.amps.deletes import Deleter
from pipeline.amps.options import AmpsOptions, read_options
from pipeline.amps.publisher import RowPublisher
from pipeline.amps.sink import NOT_ONCE, RefusedMessage, TaskSink
from pipeline.amps.writer import WriteReport, identity_in_stream, raise_refusals
from pipeline.bodies import OutgoingMessages
from pipeline.errors import PipelineError, option_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELETES: Final = "gone"
"""Deletions have sequence numbers of their own, under a client name with this suffix."""


class ViewEventTarget(Protocol):
    """A destination of the events of a view."""

    @property
    def name(self) -> str:
        """A readable name."""

    def check(self, *, is_new: bool) -> None:
        """Check that the target can take events.

        Args:
            is_new: whether the target must be empty, because the query is new.

        Raises:
            PipelineError: it cannot.
        """

    def apply_batch(self, events: DataFrame, batch: int) -> None:
        """Apply the events of a micro-batch, all of them, once.

        Args:
            events: the events; see `events`.
            batch: the number of the micro-batch.

        Raises:
            PipelineError: they could not be applied.
        """


class Publication:
    """Publishes records to a topic, and deletes them there when their groups are removed.

    A deletion removes the record that a publish of its last message would update, so that the
    topic's keys have to be the grouping fields of the view.

    Args:
        options: the server and the topic.
    """

    def __init__(self, options: AmpsOptions) -> None:
        self._options = options
        self.name = f"topic {options.topic} of {options.server}"

    def check(self, *, is_new: bool) -> None:  # noqa: ARG002 - a topic may have other records
        """See `ViewEventTarget.check`."""
        options = self._options
        topic = options.topic or ""
        with connected(options, "plan") as client:
            require_log(client, topic, NOT_ONCE.partition(";")[0], literal=True)
            for _ in client.sow(topic, filter="1=0"):
                pass  # a topic without SOW refuses the query

    def apply_batch(self, events: DataFrame, batch: int) -> None:  # noqa: ARG002 - tasks know
        """See `ViewEventTarget.apply_batch`."""
        rows = events.select("body", "is_gone")
        reports = rows.mapInArrow(_sender(self._options), _REPORT_SCHEMA).collect()
        refusals = [
            RefusedMessage(report.topic, bytes(report.body), report.error) for report in reports
        ]
        raise_refusals(self._options, [WriteReport(0, refusals)])


_REPORT: Final = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("error", pa.string())])
_REPORT_SCHEMA: Final = "topic string, body binary, error string"


def _sender(
    options: AmpsOptions,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the events of a partition, and yield the refusals of the server."""
        identity = identity_in_stream(options)
        deleting = replace(options, command="sow_delete")
        deleter = identity._replace(name=f"{identity.name}-{_DELETES}")
        sinks: dict[bool, TaskSink] = {}
        with ExitStack() as stack:
            for batch in batches:
                for is_gone in (False, True):
                    bodies = batch.filter(pc.equal(batch["is_gone"], is_gone))["body"]
                    if not len(bodies):
                        continue
                    if is_gone not in sinks:
                        opened = (
                            Deleter(deleting, deleter)
                            if is_gone
                            else RowPublisher(options, identity)
                        )
                        sinks[is_gone] = stack.enter_context(opened)
                    sinks[is_gone].send(OutgoingMessages(bodies.to_pylist(), {}))
            for sink in sinks.values():
                sink.finish()
        refusals = [refusal for sink in sinks.values() for refusal in sink.refusals]
        rows = [refusal._asdict() for refusal in refusals]
        yield pa.RecordBatch.from_pylist(rows, schema=_REPORT)

    return send


class ParquetFiles:
    """Appends events to Parquet files, in a folder per micro-batch, complete or absent.

    Args:
        path: the directory. Its columns are key, body, timestamp, is_gone and batch.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.name = str(self._path)

    def check(self, *, is_new: bool) -> None:
        """See `ViewEventTarget.check`."""
        if is_new and self._path.exists():
            raise PipelineError(
                f"{self._path}: exists already, and the checkpoint is new; move it away"
            )
        if self._path.exists() and not self._path.is_dir():
            raise PipelineError(f"{self._path}: not a directory")

    def apply_batch(self, events: DataFrame, batch: int) -> None:
        """See `ViewEventTarget.apply_batch`."""
        folder = self._path / f"batch={batch}"
        temporary = self._path / f"_batch={batch}.tmp"
        rows = events.select("key", "body", "timestamp", "is_gone")
        moment = F.timestamp_micros(F.expr("timestamp div 1000"))
        rows = rows.withColumn("timestamp", moment)
        rows.write.mode("overwrite").parquet(str(temporary))
        shutil.rmtree(folder, ignore_errors=True)
        if any(pq.read_metadata(file).num_rows for file in temporary.glob("*.parquet")):
            temporary.rename(folder)
        else:
            shutil.rmtree(temporary)


class LineTarget:
    """Passes events to a callback, one by one; those of a repeated micro-batch twice.

    Args:
        tell: takes a key and the record's body, which is None if the record was removed.
    """

    name: Final = "standard output"

    def __init__(self, tell: Callable[[str, bytes | None], None]) -> None:
        self._tell = tell

    def check(self, *, is_new: bool) -> None:
        """See `ViewEventTarget.check`."""

    def apply_batch(self, events: DataFrame, batch: int) -> None:  # noqa: ARG002 - each event is passed on
        """See `ViewEventTarget.apply_batch`."""
        for row in events.toLocalIterator():
            self._tell(row.key, None if row.is_gone else bytes(row.body))


def publication(server: str, topic: str) -> Publication:
    """Return the target for publishing a view.

    Args:
        server: the client URI, with the message type.
        topic: the topic.

    Raises:
        PipelineError: the URI is not valid.
    """
    options = read_options({"server": server, "topic": topic}, "writeStream")
    if options.message_type is None:
        raise option_error("server", server, "no message type; end it with /amps/json")
    return Publication(options)
