"""Entries as DataFrames, from journals or from the files of the job `export`."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pipeline.errors import OptionError, PipelineError, option_error
from pipeline.files import FOLDER, read_state
from pipeline.journal.columns import ENTRY_METADATA
from pipeline.journal.log import snapshot
from pipeline.journal.plan import PlannedLog, topics_of
from pipeline.rows import BODY
from server.expressions.topic_names import TopicError, has_regex_characters, select_topics
from server.storage.journal.format.file_names import instances_with_journals

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

_MAX_SHOWN_TOPICS: Final = 5
"""The number of topics named in an error about a missing one."""


@dataclass(frozen=True, slots=True)
class EntrySource:
    """A selection of entries to read.

    Attributes:
        path: a directory of journals, or of an export.
        archive: the directory of archived journals.
        topic: a topic or a regular expression; empty for all.
        bookmark: the beginning, or a range; empty for all.
        filter: a content filter; empty for none.
        message_type: only topics of this type; empty for all.
        instance: the instance of the entries; empty for all.
    """

    path: Path
    archive: Path | None = None
    topic: str = ""
    bookmark: str = ""
    filter: str = ""
    message_type: str = ""
    instance: str = ""

    @property
    def is_export(self) -> bool:
        """True if the source is Parquet files of an export."""
        return (self.path / FOLDER).is_dir() and not instances_with_journals(self.path)

    def require_bookmark(self, bookmark: str) -> None:
        """Check that a journal has a bookmark or time.

        Raises:
            PipelineError: no journal has it.
        """
        problem: PipelineError | None = None
        for log in snapshot(self.path, self.archive):
            try:
                PlannedLog(log).span(bookmark)
            except PipelineError as error:
                problem = error
            else:
                return
        if problem is not None:
            raise problem

    def require_topic(self) -> None:
        """Check that there are entries of the topic, or of one that the expression matches.

        Raises:
            PipelineError: there are none, or the journals cannot be read.
        """
        if not self.topic:
            return
        try:
            selector = select_topics(self.topic)
        except TopicError as problem:
            raise option_error("topic", self.topic, str(problem)) from None
        known = set[str]()
        for name in self._topic_names():
            if selector.matches(name):
                return
            known.add(name)
        what = "matching topic" if selector.is_regex else "such topic"
        raise PipelineError(
            f"--topic={self.topic}: {self.path} has no {what}; {_similar(self.topic, known)}"
        )

    def _topic_names(self) -> Iterator[str]:
        if not self.is_export:
            return topics_of(self.path, self.archive)
        # Both Spark and Delta use these folder names.
        return (unquote(folder.name.removeprefix("topic=")) for folder in self.path.glob("topic=*"))

    def entries(self, spark: SparkSession, *names: str) -> DataFrame:
        """Return the entries, including deletions.

        Args:
            spark: the Spark session.
            names: the columns; all if none is named.

        Raises:
            PipelineError: an export cannot be read in this way.
        """
        return (
            self._export_frame(spark, names)
            if self.is_export
            else self._journal_frame(spark, names)
        )

    def _journal_frame(self, spark: SparkSession, names: tuple[str, ...]) -> DataFrame:
        options = {
            "archive": "" if self.archive is None else str(self.archive),
            "topic": self.topic,
            "bookmark": self.bookmark,
            "filter": self.filter,
            "message_type": self.message_type,
            "instance": self.instance,
        }
        reader = spark.read.format("amps-journal").option("commands", "all")
        reader = reader.options(**{name: text for name, text in options.items() if text})
        if not names:
            return reader.load(str(self.path))
        names_to_read = [name for name in names if name != BODY]
        if BODY in names:
            schema = StructType(
                [
                    StructField(BODY, BinaryType()),
                    *(StructField(name, ENTRY_METADATA[name]) for name in names_to_read),
                ]
            )
            return reader.schema(schema).load(str(self.path))
        schema = StructType(
            [StructField(f"_{name}", ENTRY_METADATA[name]) for name in names_to_read]
        )
        return reader.schema(schema).load(str(self.path)).toDF(*names_to_read)

    def _export_frame(self, spark: SparkSession, names: tuple[str, ...]) -> DataFrame:
        for option, text in (("bookmark", self.bookmark), ("filter", self.filter)):
            if text:
                raise OptionError(
                    f"option {option}={text!r}: requires journals, and {self.path} is an export"
                )
        state = read_state(self.path / FOLDER / "state.json")
        if state is not None and state.format:
            raise PipelineError(
                f"{self.path}: is a table of the format {state.format}; read it with a reader of"
                " that format, or give the journals or an export to plain files"
            )
        if state is not None and state.columns:
            raise PipelineError(
                f"{self.path}: has fields of messages (export --columns), expected whole messages;"
                " export without --columns, or give the journals"
            )
        fields = [StructField(name, kind) for name, kind in ENTRY_METADATA.items()]
        schema = StructType(
            [StructField(BODY, BinaryType()), *fields, StructField("date", StringType())]
        )
        frame = spark.read.schema(schema).parquet(str(self.path))
        if self.topic:
            is_regex = has_regex_characters(self.topic)
            topic = F.col("topic")
            frame = frame.where(topic.rlike(self.topic) if is_regex else topic == self.topic)
        for name, text in (("message_type", self.message_type), ("instance", self.instance)):
            if text:
                frame = frame.where(F.col(name) == text)
        return frame.select(*names) if names else frame.drop("date")


def _similar(topic: str, known: Set[str]) -> str:
    """Return advice with similar topics, or else with some of the existing ones."""
    if not known:
        return "it has no topics"
    by_form = {name.lower(): name for name in sorted(known)}
    near = get_close_matches(topic.lower(), by_form, n=_MAX_SHOWN_TOPICS)
    if near:
        return f"similar topics: {', '.join(by_form[form] for form in near)}"
    shown = sorted(known)[:_MAX_SHOWN_TOPICS]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"its topics: {', '.join(shown)}{more}"


def state_of(spark: SparkSession, source: EntrySource, moment: datetime | None = None) -> DataFrame:
    """Return the records that topics had after some entries.

    Args:
        spark: the Spark session.
        source: the entries, from the first on.
        moment: the time at which lifetimes are checked; the time of the last entry of any topic if
            None.

    Returns:
        Columns topic, message_type, sow_key, body, bookmark, txid, timestamp, correlation_id,
        expiration.
    """
    keys_of = ("topic", "message_type", "sow_key")
    others = ("body", "bookmark", "txid", "timestamp", "correlation_id", "expiration")

    def entries() -> DataFrame:  # a new frame for each use, because each has other filters
        return source.entries(spark, *keys_of, *others, "command")

    is_delete = F.col("command") == "sow_delete"
    keys = F.from_json(F.col("body").cast("string"), "array<string>")
    deletes = entries().where(is_delete).withColumn("sow_key", F.explode(keys))
    published = entries().where(~is_delete & F.col("sow_key").isNotNull())
    last = (
        published.unionByName(deletes)
        .groupBy(*keys_of)
        .agg(F.max_by(F.struct(*published.columns), "txid").alias("last"))
        .select(*keys_of, *(f"last.{name}" for name in (*others, "command")))
        .where(F.col("command") != "sow_delete")
    )
    everything = replace(source, topic="", filter="", message_type="")
    end = everything.entries(spark, "timestamp").agg(
        (F.max("timestamp") if moment is None else F.lit(moment)).alias("end")
    )
    lifetime = F.make_dt_interval(secs=F.col("expiration"))
    lives = F.col("expiration").isNull() | (F.col("timestamp") + lifetime > F.col("end"))
    return last.crossJoin(F.broadcast(end)).where(lives).drop("end", "command")
