"""The rows of an export: journal entries or messages of a topic, as DataFrames and as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.datasource import GreaterThan, LessThanOrEqual
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from pipeline.errors import PipelineError
from pipeline.filters import OPTION, write_filters
from pipeline.journal.columns import ENTRY_METADATA
from pipeline.rows import BODY, default_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.files import JobTarget

FOLDERS: Final = ("topic", "date")
"""Columns that become folders."""

_WHOLE: Final = StructType(
    [
        StructField(BODY, BinaryType()),
        *(StructField(name, kind) for name, kind in ENTRY_METADATA.items()),
    ]
)
"""The schema of journal entries with all metadata."""

_TIMES: Final = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """The selection of messages for an export, and their columns.

    Attributes:
        source: a directory of journals, or the URI of a server.
        archive: the directory of archived journals.
        topic: a topic or a regular expression; empty for all.
        filter: a content filter; empty for none.
        columns: the fields of messages that become columns; None for whole messages.
        partition_by: the field among them that files are divided by; empty for none.
        options: further options of the format.
    """

    source: str
    archive: Path | None = None
    topic: str = ""
    filter: str = ""
    columns: StructType | None = None
    partition_by: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_server(self) -> bool:
        """True if the source is a running server."""
        return "://" in self.source

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the files are partitioned by."""
        return [*FOLDERS, *([self.partition_by] if self.partition_by else [])]

    @property
    def schema(self) -> StructType | None:
        """The columns with all metadata; None to use the default schema of the format."""
        if self.columns is None:
            return None
        known = default_schema(None) if self.is_server else _WHOLE
        more = [
            StructField(f"_{column.name}", column.dataType)
            for column in known
            if column.name != BODY
        ]
        return StructType([*self.columns, *more])

    def format_options(self, **more: str) -> dict[str, str]:
        """Return the options of the format."""
        known = {"topic": self.topic, "filter": self.filter, **more}
        return {**self.options, **{name: text for name, text in known.items() if text}}


def read_columns(text: str, partition_by: str) -> StructType | None:
    """Return the columns given on the command line.

    Raises:
        PipelineError: they are not valid.
    """
    if not text:
        if partition_by:
            raise PipelineError(
                f"--partition-by={partition_by}: requires --columns, with this field"
            )
        return None
    try:
        columns = DataType.fromDDL(text)
    except PySparkException as problem:
        reason = str(problem).strip().splitlines()[0]
        raise PipelineError(
            f"--columns={text!r}: expected names and types, such as 'id BIGINT, symbol STRING':"
            f" {reason}"
        ) from None
    if not isinstance(columns, StructType):
        raise PipelineError(f"--columns={text!r}: expected several names and types")
    taken = [name for name in columns.names if name.lower() in FOLDERS]
    if taken:
        raise PipelineError(
            f"--columns: {taken[0]} is the name of the partition folders; omit this field"
        )
    if BODY in columns.names:
        raise PipelineError("--columns: omit it to export whole messages in the column body")
    if partition_by and partition_by not in columns.names:
        known = ", ".join(columns.names)
        raise PipelineError(f"--partition-by={partition_by}: expected one of --columns: {known}")
    return columns


def journal_entries(
    spark: SparkSession, selection: ExportSelection, instance: str, first: int, last: int
) -> DataFrame:
    """Return the entries of one instance after `first` up to `last`, including deletions.

    With whole messages, the body of a deletion has the keys of the records, as in the journal. With
    fields, each deleted record is a row with NULL fields.
    """
    if selection.schema is None:
        return _entries(spark, selection, None, "all", instance, first, last)
    published = _entries(
        spark, selection, selection.schema, "publish,delta_publish", instance, first, last
    )
    deletes = _entries(spark, selection, _WHOLE, "sow_delete", instance, first, last)
    keys = F.from_json(F.col(BODY).cast("string"), "array<string>")
    deleted = deletes.withColumn("sow_key", F.explode(keys)).drop(BODY)
    named = deleted.toDF(*(f"_{name}" for name in deleted.columns))
    return published.unionByName(named, allowMissingColumns=True)


def _entries(
    spark: SparkSession,
    selection: ExportSelection,
    schema: StructType | None,
    commands: str,
    instance: str,
    first: int,
    last: int,
) -> DataFrame:
    format_options = selection.format_options(
        archive="" if selection.archive is None else str(selection.archive.resolve()),
        instance=instance,
        commands=commands,
    )
    format_options[OPTION] = write_filters(
        [GreaterThan(("txid",), first), LessThanOrEqual(("txid",), last)]
        if schema is None or BODY in schema.names
        else [GreaterThan(("_txid",), first), LessThanOrEqual(("_txid",), last)]
    )
    reader = spark.read.format("amps-journal").options(**format_options)
    if schema is not None:
        reader = reader.schema(schema)
    entries = reader.load(str(Path(selection.source).resolve()))
    txid = F.col("txid" if "txid" in entries.columns else "_txid")
    return entries.where((txid > first) & (txid <= last))


def records(spark: SparkSession, selection: ExportSelection) -> DataFrame:
    """Return the current records of a topic of a server."""
    reader = spark.read.format("amps").options(**selection.format_options(server=selection.source))
    return (reader if selection.schema is None else reader.schema(selection.schema)).load()


def published(spark: SparkSession, selection: ExportSelection, max_rows: int) -> DataFrame:
    """Return a stream of the messages published to a topic of a server.

    Args:
        spark: the Spark session.
        selection: the selection to read.
        max_rows: rows in a micro-batch.
    """
    format_options = selection.format_options(
        server=selection.source, max_rows_per_trigger=str(max_rows)
    )
    reader = spark.readStream.format("amps").options(**format_options)
    return (reader if selection.schema is None else reader.schema(selection.schema)).load()


def write(frame: DataFrame, target: JobTarget, selection: ExportSelection) -> int:
    """Write rows into the staging folder of a target.

    Args:
        frame: the rows.
        target: the target; its staging folder must not exist yet.
        selection: determines the partition columns.

    Returns:
        The number of rows.
    """
    prefix = "" if BODY in frame.columns else "_"
    seen = Observation("written")
    moment = F.coalesce(F.col(f"{prefix}timestamp"), F.current_timestamp())
    dated = frame.withColumn("date", F.date_format(moment, "yyyy-MM-dd"))
    named = dated.withColumnRenamed("_topic", "topic")
    counted = named.observe(seen, F.count(F.lit(1)).alias("rows"))
    folders = selection.partition_columns if target.has_partition_folders else []
    conf = frame.sparkSession.conf
    before = conf.get(_TIMES)
    conf.set(_TIMES, "TIMESTAMP_MICROS")  # every reader knows it; Spark's default INT96 is older
    try:
        counted.write.partitionBy(*folders).parquet(str(target.staging_folder.resolve()))
    finally:
        conf.set(_TIMES, str(before))
    return int(seen.get["rows"])


def union_frames(frames: Iterable[DataFrame]) -> DataFrame:
    """Return the union of frames with the same columns."""
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first
