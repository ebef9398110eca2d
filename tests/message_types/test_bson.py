"""BSON: what values become, checked against the layout in the specification and against pymongo."""

from __future__ import annotations

import datetime
import re
import struct
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.dbref import DBRef
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from hypothesis import given

from server.message_types.base import BodyError, MessageTypeError, Value
from server.message_types.paths import parse_path
from server.message_types.select_list import parse_selection
from server.message_types.trees import Tree, read_path
from tests.message_types.bodies import DOCUMENTS, damaged, message_type, paths_of, survives

BSON = message_type("bson")
BODIES = DOCUMENTS.map(bson.encode)


def extract(body: bytes, *paths: str) -> tuple[Value, ...]:
    return BSON.extractor([parse_path(path) for path in paths])(body)


def ordered(body: bytes) -> Any:
    return bson.decode(body, CodecOptions(document_class=SON))


# The two examples of bsonspec.org, byte for byte.
HELLO = b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00"
AWESOME = (
    b"1\x00\x00\x00\x04BSON\x00&\x00\x00\x00\x020\x00\x08\x00\x00\x00awesome\x00"
    b"\x011\x00333333\x14@\x102\x00\xc2\x07\x00\x00\x00\x00"
)


def test_examples_of_the_specification() -> None:
    assert extract(HELLO, "/hello") == ("world",)
    assert extract(AWESOME, "/BSON", "/BSON[1]") == (["awesome", 5.05, 1986], 5.05)
    assert BSON.build([(("hello",), "world")]) == HELLO


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (1.5, 1.5),
        ("text", "text"),
        ("", ""),
        ({}, None),
        ([], None),
        ([1, [2, "x"], {"a": 1}, None], [1, 2, "x", None]),
        (b"\x00\xff", "\x00\udcff"),
        (bson.Binary(b"abc", 128), "abc"),
        (bson.ObjectId("0123456789abcdef01234567"), "0123456789abcdef01234567"),
        (True, True),
        (False, False),
        (datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC), 1_714_521_600_000),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC), -1000),
        (None, None),
        (re.compile("^a/b", re.IGNORECASE), "/^a/b/iu"),
        (bson.Code("f()"), "f()"),
        (bson.Code("f(x)", {"x": 1}), "f(x)"),
        (7, 7),
        (-(2**31), -(2**31)),
        (2**40, 2**40),
        (bson.Int64(3), 3),
        (bson.Timestamp(2, 3), (2 << 32) + 3),
        (bson.Decimal128("12.50"), 12.5),
        (bson.Decimal128("-1E-3"), -0.001),
        (bson.Decimal128("18446744073709551615"), 18446744073709551615),
        (bson.Decimal128("-9223372036854775808"), -9223372036854775808),
        (bson.Decimal128("99999999999999999999"), 1e20),
        (bson.Decimal128("1E+6000"), float("inf")),
        (bson.Decimal128("-Infinity"), float("-inf")),
        (bson.MinKey(), None),
        (bson.MaxKey(), None),
    ],
)
def test_value_of_type(stored: object, value: Value) -> None:
    body = bson.encode({"before": "x", "field": stored, "after": 1})
    assert extract(body, "/field", "/after") == (value, 1)
    assert type(extract(body, "/field")[0]) is type(value)


@pytest.mark.parametrize(
    ("element", "value"),
    [
        (b"\x06x\x00", None),  # undefined
        (b"\x0cx\x00\x03\x00\x00\x00ns\x00" + bytes(range(12)), bytes(range(12)).hex()),  # pointer
        (b"\x0ex\x00\x03\x00\x00\x00ab\x00", "ab"),  # symbol
        (b"\x02x\x00\x03\x00\x00\x00\xff\xfe\x00", "\udcff\udcfe"),  # not UTF-8
        (b"\x02x\x00\x04\x00\x00\x00a\x00b\x00", "a\x00b"),  # a zero byte inside
    ],
)
def test_value_that_pymongo_does_not_write(element: bytes, value: Value) -> None:
    inside = element + b"\x10y\x00\x09\x00\x00\x00\x00"
    body = struct.pack("<i", len(inside) + 4) + inside
    assert extract(body, "/x", "/y") == (value, 9)


def test_decimal_that_is_not_a_number() -> None:
    (value,) = extract(bson.encode({"x": bson.Decimal128("NaN")}), "/x")
    assert value != value


def test_first_of_equal_names_counts() -> None:
    inside = b"\x08x\x00\x01\x08x\x00\x00\x08y\x00\x01\x00"
    body = struct.pack("<i", len(inside) + 4) + inside
    assert extract(body, "/x", "/y") == (True, True)


@given(DOCUMENTS)
def test_every_path_reads_what_pymongo_wrote(document: dict[str, Tree]) -> None:
    paths = paths_of(document)
    values = tuple(read_path(document, path) for path in paths)
    body = bson.encode(document)
    assert BSON.extractor(paths)(body) == values
    assert tuple(BSON.extractor([path])(body)[0] for path in paths) == values


@given(BODIES, BODIES)
def test_difference_merges_back(previous: bytes, current: bytes) -> None:
    merged = BSON.merge(previous, current)
    difference = BSON.differ(previous, merged, [])
    assert BSON.merge(previous, difference) == merged if difference else merged == previous


def test_rebuilding_keeps_every_untouched_type() -> None:
    sub = {"oid": bson.ObjectId(), "small": 5, "ref": DBRef("c", 1)}
    document = {
        "id": 1,
        "when": datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC),
        "price": bson.Decimal128("12.50"),
        "sub": sub,
        "list": [1, {"a": 1, "b": 2}, {"b": 3}],
    }
    body = bson.encode(document)
    assert BSON.merge(body, bson.encode({"id": 2})) == bson.encode({**document, "id": 2})
    assert BSON.select(body, parse_selection("+/")) == body
    assert BSON.update(body, [(("sub", "small"), "x"), (("new", "er"), None)]) == bson.encode(
        {**document, "sub": {**sub, "small": "x"}, "new": {"er": None}}
    )


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": 1}, {"b": {"c": 2}}, {"a": 1, "b": {"c": 2}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": 1}, {"a": ""}, {"a": 1}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
    ],
)
def test_merge(stored: dict[str, Any], delta: dict[str, Any], merged: dict[str, Any]) -> None:
    assert ordered(BSON.merge(bson.encode(stored), bson.encode(delta))) == merged


@pytest.mark.parametrize(
    ("previous", "current", "difference"),
    [
        ({"id": 1, "a": 1}, {"id": 1, "a": 1}, None),
        ({"id": 1, "a": 1}, {"id": 1, "a": 2}, {"id": 1, "a": 2}),
        ({"id": 1, "a": 1}, {"id": 1, "a": bson.Int64(1)}, None),
        ({"id": 1, "a": 1}, {"id": 1, "a": 1.0}, {"id": 1, "a": 1.0}),
        ({"id": 1, "a": 1}, {"id": 1}, None),
        (
            {"id": 1, "a": {"x": 1, "y": 2}},
            {"id": 1, "a": {"x": 1, "y": 3}},
            {"id": 1, "a": {"y": 3}},
        ),
        ({"id": 1, "a": [1, 2]}, {"id": 1, "a": [1, 3]}, {"id": 1, "a": [1, 3]}),
        ({"id": 1}, {"id": 2, "b": 1}, {"id": 2, "b": 1}),
    ],
)
def test_differ(
    previous: dict[str, Any], current: dict[str, Any], difference: dict[str, Any] | None
) -> None:
    body = BSON.differ(bson.encode(previous), bson.encode(current), [("id",)])
    assert (body and ordered(body)) == difference


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ("-/,+/id,+/complaint", {"id": 42, "complaint": "noise"}),
        ("-/,+/name,+/pocket/left", {"name": "Arthur", "pocket": {"left": "twine"}}),
        ("-/pocket,-/legs", {"id": 42, "name": "Arthur", "complaint": "noise"}),
        ("-/,+/legs/px", {"legs": [{"px": 1}, {"px": 2}]}),
        ("-/,+/nothing", {}),
        ("-/,+/id/deeper", {}),
    ],
)
def test_select(selection: str, selected: dict[str, Any]) -> None:
    document = {
        "id": 42,
        "name": "Arthur",
        "complaint": "noise",
        "pocket": {"left": "twine", "right": "towel"},
        "legs": [{"px": 1, "qty": 5}, {"px": 2, "qty": 6}, "loose"],
    }
    body = BSON.select(bson.encode(document), parse_selection(selection))
    assert ordered(body) == selected


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        (5, bson.Int64(5)),
        (2**64 - 1, bson.Decimal128("18446744073709551615")),
        (-(2**64), bson.Decimal128("-18446744073709551616")),
        (2**200, float("inf")),
        (1.5, 1.5),
        ("é", "é"),
        ([1, "x", None, [2.5]], [1, "x", None, [2.5]]),
    ],
)
def test_build(value: Value, stored: object) -> None:
    assert ordered(BSON.build([(("a", "b"), value)])) == {"a": {"b": stored}}


def test_name_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(BodyError, match="zero byte"):
        BSON.build([(("a\0b",), 1)])


@given(damaged(BODIES), BODIES)
def test_damage_is_survived(body: bytes, other: bytes) -> None:
    survives(BSON, body, other)


def test_what_stands_before_the_damage_is_read() -> None:
    body = bson.encode({"a": 1, "b": "text", "c": 3})
    assert extract(body[:-6], "/a", "/b", "/c") == (1, "text", None)
    assert extract(b"", "/a") == (None,)


def nested(depth: int, kind: bytes) -> bytes:
    """Documents or arrays inside each other, made from the outside in: lengths first."""
    opening = b"".join(
        struct.pack("<i", 8 * (depth - level) + 5) + kind + b"a\0" for level in range(depth)
    )
    return opening + b"\x05\0\0\0\0" + b"\0" * depth


@pytest.mark.parametrize("kind", [b"\x03", b"\x04"])
def test_nesting_is_bounded(kind: bytes) -> None:
    shallow = nested(90, kind)
    assert RawBSONDocument(shallow)
    assert bson.decode(BSON.merge(shallow, shallow))
    deep = nested(50_000, kind)
    survives(BSON, deep, deep)
    assert BSON.extractor([("a",) * 3, ("a",) * 5000, ("a", 0, "a")])(deep) == (None, None, None)


def test_absurd_lengths_cost_nothing() -> None:
    for kind in (2, 3, 4, 5, 12, 13, 14, 15):
        for length in (-1, -5, 0, 2**31 - 1, -(2**31)):
            inside = bytes([kind]) + b"a\0" + struct.pack("<i", length) + b"\0\0"
            survives(BSON, struct.pack("<i", len(inside) + 4) + inside, HELLO)
            survives(BSON, struct.pack("<i", length) + inside, HELLO)


def test_there_are_no_options() -> None:
    with pytest.raises(MessageTypeError, match="Compact: this message type has no such option"):
        message_type("bson", Compact=["true"])
