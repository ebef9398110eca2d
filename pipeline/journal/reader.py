"""Reads partitions of a journal as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline.arrow import require_values
from pipeline.compiled_readers import FieldReader
from pipeline.errors import PipelineError, UnfitError
from pipeline.fields import read_fields
from pipeline.journal.blocks import BlockRequest, RecordSelector, read_blocks
from pipeline.journal.columns import (
    RowMask,
    body_column,
    is_among,
    is_record_test,
    metadata_column,
    metadata_mask,
    record_mask,
)
from pipeline.journal.content import JournalContentFilter
from pipeline.journal.options import JournalOptions
from pipeline.journal.partitions import (
    JournalBlock,
    JournalNames,
    JournalPartition,
    RecordArray,
    select_records,
)
from pipeline.journal.predicates import ColumnPredicate
from pipeline.journal.schema import JournalSchema
from pipeline.tolerance import tolerated
from pipeline.workers import freeze_objects

_ADVICE = (
    ", or select messages with the options topic and message_type; for message types of a"
    " configuration, give it with the option config"
)

ColumnValues = Mapping[str, pa.Array]
"""Fields of messages, by name."""


class JournalPartitionReader:
    """Reads partitions for one query.

    Args:
        options: the options of the read.
        schema: the columns.
        predicates: the predicates of rows.
    """

    def __init__(
        self, options: JournalOptions, schema: JournalSchema, predicates: Sequence[ColumnPredicate]
    ) -> None:
        self._options = options
        self._schema = schema
        self._metadata_predicates = [
            predicate for predicate in predicates if not predicate.is_on_field
        ]
        self._field_predicates = [predicate for predicate in predicates if predicate.is_on_field]
        self._content_filter: JournalContentFilter | None = None
        if options.filter:
            self._content_filter = JournalContentFilter(
                options.filter, options.tolerance.environment
            )
        self._field_readers: dict[str, FieldReader] = {}

    def check(self, partitions: Iterable[JournalPartition]) -> None:
        """Check that the fields can be read from the messages in the partitions.

        Raises:
            PipelineError: they cannot.
        """
        if self._schema.fields:
            for kind in {
                kind for partition in partitions for kind in partition.names.message_types.values()
            }:
                self._field_reader(kind)

    def read(self, partition: JournalPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition.

        Raises:
            PipelineError: the file is gone or damaged, or a message does not fit the schema.
        """
        freeze_objects()
        tests = [*self._metadata_predicates, *partition.bounds]
        record_tests = [predicate for predicate in tests if is_record_test(predicate)]
        other_tests = [predicate for predicate in tests if not is_record_test(predicate)]
        metadata = {*self._schema.metadata.values(), *(predicate.column for predicate in tests)}
        with_bodies = (
            self._schema.has_bodies
            or bool(self._schema.fields)
            or self._content_filter is not None
            or (partition.has_extras and not metadata.isdisjoint(("correlation_id", "sow_key")))
        )
        request = BlockRequest(_chooser(record_tests), with_bodies, self._options.skips_damaged)
        for block in read_blocks(partition, request):
            for test in other_tests:
                block = block.select(metadata_mask(test, block))
            if self._content_filter is not None:
                block = block.select(self._content_filter.matches(block))
            for part in block.by_message_type() if self._schema.fields else [block]:
                yield from (batch for batch in self._tolerant_batches(part) if batch.num_rows)

    def _tolerant_batches(self, block: JournalBlock) -> Iterator[pa.RecordBatch]:
        def make(start: int, stop: int, *, fits: bool) -> pa.RecordBatch:
            count = len(block.records)
            part = block if stop - start == count else block.select(list(range(start, stop)))
            return self._make_batch(part, fits=fits)

        return tolerated(make, len(block.records), self._options.tolerance.mode)

    def _make_batch(self, block: JournalBlock, *, fits: bool) -> pa.RecordBatch:
        values: ColumnValues = {}
        if self._schema.fields and len(block.records):
            block, values = self._decode_fields(block) if fits else self._null_fields(block)
        try:
            schema = self._schema.arrow_schema
            columns = [self._make_column(field, block, values, fits=fits) for field in schema]
            for column, field in zip(columns, schema, strict=True):
                require_values(column, field)
        except PipelineError as problem:
            raise PipelineError(f"{block.path}: {problem}") from None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow_schema)

    def _decode_fields(self, block: JournalBlock) -> tuple[JournalBlock, ColumnValues]:
        """Decode the fields of a block; return the messages that pass the predicates on fields."""
        reader = self._field_reader(block.message_type(0))
        try:
            values = reader.columns(block.bodies())
        except UnfitError as problem:
            raise PipelineError(f"{block.describe(problem.number)}: {problem}") from None
        if self._field_predicates:
            mask = np.logical_and.reduce(
                [
                    predicate.match_mask(values[predicate.column])
                    for predicate in self._field_predicates
                ]
            )
            block = block.select(mask)
            values = {name: column.filter(pa.array(mask)) for name, column in values.items()}
        return block, values

    def _null_fields(self, block: JournalBlock) -> tuple[JournalBlock, ColumnValues]:
        """Return messages with NULL fields, if such rows pass the predicates on fields."""
        if not all(predicate.test()(None) for predicate in self._field_predicates):
            block = block.select([])
        return block, {}

    def _field_reader(self, message_type: str) -> FieldReader:
        reader = self._field_readers.get(message_type)
        if reader is None:
            reader = read_fields(
                self._schema.fields,
                message_type,
                _ADVICE,
                timestamps=self._options.tolerance.timestamps,
                environment=self._options.tolerance.environment,
            )
            self._field_readers[message_type] = reader
        return reader

    def _make_column(
        self, field: pa.Field, block: JournalBlock, values: ColumnValues, *, fits: bool
    ) -> pa.Array:
        what = self._schema.metadata.get(field.name)
        if what is not None:
            return metadata_column(what, block)
        if self._schema.has_bodies:
            body = body_column(block)
            return body.view(field.type)
        if field.name in values:
            return values[field.name]
        if field.name == self._schema.corrupt_column and not fits:
            return body_column(block).view(field.type)
        return pa.nulls(len(block.records), field.type)


def _chooser(tests: Sequence[ColumnPredicate]) -> RecordSelector:
    def choose(records: RecordArray, names: JournalNames) -> RecordArray:
        mask: RowMask = is_among(records["topic"], names.topics)
        mask &= is_among(records["kind"], names.kinds)
        for test in tests:
            mask &= record_mask(test, records, names)
        return records if mask.all() else select_records(records, np.flatnonzero(mask))

    return choose
