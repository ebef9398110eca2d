"""Columns of fix, nvfix, msgpack and bson in compiled code, against reading value by value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StructType

from pipeline.compiled_readers import FieldReader, plain_reader
from pipeline.errors import PipelineError
from pipeline.fields import ValueReader, read_fields
from pipeline.times import time_rule
from server.message_types.fix import FixType
from server.message_types.options import MessageTypeOptions
from server.message_types.registry import MessageTypes
from tests.pipeline.bodies import packed
from tests.support.chances import examples

PLAIN: Final = (
    StructType()
    .add("i", "integer")
    .add("b", "byte")
    .add("h", "short")
    .add("l", "long")
    .add("d", "double")
    .add("f", "float")
    .add("t", "boolean")
    .add("s", "string")
    .add("m", "timestamp")
    .add("n", "timestamp_ntz")
    .add("y", "date")
)
NESTED: Final = (
    StructType()
    .add("o", StructType().add("l", "long").add("o", StructType().add("s", "string")))
    .add("i", "integer")
    .add("x", DecimalType(20, 2))
    .add("a", ArrayType(IntegerType()))
    .add("s", "string")
)
NAMES: Final = (*PLAIN.names, "", "other")
NUMBERS: Final = (
    st.sampled_from([0, 1, -1, 127, 128, -128, -129, 2**15, 2**31 - 1, 2**31, -(2**31) - 1])
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=64)
)
MOMENTS: Final = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
ISO: Final = MOMENTS.map(datetime.isoformat) | MOMENTS.map(lambda one: f"{one.isoformat()}-05:30")
FIX: Final = st.builds(
    datetime.strftime,
    st.datetimes(datetime(1900, 1, 2), datetime(2200, 1, 1)),
    st.sampled_from(["%Y%m%d", "%Y%m%d-%H:%M:%S", "%Y%m%d-%H:%M:%S.%f", "%H:%M:%S"]),
)
TEXTS: Final = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
    | st.sampled_from(["", "null", "-0", "-0.0", "007", "+1", " 1", "1.", ".5", "1e3", "5.0"])
    | st.sampled_from(["true", "false", "TRUE", "1", "0", "no", "nan", "inf", "1_0", "1e400"])
    | st.sampled_from(["20260230", "20260102-24:00:00", "20260102-03:04:60", "2026-01-02"])
    | NUMBERS.map(str)
    | ISO
    | FIX
    | st.dates().map(str)
)
SCALARS: Final = st.none() | st.booleans() | NUMBERS | TEXTS
TREES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["l", "o", "s", "z"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@cache
def readers(
    nested: bool, message_type: str, timestamps: str | None, separator: int | None
) -> tuple[FieldReader, FieldReader]:
    """What reads in compiled code, and value by value."""
    schema = NESTED if nested else PLAIN
    kind = MessageTypes().get(message_type)
    if separator is not None:
        given = {"FieldSeparator": [str(separator)], "HeaderSeparator": ["2"]}
        kind = FixType(message_type, MessageTypeOptions(given), MessageTypes().get)
    by_value = partial(ValueReader, kind=kind, module=message_type, timestamps=timestamps)
    rule = time_rule(message_type, timestamps)
    return plain_reader(schema, kind, rule, by_value), by_value(schema)


def outcome(reader: FieldReader, bodies: Sequence[bytes]) -> object:
    """The columns as texts, so that NaN is NaN; or that a body does not fit."""
    try:
        columns = reader.columns(packed(bodies))
    except PipelineError:
        return "does not fit"
    return {name: (str(column.type), repr(column.to_pylist())) for name, column in columns.items()}


def compare(
    message_type: str,
    bodies: Sequence[bytes],
    timestamps: str | None = None,
    separator: int | None = None,
) -> None:
    """Together, and each by itself: one that does not fit hides the others."""
    for nested in (False, True):
        quick, slow = readers(nested, message_type, timestamps, separator)
        for some in (bodies, *([body] for body in bodies)):
            assert outcome(quick, some) == outcome(slow, some)


RULES: Final = st.sampled_from([None, "iso", "fix", "seconds", "millis", "micros"])
PAIRS: Final = st.lists(
    st.tuples(st.sampled_from(NAMES), TEXTS) | st.tuples(TEXTS, TEXTS), max_size=6
)


@settings(max_examples=examples(100))
@given(
    st.lists(PAIRS, max_size=4),
    st.sampled_from([b"\x01", b"|"]),
    st.booleans(),
    RULES,
    st.sampled_from(["fix", "nvfix"]),
    st.sampled_from([b"", b"\xff", b"=", b"i"]),
)
@example([[("i", "12")], [("d", "5")]], b"|", False, None, "fix", b"")
@example([[("i", "1"), ("i", "")]], b"|", False, None, "fix", b"")
def test_fix(
    rows: list[list[tuple[str, str]]],
    separator: bytes,
    is_closed: bool,
    timestamps: str | None,
    message_type: str,
    rubbish: bytes,
) -> None:
    """Values of all kinds, tags that occur twice, and what is no field."""
    bodies = [
        separator.join(
            [f"{name}={value}".encode() for name, value in row]
            + [rubbish] * bool(rubbish)
            + [b""] * is_closed
        )
        for row in rows
    ]
    if rubbish == b"i":
        bodies = [body.replace(separator, b"\x02", 1) for body in bodies]
    compare(message_type, bodies, timestamps, separator[0])


def extension(seconds: int, nanos: int) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(-1, struct.pack(">Iq", nanos, seconds))


EXTENSIONS: Final = (
    MOMENTS.map(lambda one: one.replace(tzinfo=UTC))
    | st.builds(
        extension, st.integers(-(2**36), 2**38), st.sampled_from([0, 1000, 999_999_000, 10**9, 1])
    )
    | st.just(msgspec.msgpack.Ext(5, b"abcd"))
    | st.binary(max_size=3)
)
DOCUMENTS: Final = st.dictionaries(st.sampled_from((*NAMES, "o", "x", "a")), TREES, max_size=7)


@settings(max_examples=examples(100))
@given(st.lists(DOCUMENTS, max_size=3), st.dictionaries(st.sampled_from("imys"), EXTENSIONS), RULES)
def test_msgpack(
    rows: list[dict[str, Any]], extensions: dict[str, Any], timestamps: str | None
) -> None:
    """Numbers of all widths, maps within maps, extensions."""
    bodies = [*map(msgspec.msgpack.encode, rows), msgspec.msgpack.encode(extensions)]
    compare("msgpack", bodies, timestamps)


def element(name: str, value: Any) -> bytes:
    head = name.encode() + b"\0"
    match value:
        case None:
            return b"\x0a" + head
        case bool():
            return b"\x08" + head + bytes([value])
        case datetime():
            millis = int(value.replace(tzinfo=UTC).timestamp() * 1000)
            return b"\x09" + head + struct.pack("<q", millis)
        case int() if -(2**31) <= value < 2**31:
            return b"\x10" + head + struct.pack("<i", value)
        case int():
            return b"\x12" + head + struct.pack("<q", value)
        case float():
            return b"\x01" + head + struct.pack("<d", value)
        case str():
            text = value.encode() + b"\0"
            return b"\x02" + head + struct.pack("<i", len(text)) + text
        case bytes():
            return b"\x07" + head + value.ljust(12, b"\xfe")
        case dict():
            return b"\x03" + head + document(value)
    return b"\x04" + head + document({str(place): one for place, one in enumerate(value)})


def document(fields: Mapping[str, Any]) -> bytes:
    inner = b"".join(element(*field) for field in fields.items())
    return struct.pack("<i", len(inner) + 5) + inner + b"\0"


@settings(max_examples=examples(100))
@given(
    st.lists(DOCUMENTS, max_size=3),
    st.dictionaries(st.sampled_from("imys"), MOMENTS | st.binary(max_size=12)),
    RULES,
)
def test_bson(rows: list[dict[str, Any]], others: dict[str, Any], timestamps: str | None) -> None:
    """The same, and dates and object ids."""
    bodies = [*map(document, rows), document(others)]
    compare("bson", bodies, timestamps)


def twice(encode: Callable[[dict[str, Any]], bytes]) -> bytes:
    """A body in which one name occurs twice."""
    return encode({"i": 1, "j": 2, "k": 3}).replace(b"k", b"i").replace(b"j", b"i", 1)


@settings(max_examples=examples(100))
@given(
    DOCUMENTS,
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2),
    st.integers(0, 9),
)
def test_damaged_bodies(row: dict[str, Any], changes: list[tuple[int, int]], cut: int) -> None:
    """Bytes that are changed, or are missing at the end: they mean the same, or do not fit."""
    for message_type, encode in (("msgpack", msgspec.msgpack.encode), ("bson", document)):
        for whole in (encode(row), twice(encode)):
            body = bytearray(whole)
            for place, byte in changes:
                body[place % len(body)] = byte
            compare(message_type, [whole, bytes(body[: len(body) - cut])])


def test_a_body_costs_the_others_nothing() -> None:
    """Odd bodies among plain ones, and which one does not fit."""
    schema = StructType().add("i", "integer").add("x", DecimalType(9, 2)).add("s", "string")
    reader = read_fields(schema, "nvfix")
    bodies = [b"i=1\x01s=a", b"i=5.0\x01x=1.5\x01", b"", b"s=c\x01s2=d\x01i=2"]
    assert {
        name: column.to_pylist() for name, column in reader.columns(packed(bodies)).items()
    } == {
        "i": [1, 5, None, 2],
        "x": [None, Decimal("1.50"), None, None],
        "s": ["a", None, None, "c"],
    }
    with pytest.raises(PipelineError, match=r"column 'i'.*'x'") as caught:
        reader.columns(packed([*bodies, b"i=x", b"i=y"]))
    assert getattr(caught.value, "number", None) == 4
