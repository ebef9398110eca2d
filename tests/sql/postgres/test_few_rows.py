"""A few rows, which are encoded value by value, and many, which are encoded by columns."""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest

from server.sql.postgres.few_rows import MAX_FEW_ROWS
from server.sql.postgres.formats import encode_data_rows
from server.sql.postgres.pieces import ColumnFormat
from server.sql.postgres.types import BOOL, FLOAT8, INT2, INT4, INT8, TEXT, VARCHAR

ROWS = 400
FLOATS = [0.0, -0.0, 1.5, 100.0, 0.1 + 0.2, 1e10, 1e9, 9999999999.0, 1e-4, 9e-5, 1e15, 1e300, -2.5]
FLOATS += [math.nan, math.inf, -math.inf, 123456789.25]


def batch_of(source: random.Random) -> pa.RecordBatch:
    """Values of all plain types, with NULLs."""

    def column(kind: pa.DataType, value: object) -> pa.Array:
        values = [value() if source.random() < 0.8 else None for _ in range(ROWS)]  # type: ignore[operator]
        return pa.array(values, kind)

    def number() -> float:
        return source.choice([source.choice(FLOATS), source.uniform(-1e6, 1e6), source.random()])

    return pa.RecordBatch.from_arrays(
        [
            column(pa.bool_(), lambda: source.random() < 0.5),
            column(pa.int16(), lambda: source.randrange(-(2**15), 2**15)),
            column(pa.int32(), lambda: source.randrange(-(2**31), 2**31)),
            column(pa.int64(), lambda: source.randrange(-(2**63), 2**63)),
            column(pa.float64(), number),
            column(pa.string(), lambda: source.choice(["", "a", "ö\n", "x" * 300])),
            column(pa.string(), lambda: "text"),
        ],
        names=list("abcdefg"),
    )


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("size", [1, MAX_FEW_ROWS, MAX_FEW_ROWS + 1])
def test_few_rows_have_the_bytes_of_many(is_binary: bool, size: int) -> None:
    batch = batch_of(random.Random(size))
    oids = (BOOL, INT2, INT4, INT8, FLOAT8, TEXT, VARCHAR)
    formats = [ColumnFormat(oid, binary=is_binary) for oid in oids]
    parts = [batch.slice(start, size) for start in range(0, ROWS, size)]
    assert b"".join(encode_data_rows(part, formats) for part in parts) == (
        encode_data_rows(batch, formats)
    )
