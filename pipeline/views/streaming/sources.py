"""Sources of events for a streaming view: journals, or a running server.

Both contain publishes, with their lifetime, and deletions. Expiry is not recorded, because it
follows from the lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from amperage.client.uri import without_passwords
from config_schema.spec import InstanceSpec, TopicSpec
from pipeline.amps.connection import connected, require_log
from pipeline.amps.options import read_options
from pipeline.amps.uri import with_message_type
from pipeline.journal.log import snapshot
from pipeline.views.sources import names_of
from pipeline.views.streaming.events import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_ROWS: Final = 100_000
"""Entries in a micro-batch: a query that is behind need not catch up in a single one."""

_ROW_BITS: Final = 40
"""A task has fewer than 2^40 messages in a micro-batch."""

_JOURNAL_COLUMNS: Final = (
    "body binary, topic string, command string, txid long, timestamp timestamp, sow_key string,"
    " correlation_id string, bookmark string, expiration int"
)
_SERVER_COLUMNS: Final = (
    "body binary, topic string, sow_key string, bookmark string, timestamp timestamp,"
    " correlation_id string, command string, expiration int"
)


class ViewEventSource(Protocol):
    """A source of events."""

    @property
    def name(self) -> str:
        """A readable name."""

    def check(self, spec: InstanceSpec, topics: Iterable[TopicSpec]) -> None:
        """Check that the source has all that is needed.

        Args:
            spec: the instance.
            topics: the topics to follow.

        Raises:
            PipelineError: it has not.
        """

    def events(self, spark: SparkSession, spec: InstanceSpec, topic: TopicSpec) -> DataFrame:
        """Return the events of a topic's records; see `events.SCHEMA`.

        Args:
            spark: the session.
            spec: the instance.
            topic: the topic.
        """


@dataclass(frozen=True)
class Journals:
    """The journals of an instance, which may be running.

    Attributes:
        path: their directory.
        archive: the directory of archived journals.
        max_rows: the maximum number of entries in a micro-batch.
    """

    path: Path
    archive: Path | None = None
    max_rows: int = _MAX_ROWS

    @property
    def name(self) -> str:
        """See `ViewEventSource.name`."""
        return f"the journals in {self.path.resolve()}"

    def check(self, spec: InstanceSpec, topics: Iterable[TopicSpec]) -> None:  # noqa: ARG002 - journals have all
        """See `ViewEventSource.check`."""
        snapshot(self.path, self.archive, spec.name)

    def events(self, spark: SparkSession, spec: InstanceSpec, topic: TopicSpec) -> DataFrame:
        """See `ViewEventSource.events`."""
        options = {
            "topic": names_of(spec, topic.ref),
            "message_type": topic.message_type,
            "instance": spec.name,
            "commands": "all",
            "max_rows_per_trigger": str(self.max_rows),
        }
        if self.archive is not None:
            options["archive"] = str(self.archive.resolve())
        reader = spark.readStream.format("amps-journal").options(**options)
        entries = reader.schema(_JOURNAL_COLUMNS).load(str(self.path.resolve()))
        return _events(entries, F.col("txid"))


@dataclass(frozen=True)
class ServerEvents:
    """A running server, read by a bookmark subscription per topic.

    Attributes:
        uri: the URI without the message type: `tcp://host:port/amps`.
        max_rows: the maximum number of messages in a micro-batch.
    """

    uri: str
    max_rows: int = _MAX_ROWS

    @property
    def name(self) -> str:
        """See `ViewEventSource.name`."""
        return f"the log of {without_passwords(self.uri)}"

    def check(self, spec: InstanceSpec, topics: Iterable[TopicSpec]) -> None:
        """See `ViewEventSource.check`."""
        for topic in topics:
            options = read_options(self._options(spec, topic), "readStream")
            with connected(options, "plan") as client:
                require_log(client, options.read_topic)

    def events(self, spark: SparkSession, spec: InstanceSpec, topic: TopicSpec) -> DataFrame:
        """See `ViewEventSource.events`."""
        reader = spark.readStream.format("amps").options(**self._options(spec, topic))
        messages = reader.schema(_SERVER_COLUMNS).load()
        return _events(messages, F.expr("0L")).mapInArrow(_numbered, SCHEMA)

    def _options(self, spec: InstanceSpec, topic: TopicSpec) -> dict[str, str]:
        return {
            "server": with_message_type(self.uri, topic.message_type),
            "topic": topic.name if topic.pattern is None else names_of(spec, topic.ref),
            "commands": "all",
            "max_rows_per_trigger": str(self.max_rows),
        }


def _events(entries: DataFrame, sequence: Column) -> DataFrame:
    """Return the events of records that log entries cause.

    Args:
        entries: the entries, with the columns that both formats have.
        sequence: the order of the entries.
    """
    is_gone = F.col("command") == "sow_delete"
    deleted = F.from_json(F.col("body").cast("string"), "array<string>")
    keys = F.when(is_gone, deleted).otherwise(F.array("sow_key"))
    published, lifetime = F.unix_millis("timestamp"), F.col("expiration").cast("long") * 1000
    events = entries.select(
        F.explode(keys).alias("key"),
        F.when(~is_gone, F.col("body")).alias("body"),
        "topic",
        (F.unix_micros("timestamp") * 1000).alias("timestamp"),
        sequence.alias("sequence"),
        "correlation_id",
        "bookmark",
        is_gone.alias("is_gone"),
        F.when(lifetime > 0, published + lifetime).alias("expires"),
    )
    return events.where(F.col("key").isNotNull())


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Assign numbers in the order of the log: each task has a consecutive part of it."""
    task = TaskContext.get()
    assert task is not None  # noqa: S101 - this runs in the workers
    number = task.partitionId() << _ROW_BITS
    for batch in batches:
        numbers = pa.array(range(number, number + batch.num_rows), pa.int64())
        number += batch.num_rows
        place = batch.schema.get_field_index("sequence")
        yield batch.set_column(place, "sequence", numbers)
