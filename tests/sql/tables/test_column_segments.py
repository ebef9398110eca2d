"""Segments: the columns of several blocks as one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from server.expressions import parse
from server.expressions.backends.columns import column_of
from server.expressions.backends.compile_message import compile_filter
from server.expressions.tree import paths
from server.message_types.paths import Path
from server.message_types.registry import MessageTypes
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import common_type, type_of_values, values_array
from server.sql.tables.column_segments import DictionaryColumn, SegmentField
from server.sql.tables.segment_filter import SegmentFilter, is_supported

KINDS: dict[str, list[Any]] = {
    "integers": [1, -5, 2**40, 0],
    "large integers": [2**60, 7, 2**70],
    "doubles": [0.5, -0.0, 0.0, 1e300],
    "numbers": [1, 2.5, 0, -0.0],
    "texts": ["a", "b", "5", "ö", "true"],
    "Booleans": [True, False],
    "NULL": [None],
    "arrays": [[1, "a"], [2]],
    "any": [1, "1", 1.0, True, "a", [1], None],
}
ROWS = 40
SEEDS = range(40)


def blocks_of(source: random.Random) -> list[list[Any]]:
    """The values of some blocks, of some kinds each."""
    kinds = source.sample(sorted(KINDS), source.choice([1, 1, 2, 3]))
    values = [value for kind in kinds for value in KINDS[kind]]
    is_sparse = source.random() < 0.5
    return [
        [
            None if is_sparse and source.random() < 0.5 else source.choice(values)
            for _ in range(ROWS)
        ]
        for _ in range(source.choice([1, 4]))
    ]


def rows_of(array: pa.Array) -> list[str]:
    """The values of an array, so that 0.0 and -0.0 differ."""
    return list(map(repr, array.to_pylist()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_field_has_the_values_of_its_blocks(seed: int) -> None:
    blocks = blocks_of(random.Random(seed))
    similar = SegmentField([column_of(block) for block in blocks_of(random.Random(seed // 2))])
    field = SegmentField([column_of(block) for block in blocks], similar)
    values = [value for block in blocks for value in block]
    own_type = type_of_values(values)
    assert field.type is own_type
    rows = np.arange(3, len(values), 7)
    for sql_type in SqlType:
        if own_type is None or common_type(sql_type, own_type) is sql_type:
            expected = values_array(values, sql_type)
            assert rows_of(field.array(sql_type)) == rows_of(expected)
            taken = field.take(sql_type, rows)
            assert taken.type == sql_type.arrow_type
            assert rows_of(taken) == rows_of(expected.take(pa.array(rows)))
            numbers = field.numbers(sql_type)
            if numbers is not None:
                assert rows_of(pa.array(numbers, sql_type.arrow_type)) == rows_of(expected)


FILTERS: Sequence[str] = [
    *("/v = 5", "/v != 1", "/v > 0", "/v <= 2.5", "/v = '5'", "/v = 'a'", "/v > 'a'", "/v = ''"),
    *("/v IN (1, 2.5)", "/v IN ('a', 'b')", "/v IS NULL", "NOT /v IS NULL", "/v IS NAN", "/v"),
    *("/v BEGINS WITH ('a')", "NOT /v = 1", "NOT /v IN ('a')", "/v = 1 OR /w = 'b'"),
    *("/v > 0 AND NOT (/w = 'a' OR /v = 1)", "/none IS NULL AND /v = 1"),
]


@pytest.mark.parametrize("filter_", FILTERS)
def test_a_filter_selects_the_rows_that_it_selects_one_by_one(filter_: str) -> None:
    expr = parse(filter_)
    assert is_supported(expr)
    fields = paths(expr)
    message_type = MessageTypes().get("json")
    test = compile_filter(expr)
    segment_filter = SegmentFilter(expr, message_type)
    similar: dict[Path, SegmentField] = {}
    for seed in SEEDS:
        source = random.Random(seed)
        named = {"v": blocks_of(source), "w": blocks_of(source)}
        count = min(map(len, named.values()))
        nulls = [[None] * ROWS] * count
        by_path = {path: named.get(str(path[0]), nulls)[:count] for path in fields}
        segment = {
            path: SegmentField([column_of(block) for block in columns], similar.get(path))
            for path, columns in by_path.items()
        }
        similar = segment
        values = [[value for block in by_path[path] for value in block] for path in fields]
        mask = segment_filter.mask(segment)
        assert mask.tolist() == [test(row) for row in zip(*values, strict=True)], seed


@pytest.mark.parametrize(
    "filter_",
    ["/a LIKE 'x'", "/a + 1 > 2", "/a = /b", "UPPER(/a) = 'B'", "1 = 1", "/a BETWEEN 1 AND 2"],
)
def test_other_filters_are_not_supported(filter_: str) -> None:
    assert not is_supported(parse(filter_))


def test_texts_that_repeat_are_a_dictionary() -> None:
    source = random.Random(1)
    texts = [source.choice(["a", "b", None]) for _ in range(1000)]
    field = SegmentField([column_of(texts[:500]), column_of(texts[500:])])
    assert isinstance(field.column, DictionaryColumn)
    array = field.array(SqlType.TEXT)
    assert isinstance(array, pa.DictionaryArray)
    assert array.to_pylist() == texts
    more = SegmentField([column_of(["b", None, "a", "b"])], field)
    assert isinstance(more.column, DictionaryColumn)
    assert more.column.values is field.column.values
    others = SegmentField([column_of(["b", None, "c", "b"])], field)
    assert others.array(SqlType.TEXT).to_pylist() == ["b", None, "c", "b"]
    different = SegmentField([column_of([f"{number}" for number in range(5000)])])
    assert different.array(SqlType.TEXT).type == pa.string()


def test_texts_that_become_equal_are_no_dictionary() -> None:
    """Bytes that are no UTF-8 are U+FFFD."""
    field = SegmentField([column_of(["\udcff", "\udcfe", "a", "a"])])
    assert field.array(SqlType.TEXT).to_pylist() == ["\ufffd", "\ufffd", "a", "a"]
