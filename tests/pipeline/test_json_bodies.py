"""Bodies that columns become, against Python's objects and msgspec, byte by byte."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import PipelineError
from pipeline.json_bodies import JsonWriter

encode: Final = msgspec.json.Encoder(decimal_format="number").encode

TEXTS = st.text(max_size=30)
FLOATS = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.integers(-(10**17), 10**17).map(float),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 12)).map(lambda p: p[0] / 10 ** p[1]),
)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
PLAIN: Final[dict[pa.DataType, st.SearchStrategy[Any]]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): FLOATS,
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.timestamp("us"): MOMENTS,
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(max_size=12),
    pa.decimal128(20, 3): st.decimals(-(10**16), 10**16, places=3),
    pa.decimal128(38, 18): st.decimals(-(10**9), 10**9, places=18),
    pa.map_(pa.string(), pa.int32()): st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
}


def columns(depth: int = 2) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type, and the values that columns of it have."""
    plain = st.sampled_from(list(PLAIN.items()))
    if not depth:
        return plain
    inner = columns(depth - 1)
    lists = inner.map(lambda one: (pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)))
    structs = st.dictionaries(TEXTS, inner, max_size=3).map(
        lambda members: (
            pa.struct([(name, kind) for name, (kind, _) in members.items()]),
            st.fixed_dictionaries({name: st.none() | one for name, (_, one) in members.items()}),
        )
    )
    return plain | lists | structs


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    made = {
        name: pa.array([draw(st.none() | values) for _ in range(rows)], kind)
        for name, (kind, values) in draw(st.dictionaries(TEXTS, columns(), max_size=4)).items()
    }
    batch = pa.RecordBatch.from_pydict(made)
    return batch.slice(draw(st.integers(0, rows)), draw(st.integers(0, rows)))


def expected(batch: pa.RecordBatch) -> list[bytes]:
    rows = batch.to_pylist(maps_as_pydicts="strict")
    return [
        encode({name: value for name, value in row.items() if value is not None}) for row in rows
    ]


def written(batch: pa.RecordBatch) -> list[bytes]:
    return list(map(bytes, JsonWriter().bodies(batch)))


@given(batches())
def test_bodies_are_what_msgspec_makes_of_the_rows(batch: pa.RecordBatch) -> None:
    assert written(batch) == expected(batch)


@given(st.lists(FLOATS, max_size=20))
def test_numbers_have_the_fewest_digits(values: list[float]) -> None:
    batch = pa.RecordBatch.from_pydict({"d": pa.array(values, pa.float64())})
    assert written(batch) == [b'{"d":%b}' % encode(value) for value in values]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, b"0.0"),
        (-0.0, b"-0.0"),
        (1e15, b"1000000000000000.0"),
        (1e16, b"1e16"),
        (0.00001, b"0.00001"),
        (1e-6, b"1e-6"),
        (-1.5e-5, b"-0.000015"),
        (5e-324, b"5e-324"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (math.nan, b"null"),
        (-math.inf, b"null"),
        (
            '\0\x1f\x7f\n\t\b\f\r"\\/é\u2028',
            b'"\\u0000\\u001f\x7f\\n\\t\\b\\f\\r\\"\\\\/\xc3\xa9\xe2\x80\xa8"',
        ),
        (date(1, 1, 1), b'"0001-01-01"'),
        (date(2024, 2, 29), b'"2024-02-29"'),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), b'"1969-12-31T23:59:59.999999Z"'),
    ],
)
def test_a_value_is_written_like_this(value: object, text: bytes) -> None:
    assert written(pa.RecordBatch.from_pydict({"a": [value]})) == [b'{"a":%b}' % text]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([b"\xff"]).view(pa.string()), "column 'a' has a string that is not UTF-8"),
        (pa.array([2**62], pa.timestamp("us")), "not in the years 1 to 9999"),
        (pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())), "column 'a' cannot"),
    ],
)
def test_what_json_cannot_have_is_refused(column: pa.Array, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        written(pa.RecordBatch.from_pydict({"a": column}))
