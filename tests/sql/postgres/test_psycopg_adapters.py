"""What the encoder writes psycopg reads as the same value, and the other way round."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.sql.postgres import types
from server.sql.postgres.parameters import decode_parameter
from server.sql.postgres.types import TYPES
from tests.sql.postgres.test_formats import encoded
from tests.sql.postgres.test_parameters import ROUND_TRIPS
from tests.support.chances import examples

OTHER_VALUES = (types.FLOAT4, types.INTERVAL, types.JSONB, types.UUID)
"""Types that psycopg has other values for."""

CASES = [(oid, arrow, values) for oid, arrow, values, _ in ROUND_TRIPS if oid not in OTHER_VALUES]
IDS = [f"{TYPES[oid].name}{number}" for number, (oid, _, _) in enumerate(CASES)]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("oid", "arrow_type", "values"), CASES, ids=IDS)
@settings(max_examples=examples(100, 5), deadline=None)
@given(data=st.data())
def test_psycopg_reads_columns(
    oid: int, arrow_type: pa.DataType, values: st.SearchStrategy[Any], binary: bool, data: Any
) -> None:
    column = data.draw(st.lists(values, max_size=4))
    load = loader(oid, binary)
    array = pa.array(column, arrow_type)
    assert [load(one) for one in encoded(array, oid, binary=binary)] == column
    rows = pa.array([[*column, None]], pa.list_(arrow_type))
    load = loader(TYPES[oid].array, binary)
    (row,) = encoded(rows, TYPES[oid].array, binary=binary)
    assert load(row) == [*column, None]


def loader(oid: int, binary: bool) -> Any:
    transformer = psycopg.adapt.Transformer()
    return transformer.get_loader(oid, psycopg.pq.Format(binary)).load


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("oid", "arrow_type", "values"), CASES, ids=IDS)
@settings(max_examples=examples(100, 5), deadline=None)
@given(data=st.data())
def test_parameters_of_psycopg(
    oid: int, arrow_type: pa.DataType, values: st.SearchStrategy[Any], binary: bool, data: Any
) -> None:
    if oid == types.BYTEA and not binary:
        return  # without a connection, psycopg escapes them for a statement
    value = data.draw(values)
    wanted = psycopg.adapt.PyFormat.BINARY if binary else psycopg.adapt.PyFormat.TEXT
    transformer = psycopg.adapt.Transformer()
    for given_value in (value, [value], [value, None, value]):
        dumper = transformer.get_dumper(given_value, wanted)
        made = dumper.dump(given_value)
        assert made is not None
        dumped = bytes(made)
        usual = oid if given_value is value else TYPES[oid].array  # for texts psycopg names none
        assert decode_parameter(dumped, dumper.oid or usual, binary=binary) == given_value
