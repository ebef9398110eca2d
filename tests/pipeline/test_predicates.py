"""Predicates on columns, against the same on each value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.journal.predicates import ColumnPredicate

TEXTS = st.text("ab\0ä😀.*%_", max_size=4)


@given(
    st.lists(st.none() | TEXTS, max_size=6),
    st.sampled_from(["startswith", "endswith", "__contains__", "eq", "ne", "lt", "ge"]),
    TEXTS,
    st.booleans(),
)
def test_texts(values: list[str | None], operation: str, literal: str, negated: bool) -> None:
    is_affix = operation[-2:] in ("th", "__")
    one = ColumnPredicate("s", operation, (literal,), negated and is_affix)
    column = pa.array(values, pa.string())
    assert one.match_mask(column).tolist() == [bool(one.test()(value)) for value in values]
