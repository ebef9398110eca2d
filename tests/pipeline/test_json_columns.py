"""Columns of JSON bodies, against Python's own reader of JSON, body by body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructType

from pipeline.errors import PipelineError, UnfitError
from pipeline.fields import read_fields
from tests.pipeline.bodies import packed
from tests.support.chances import examples

SCHEMA: Final = (
    StructType()
    .add("i", "integer")
    .add("l", "long")
    .add("b", "byte")
    .add("d", "double")
    .add("f", "float")
    .add("t", "boolean")
    .add("s", "string")
    .add("m", "timestamp")
    .add("n", "timestamp_ntz")
    .add("y", "date")
    .add(
        "o",
        StructType().add("l", "long").add("s", "string").add("o", StructType().add("d", "double")),
    )
    .add("a", ArrayType(IntegerType()))
    .add("p", MapType(StringType(), StringType()))
    .add("q", ArrayType(StructType().add("l", "long")))
    .add("x", DecimalType(20, 2))
    .add("v", ArrayType(ArrayType(StringType())))
    .add(
        "w",
        ArrayType(
            StructType()
            .add("l", "long")
            .add("s", "string")
            .add("t", "boolean")
            .add("m", "timestamp")
            .add("v", ArrayType(StructType().add("d", "double").add("s", "string")))
        ),
    )
)
READER: Final = read_fields(SCHEMA, "json")


def read(*bodies: bytes) -> list[dict[str, Any]]:
    columns = READER.columns(packed(bodies))
    values = [column.to_pylist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def without_null(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", {}),
        (b" {} ", {}),
        (b'\xef\xbb\xbf{ "i" : 1 }\n', {"i": 1}),
        (b'{"i":1,"i":2}', {"i": 1}),
        (b'{"i":null,"i":2}', {}),
        (b'{"\\u0069":1,"j":{"i":2},"s":"\\u00e4\\ud83d\\ude00\\n\\\\"}', {"i": 1, "s": "ä😀\n\\"}),
        (b'{"i":-2147483648,"l":-9223372036854775808}', {"i": -(2**31), "l": -(2**63)}),
        (b'{"i":5.0,"l":1e3}', {"i": 5, "l": 1000}),
        (b'{"d":0.1,"f":0.5}', {"d": 0.1, "f": 0.5}),
        (b'{"d":1E-7}', {"d": 1e-7}),
        (b'{"d":5e-324}', {"d": 5e-324}),
        (b'{"d":123456789012345678901234567890}', {"d": 123456789012345678901234567890.0}),
        (b'{"d":-Infinity}', {"d": float("-inf")}),
        (b'{"t":true,"s":"\xc3\xa4"}', {"t": True, "s": "ä"}),
        (b'{"y":"2024-02-29"}', {"y": date(2024, 2, 29)}),
        (b'{"m":"0001-01-01T00:00:00Z"}', {"m": datetime(1, 1, 1, tzinfo=UTC)}),
        (
            b'{"m":"1969-12-31T23:59:59.000001-01:30"}',
            {"m": datetime(1970, 1, 1, 1, 29, 59, 1, UTC)},
        ),
        (b'{"n":"2026-01-02 03:04:05"}', {"n": datetime(2026, 1, 2, 3, 4, 5)}),
        (
            b'{"m":"2026-01-02T03:04:05.1234567Z"}',
            {"m": datetime(2026, 1, 2, 3, 4, 5, 123457, UTC)},
        ),
        (
            b'{"o":{"o":{"d":1,"d":2},"l":7},"a":[1,null]}',
            {"o": {"l": 7, "s": None, "o": {"d": 1.0}}, "a": [1, None]},
        ),
        (b'{"a":[1],"a":[2]}', {"a": [1]}),
        (b'{"q":[{"l":1,"l":2},{"k":3}]}', {"q": [{"l": 2}, {"l": None}]}),
        (b'{"v":[ ["x" ,"\\u00e4"],[ ],null, [null] ]}', {"v": [["x", "ä"], [], None, [None]]}),
        (b'{"o":{}}', {"o": {"l": None, "s": None, "o": None}}),
        (
            b'{"p":{"k":"v"},"q":[{"l":1},null],"x":1.5}',
            {"p": [("k", "v")], "q": [{"l": 1}, None], "x": Decimal("1.50")},
        ),
    ],
)
def test_what_is_a_value(body: bytes, expected: Mapping[str, Any]) -> None:
    """Alone and among others, before and behind which it changes nothing."""
    plain = b'{"l":1,"s":"x","o":{"s":"y"}}'
    assert without_null(read(body)[0]) == expected
    around = {"l": 1, "s": "x", "o": {"l": None, "s": "y", "o": None}}
    assert [without_null(row) for row in read(plain, body, plain, body)] == [
        around,
        expected,
        around,
        expected,
    ]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"  ", "truncated"),
        (b'{"i":1', "truncated"),
        (b'{"i":1}{', "malformed"),
        (b'{"i" 1}', "malformed"),
        (b'{"i":1,}', "malformed"),
        (b'{"i":01}', "`i`|column 'i'"),
        (b'{"i":2147483648}', "2147483647"),
        (b'{"b":128}', "127"),
        (b'{"i":"1"}', r"got `str` - at `\$.i`"),
        (b'{"i":true}', r"got `bool` - at `\$.i`"),
        (b'{"t":1}', r"got `int` - at `\$.t`"),
        (b'{"d":"x"}', r"got `str` - at `\$.d`"),
        (b'{"d":1e400}', r"out of range - at `\$.d`"),
        (b'{"f":-1e400}', r"out of range - at `\$.f`"),
        (b'{"s":1}', r"got `int` - at `\$.s`"),
        (b'{"s":"a\nb"}', "malformed"),
        (b'{"s":"\xff"}', "(?i)utf-8"),
        (b'{"s":"\\ud800"}', "column 's'"),
        (b'{"s":"\\x"}', "malformed"),
        (b'{"y":"2026-02-29"}', r"date - at `\$.y`"),
        (b'{"m":"2026-01-02"}', r"datetime - at `\$.m`"),
        (b'{"m":1767323045}', "option timestamps|got `int`"),
        (b'{"o":{"l":"x"}}', r"got `str` - at `\$.o.l`"),
        (b'{"a":[1,"x"]}', r"got `str` - at `\$.a\[1\]`"),
        (b'{"a":[1,]}', "malformed"),
        (b'{"a":[1', "truncated"),
        (b'{"v":["x"]}', r"got `str` - at `\$.v\[0\]`"),
    ],
)
def test_what_is_none(body: bytes, problem: str) -> None:
    """It is said which body, where in it, and what it is."""
    with pytest.raises(UnfitError, match=problem) as caught:
        read(b'{"i":1}', b'{"i":5.0}', body, b'{"i":1}')
    assert caught.value.number == 2
    assert repr(body[:200]) in str(caught.value)


MOMENTS: Final = st.datetimes(
    datetime(1800, 1, 1),
    datetime(2200, 1, 1),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30))]),
)
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WHOLE: Final = st.integers(-(2**63), 2**63 - 1)
VALUES: Final = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": WHOLE,
    "b": st.integers(-128, 127),
    "d": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    "t": st.booleans(),
    "s": TEXTS,
    "m": MOMENTS,
    "y": st.dates(date(1, 1, 1)),
    "o": st.fixed_dictionaries({}, optional={"l": WHOLE, "s": TEXTS}),
    "a": st.lists(st.sampled_from([None, 5.0]) | st.integers(-9, 9), max_size=3),
    "v": st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=3), max_size=3),
    "w": st.lists(
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "l": st.none() | WHOLE,
                "s": TEXTS,
                "t": st.booleans(),
                "m": MOMENTS,
                "v": st.lists(
                    st.none() | st.fixed_dictionaries({"d": st.sampled_from([0.5, 1])}), max_size=3
                ),
            },
        ),
        max_size=3,
    ),
    "other": st.recursive(
        TEXTS | WHOLE, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5
    ),
}
ROWS: Final = st.lists(st.sampled_from(sorted(VALUES)), max_size=8, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: st.none() | VALUES[name] for name in names})
)


@settings(max_examples=examples(300))
@given(st.lists(ROWS, max_size=6), st.booleans(), st.sampled_from([None, 2]))
def test_what_python_writes_is_read(
    rows: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    bodies = [
        json.dumps(row, ensure_ascii=ascii_only, indent=indent, default=lambda one: one.isoformat())
        for row in rows
    ]
    found = [without_null(row) for row in read(*map(str.encode, bodies))]
    for row in rows:
        row.pop("other", None)
        if row.get("o") is not None:
            row["o"] = {"l": None, "s": None, "o": None} | row["o"]
        for one in (one for one in row.get("w") or () if one is not None):
            inner = one.get("v")
            complete = inner and [each and {"d": None, "s": None} | each for each in inner]
            one |= dict.fromkeys("lstmv") | one | {"v": complete}
    assert found == [without_null(row) for row in rows]


CHANGES: Final = st.tuples(st.integers(0, 300), st.sampled_from(b'{}[]":,\\0x- \xff'))


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


@settings(max_examples=examples(500))
@given(
    ROWS,
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(b'{}[]":,\\0x- \xff')), max_size=2),
)
def test_no_body_is_read_as_something_else(
    row: dict[str, Any], changes: list[tuple[int, int]]
) -> None:
    """Whatever is changed in a body: it is refused, or has the values that others see in it."""
    body = bytearray(json.dumps(row, default=lambda one: one.isoformat()).encode())
    for place, byte in changes:
        body[place % len(body)] = byte
    try:
        (found,) = read(bytes(body))
    except PipelineError:
        return
    try:
        expected = json.loads(body, object_pairs_hook=_first)
    except ValueError:
        return  # what is passed over is not looked at closely
    if expected.get("d") is not None:
        expected["d"] = float(expected["d"])
    for name in ("i", "l", "b", "d", "t", "s", "a", "v"):
        assert found[name] == expected.get(name), bytes(body)
