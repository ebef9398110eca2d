"""Texts of fix, nvfix and xml are numbers where they are to the server, whatever the column."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from amperage.client import Message
from amperage.wire.header import Header
from pipeline.errors import PipelineError
from pipeline.rows import RowFormat
from server.expressions.numerals import numeral

TEXTS = st.text("0123456789.eE+-", min_size=1, max_size=8) | st.sampled_from(
    ["x", " 5", "5 ", "1_000", "0x10", "\u0665"]
)
BODIES = {"nvfix": "n={}\x01", "fix": "1={}\x01", "xml": "<m>{}</m>"}
NAMES = {"nvfix": "n", "fix": "1", "xml": "m"}


def read(message_type: str, kind: str, text: str) -> object:
    """A column of one message; its type for an error."""
    rows = RowFormat(StructType().add(NAMES[message_type], kind), message_type)
    body = BODIES[message_type].format(text).encode()
    try:
        return rows.batch([Message(Header(), body)]).column(0)[0].as_py()
    except PipelineError as error:
        return type(error)


@pytest.mark.parametrize("message_type", BODIES)
@given(text=TEXTS)
@example(text="007")
@example(text="+5")
@example(text="5.")
@example(text=".5")
@example(text="1e2")
@example(text="1e999")
def test_texts_are_numbers_where_they_are_to_the_server(message_type: str, text: str) -> None:
    """In columns of doubles; and what is whole in those of whole numbers and decimals, too."""
    number = numeral(text)
    found = {kind: read(message_type, kind, text) for kind in ("double", "long", "decimal(38,9)")}
    if number is None or not math.isfinite(number):
        assert all(isinstance(one, type) for one in found.values())
        return
    assert found["double"] == float(number)
    if float(number).is_integer() and abs(number) < 1e15:
        assert found["long"] == int(number)
        if "e" not in text.lower():  # which may have more digits than a decimal, if they are zeros
            assert found["decimal(38,9)"] == Decimal(int(number))
    elif not float(number).is_integer():
        assert isinstance(found["long"], type)
