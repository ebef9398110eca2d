"""Journals for the pipeline's tests, and reading them without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.filters import OPTION, write_filters
from pipeline.journal.source import AmpsJournalDataSource
from server.storage.journal.format.entry import JournalEntryKind
from tests.storage.journal.support import Bench, opened

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
}


def columns(text: str) -> StructType:
    """A schema from text such as `id long, name string`."""
    pairs = (column.split() for column in text.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def read(
    directory: Path,
    schema: str | None = None,
    filters: Iterable[Filter] = (),
    options: Mapping[str, str] | None = None,
    **more: str,
) -> list[dict[str, Any]]:
    """Read journals as Spark would, which leaves the filters to the reader here."""
    given = {"path": str(directory), OPTION: write_filters(filters)}
    source = AmpsJournalDataSource({**given, **(options or {}), **more})
    reader = source.reader(source.schema() if schema is None else columns(schema))
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def message(number: int, **fields: Any) -> bytes:
    """A message of some size."""
    return json.dumps({"id": number, **fields, "padding": "x" * (number % 400)}).encode()


@contextmanager
def journal(directory: Path, **settings: Any) -> Iterator[Writer]:
    """Journals to write to; files have a mebibyte."""
    with opened(directory, **settings) as bench:
        bench.journal.start()
        yield Writer(bench)


class Writer:
    """Writes entries, each a millisecond after the one before."""

    def __init__(self, bench: Bench) -> None:
        self.journal = bench.journal
        self.clock = bench.clock
        self._sequences: dict[int, int] = {}

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        client: int = 7,
        key: int = 0,
        kind: JournalEntryKind = JournalEntryKind.PUBLISH,
        message_type: str = "json",
        **extra: Any,
    ) -> int:
        """Append an entry; gives its txid."""
        self.clock.now += 1000
        sequence = self._sequences[client] = self._sequences.get(client, 0) + 1
        handle = self.journal.topic_handle(message_type, topic)
        return self.journal.append(handle, client, sequence, body, kind=kind, sow_key=key, **extra)
