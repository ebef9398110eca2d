"""MessagePack: what values become, checked against the bytes of its specification and msgpack."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given

from server.message_types.base import BodyError, Value
from server.message_types.paths import parse_path
from server.message_types.select_list import parse_selection
from server.message_types.trees import Tree, read_path
from tests.message_types.bodies import DOCUMENTS, damaged, message_type, paths_of, survives

MSGPACK = message_type("msgpack")
BODIES = DOCUMENTS.map(msgpack.packb)


def extract(body: bytes, *paths: str) -> tuple[Value, ...]:
    return MSGPACK.extractor([parse_path(path) for path in paths])(body)


def walked(body: bytes, *paths: str) -> tuple[Value, ...]:
    """The same by the slow way, which a subscript inside a path asks for."""
    return extract(body, *paths, "/no[0]/such")[:-1]


def unpacked(body: bytes) -> Any:
    return msgpack.unpackb(body, strict_map_key=False)


# The example on the front page of msgpack.org, byte for byte.
COMPACT = b"\x82\xa7compact\xc3\xa6schema\x00"


def test_example_of_the_specification() -> None:
    assert extract(COMPACT, "/compact", "/schema") == (True, 0)
    assert MSGPACK.build([(("compact",), True), (("schema",), 0)]) == COMPACT


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (b"\xc0", None),
        (b"\xc2", False),
        (b"\xc3", True),
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\xe0", -32),
        (b"\xff", -1),
        (b"\xcc\xff", 255),
        (b"\xcd\xff\xff", 65535),
        (b"\xce\xff\xff\xff\xff", 2**32 - 1),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xd0\x80", -128),
        (b"\xd1\x80\x00", -(2**15)),
        (b"\xd2\x80\x00\x00\x00", -(2**31)),
        (b"\xd3\x80" + b"\x00" * 7, -(2**63)),
        (b"\xca\x3f\xc0\x00\x00", 1.5),
        (b"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
        (b"\xa0", ""),
        (b"\xa3abc", "abc"),
        (b"\xa2\xff\xfe", "\udcff\udcfe"),
        (b"\xd9\x03abc", "abc"),
        (b"\xda\x00\x03abc", "abc"),
        (b"\xdb\x00\x00\x00\x03abc", "abc"),
        (b"\xc4\x02\x00\xff", "\x00\udcff"),
        (b"\xc5\x00\x02ab", "ab"),
        (b"\xc6\x00\x00\x00\x02ab", "ab"),
        (b"\xd4\x05a", "a"),
        (b"\xd5\x05ab", "ab"),
        (b"\xd6\xffabcd", "abcd"),  # ext -1 is a timestamp, which AMPS does not interpret either
        (b"\xd7\x05abcdefgh", "abcdefgh"),
        (b"\xd8\x05abcdefghabcdefgh", "abcdefghabcdefgh"),
        (b"\xc7\x02\x05ab", "ab"),
        (b"\xc8\x00\x02\x05ab", "ab"),
        (b"\xc9\x00\x00\x00\x02\x05ab", "ab"),
        (b"\x90", None),
        (b"\x93\x01\xa1x\xc0", [1, "x", None]),
        (b"\xdc\x00\x02\x01\x02", [1, 2]),
        (b"\xdd\x00\x00\x00\x02\x01\x02", [1, 2]),
        (b"\x92\x01\x91\x02", [1, 2]),
        (b"\x92\x81\xa1y\x01\x02", [2]),
        (b"\x80", None),
        (b"\x81\xa1y\x01", None),
        (b"\xde\x00\x01\xa1y\x01", None),
        (b"\xdf\x00\x00\x00\x01\xa1y\x01", None),
    ],
)
def test_value_of_item(item: bytes, value: Value) -> None:
    body = b"\x83\xa1w\x01\xa1x" + item + b"\xa1z\x02"
    for read in (extract, walked):
        values = read(body, "/w", "/x", "/z")
        assert values == (1, value, 2)
        assert type(values[1]) is type(value)
        assert read(body, "/w", "/z") == (1, 2)  # passed over


@pytest.mark.parametrize("read", [extract, walked])
def test_keys(read: Any) -> None:
    body = msgpack.packb({55: "IBM", -1: "x", "55": "text", b"bin": 1, None: 2, 1.5: 3, "last": 4})
    assert read(body, "/-1", "/last", "/bin") == ("x", 4, None)
    assert read(msgpack.packb({"a": {55: 1}}), "/a/55") == (1,)
    long = "k" * 40
    assert read(msgpack.packb({long: 1}), f"/{long}") == (1,)


@pytest.mark.parametrize("read", [extract, walked])
def test_last_of_equal_keys_counts(read: Any) -> None:
    assert read(b"\x82\xa1a\x01\xa1a\x02", "/a") == (2,)
    assert read(b"\x82\xa1a\x81\xa1b\x01\xa1a\x80", "/a/b") == (None,)


@given(DOCUMENTS)
def test_every_path_reads_what_msgpack_wrote(document: dict[str, Tree]) -> None:
    paths = paths_of(document)
    values = tuple(read_path(document, path) for path in paths)
    body = msgpack.packb(document)
    assert MSGPACK.extractor(paths)(body) == values
    assert tuple(MSGPACK.extractor([path])(body)[0] for path in paths) == values


@given(damaged(BODIES))
def test_both_ways_of_reading_agree_on_any_body(body: bytes) -> None:
    for paths in (["/a", "/b/c"], ["/id"], ["/a/b", "/c[1]", "/ü"], ["/a[0]", "/b"]):
        assert repr(extract(body, *paths)) == repr(walked(body, *paths))


@given(BODIES, BODIES)
def test_difference_merges_back(previous: bytes, current: bytes) -> None:
    merged = MSGPACK.merge(previous, current)
    difference = MSGPACK.differ(previous, merged, [])
    assert MSGPACK.merge(previous, difference) == merged if difference else merged == previous


def test_rebuilding_keeps_every_untouched_item() -> None:
    wide = b"\xcf" + b"\x00" * 7 + b"\x05"  # 5 in nine bytes
    ext = b"\xd6\xffabcd"
    body = b"\x84\xa1a" + wide + b"\xa1b" + ext + b"\x37\xa1x\xa1c\x81\xa1d" + wide
    assert MSGPACK.merge(body, b"\x81\xa1e\x01") == b"\x85" + body[1:] + b"\xa1e\x01"
    assert MSGPACK.select(body, parse_selection("+/")) == body
    assert MSGPACK.merge(body, b"\x81\x37\x01") == body.replace(b"\x37\xa1x", b"\x37\x01")
    assert MSGPACK.merge(body, b"\x81\xa255\x01") == body.replace(b"\x37\xa1x", b"\x37\x01")


@pytest.mark.parametrize(
    ("previous", "current", "difference"),
    [
        ({"id": 1, "a": 1}, {"id": 1, "a": 1}, None),
        ({"id": 1, "a": 1}, {"id": 1, "a": 2}, {"id": 1, "a": 2}),
        ({"id": 1, "a": 1}, {"id": 1, "a": True}, {"id": 1, "a": True}),
        ({"id": {"x": 1, "y": 1}}, {"id": {"x": 1, "y": 2}}, {"id": {"y": 2}}),
        ({"id": 1, "a": [1]}, {"id": 1, "a": [1, 2]}, {"id": 1, "a": [1, 2]}),
    ],
)
def test_differ(previous: Any, current: Any, difference: Any) -> None:
    keep = [("id",)] if isinstance(current["id"], int) else []
    body = MSGPACK.differ(msgpack.packb(previous), msgpack.packb(current), keep)
    assert (body and unpacked(body)) == difference


def test_width_is_no_difference() -> None:
    assert MSGPACK.differ(b"\x81\xa1a\x05", b"\x81\xa1a\xcc\x05", []) is None
    assert MSGPACK.differ(b"\x81\xa1a\xa1x", b"\x81\xa1a\xd9\x01x", []) is None


def test_kept_part_of_a_sub_document() -> None:
    previous = msgpack.packb({"key": {"a": 1, "b": 2}, "v": 1})
    current = msgpack.packb({"key": {"a": 1, "b": 2}, "v": 2})
    body = MSGPACK.differ(previous, current, [("key", "a")])
    assert body is not None
    assert unpacked(body) == {"key": {"a": 1}, "v": 2}
    assert MSGPACK.differ(current, current, [("key", "a")]) is None


@pytest.mark.parametrize(
    ("value", "item"),
    [
        (None, b"\xc0"),
        (True, b"\xc3"),
        (5, b"\x05"),
        (-33, b"\xd0\xdf"),
        (2**64 - 1, b"\xcf" + b"\xff" * 8),
        (2**64, b"\xcb" + struct.pack(">d", float("inf"))),
        (1.5, b"\xcb\x3f\xf8" + b"\x00" * 6),
        ("é", b"\xa2\xc3\xa9"),
        ("\udcff", b"\xc4\x01\xff"),
        ("\ud800", b"\xc4\x03\xed\xa0\x80"),
        ([1, "x"], b"\x92\x01\xa1x"),
    ],
)
def test_build(value: Value, item: bytes) -> None:
    assert MSGPACK.build([(("a", "b"), value)]) == b"\x81\xa1a\x81\xa1b" + item


@pytest.mark.parametrize("count", [15, 16, 70_000])
def test_wide_maps_and_arrays(count: int) -> None:
    wide = {str(number): number for number in range(count)}
    body = MSGPACK.build([((name,), number) for name, number in wide.items()])
    assert unpacked(body) == wide
    assert body == msgpack.packb(wide)
    array: Value = list(range(count))
    assert MSGPACK.build([(("a",), array)]) == msgpack.packb({"a": array})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93\x01\x02\x03",
        b"\xa1x",
        b"\x81\xc0\x01",
        b"\x81\xa1a",
        b"\x80\x00",
        b"\x81\xa1a\xc1",
    ],
)
def test_body_that_cannot_be_rebuilt(body: bytes) -> None:
    with pytest.raises(BodyError, match="MessagePack"):
        MSGPACK.merge(body, COMPACT)


@given(damaged(BODIES), BODIES)
def test_damage_is_survived(body: bytes, other: bytes) -> None:
    survives(MSGPACK, body, other)


def test_what_stands_before_the_damage_is_read() -> None:
    body = msgpack.packb({"a": 1, "b": "text", "c": 3})
    assert extract(body[:-1], "/a", "/b", "/c") == (1, "text", None)
    assert extract(body + b"behind", "/a", "/b", "/c") == (1, "text", 3)


@pytest.mark.parametrize("opening", [b"\x81\xa1a", b"\x91", b"\x81\x01", b"\x92\x01"])
def test_nesting_is_bounded(opening: bytes) -> None:
    deep = b"\x81\xa1a" + opening * 50_000 + b"\x00"
    survives(MSGPACK, deep, deep)
    assert extract(deep, "/a/a/b", "/a[0]") == (None, None)
    assert MSGPACK.extractor([("a",) * 5000])(deep) == (None,)


def test_absurd_lengths_cost_nothing() -> None:
    for head in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF):
        body = b"\x81\xa1a" + bytes([head]) + b"\xff\xff\xff\xff\x01"
        survives(MSGPACK, body, COMPACT)
        survives(MSGPACK, body[3:], COMPACT)
        assert extract(body, "/a", "/a[0]") == (None, None)
