"""From a piece of a journal to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.journal.blocks import Choose, Request, read_blocks
from pipeline.journal.columns import (
    BODY,
    METADATA,
    body_column,
    is_quick,
    metadata_column,
    quick_mask,
    slow_mask,
)
from pipeline.journal.content import ContentFilter
from pipeline.journal.errors import JournalReadError
from pipeline.journal.fields import FieldReader, Row
from pipeline.journal.options import JournalOptions
from pipeline.journal.pieces import Block, Names, Piece, Records
from pipeline.journal.predicates import Predicate

Mask = npt.NDArray[np.bool_]


class PieceReader:
    """Reads pieces for one query.

    Args:
        options: what is asked for.
        schema: the columns.
        predicates: what rows have to meet.

    Raises:
        JournalReadError: a column of the schema cannot be had.
    """

    def __init__(
        self, options: JournalOptions, schema: StructType, predicates: Sequence[Predicate]
    ) -> None:
        self._options = options
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        fields = [one for one in schema.fields if one.name not in METADATA and one.name != BODY]
        self._fields = FieldReader(
            fields,
            [self._schema.field(one.name).type for one in fields],
            is_permissive=options.is_permissive,
        )
        self._on_metadata = [one for one in predicates if one.column in METADATA]
        self._on_fields = [one for one in predicates if one.column in self._fields.names]
        self._content = ContentFilter(options.filter) if options.filter else None

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read one piece.

        Raises:
            JournalReadError: the file is gone or damaged, or a message does not fit the schema.
        """
        tests = [*self._on_metadata, *piece.bounds]
        slow = [one for one in tests if not is_quick(one)]
        quick = [one for one in tests if is_quick(one)]
        wants = set(self._schema.names) | {one.column for one in tests}
        with_bodies = bool(self._fields.names or self._content or wants & {BODY, "correlation_id"})
        request = Request(_chooser(quick), with_bodies, self._options.skips_damaged)
        for block in read_blocks(piece, request):
            for test in slow:
                block = block.only(slow_mask(test, block))
            if self._content is not None:
                block = block.only(self._content.matches(block))
            if len(block.records):
                batch = self._batch(block)
                if batch.num_rows:
                    yield batch

    def _batch(self, block: Block) -> pa.RecordBatch:
        rows: list[Row] = []
        if self._fields.names:
            block, rows = self._decoded(block)
        columns = [self._column(field, block, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _decoded(self, block: Block) -> tuple[Block, list[Row]]:
        """The messages of a block that meet the predicates on fields."""

        def complain(number: int, text: str) -> JournalReadError:
            txid = int(block.records["txid"][number])
            topic = block.names.topics[int(block.records["topic"][number])]
            return JournalReadError(f"{block.path}: entry {txid} of topic {topic}: {text}")

        types = block.names.message_types
        kinds = set(types.values())
        of_each = (
            [*kinds] * len(block.records)
            if len(kinds) == 1
            else [types[number] for number in block.records["topic"].tolist()]
        )
        rows = self._fields.rows(block.bodies(), of_each, complain)
        if not self._on_fields:
            return block, rows
        places = list(range(len(rows)))
        for predicate in self._on_fields:
            value, test = self._fields.values(predicate.column), predicate.test()
            places = [place for place in places if test(value(rows[place]))]
        return block.only(places), [rows[place] for place in places]

    def _column(self, field: pa.Field, block: Block, rows: Sequence[Row]) -> pa.Array:
        if field.name == BODY:
            body = body_column(block)
            return body if field.type == pa.binary() else body.view(pa.string())
        if field.name in METADATA:
            return metadata_column(field.name, block)
        return self._fields.column(field.name, rows)


def _chooser(tests: Sequence[Predicate]) -> Choose:
    def choose(records: Records, names: Names) -> Mask:
        mask = np.isin(records["kind"], list(names.kinds))
        for test in tests:
            mask &= quick_mask(test, records, names)
        return mask

    return choose
