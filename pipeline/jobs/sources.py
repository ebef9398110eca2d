"""What jobs read: journals, or the Parquet files that the job `export` made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pipeline.errors import PipelineError
from pipeline.jobs.files import FOLDER
from pipeline.journal.columns import METADATA
from pipeline.journal.log import snapshot
from pipeline.journal.planning import PlannedLog
from pipeline.rows import BODY
from server.expressions.topic_names import has_regex_characters
from server.journal.naming import instances_with_journals

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = ("topic", "date")
"""The columns that an export's folders are named after."""


@dataclass(frozen=True, slots=True)
class Source:
    """What entries to read.

    Attributes:
        path: a directory of journals, or of an export.
        archive: where other journals have been moved to.
        topic: a topic or a regular expression; empty for all.
        bookmark: where to begin, or a range; empty for all.
        filter: a content filter; empty for none.
        message_type: only topics of this type; empty for all.
        instance: whose entries; empty for all.
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
        """Whether these are Parquet files."""
        return (self.path / FOLDER).is_dir() and not instances_with_journals(self.path)

    def require(self, bookmark: str) -> None:
        """Make sure that journals have a point.

        Raises:
            PipelineError: none of them has.
        """
        problem: PipelineError | None = None
        for log in snapshot(self.path, self.archive):
            try:
                PlannedLog(log).span(bookmark)
            except PipelineError as one:
                problem = one
            else:
                return
        if problem is not None:
            raise problem

    def entries(self, spark: SparkSession, *names: str) -> DataFrame:
        """The entries, deletes included.

        Args:
            spark: reads them.
            names: the columns wanted; all if none is named.

        Raises:
            PipelineError: an export cannot be read like that.
        """
        return self._export(spark, names) if self.is_export else self._journals(spark, names)

    def _journals(self, spark: SparkSession, names: tuple[str, ...]) -> DataFrame:
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
        wanted = [one for one in names if one != BODY]
        if BODY in names:
            schema = StructType(
                [
                    StructField(BODY, BinaryType()),
                    *(StructField(one, METADATA[one]) for one in wanted),
                ]
            )
            return reader.schema(schema).load(str(self.path))
        schema = StructType([StructField(f"_{one}", METADATA[one]) for one in wanted])
        return reader.schema(schema).load(str(self.path)).toDF(*wanted)

    def _export(self, spark: SparkSession, names: tuple[str, ...]) -> DataFrame:
        for option, text in (("bookmark", self.bookmark), ("filter", self.filter)):
            if text:
                raise PipelineError(
                    f"option {option}={text!r}: is for journals; {self.path} is an export"
                )
        fields = [StructField(name, kind) for name, kind in METADATA.items()]
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


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say what to read."""
    parser.add_argument(
        "source", type=Path, help="directory of journals, or of what the job export made of them"
    )
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument("--topic", default="", help="topic, or regular expression of topics")


def source_of(options: argparse.Namespace, **more: str) -> Source:
    """What the arguments say.

    Raises:
        PipelineError: there is no such directory.
    """
    if not options.source.is_dir():
        raise PipelineError(f"{options.source}: there is no such directory")
    # Spark's workers have a working directory of their own.
    archive = None if options.archive is None else options.archive.resolve()
    return Source(options.source.resolve(), archive, options.topic, **more)
