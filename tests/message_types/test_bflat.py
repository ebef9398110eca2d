"""BFlat: values and bytes of its layout, and a reader that is written differently, to compare."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import BodyError, Value
from server.message_types.paths import parse_path
from server.message_types.select_list import parse_selection
from server.message_types.trees import Tree, read_path
from tests.message_types.bodies import NAMES, damaged, message_type, survives

BFLAT = message_type("bflat")


def extract(body: bytes, *paths: str) -> tuple[Value, ...]:
    return BFLAT.extractor([parse_path(path) for path in paths])(body)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        (b"\x01x", None),
        (b"\x09x\x00", ""),
        (b"\x09x\x03abc", "abc"),
        (b"\x09x\x02\xff\xfe", "\udcff\udcfe"),
        (b"\x09x\x83\x00abc", "abc"),  # a length in more bytes than it needs
        (b"\x09x\xc8\x01" + b"y" * 200, "y" * 200),
        (b"\x11x\x02\x00\xff", "\x00\udcff"),
        (b"\x19x\x80", -128),
        (b"\x21x\x00\x80", -(2**15)),
        (b"\x29x\x00\x00\x00\x80", -(2**31)),
        (b"\x31x\xff\xff\xff\xff\xff\xff\xff\x7f", 2**63 - 1),
        (b"\x39x" + double(-1.5), -1.5),
        (b"\x41x" + struct.pack("<q", 1_714_521_600_000), 1_714_521_600_000),
        (b"\x49x\x00", 0),
        (b"\x49x\x7f", -1),
        (b"\x49x\xff\x00", 127),
        (b"\x49x\x80\x7f", -128),
        (b"\x49x" + b"\xff" * 9 + b"\x01", 2**64 - 1),
        (b"\x49x" + b"\x80" * 10 + b"\x01", float(2**70)),
        (b"\x49x" + b"\x80" * 160 + b"\x01", None),  # beyond any float
        (b"\x81x\x03", None),
        (b"\x81x\x00", None),
        (b"\x89x\x02\x01a\x02bc", ["a", "bc"]),
        (b"\x91x\x01\x01\xff", ["\udcff"]),
        (b"\x99x\x02\x01\xff", [1, -1]),
        (b"\xa9x\x01\x00\x00\x01\x00", [65536]),
        (b"\xb9x\x02" + double(1.5) + double(2.5), [1.5, 2.5]),
        (b"\xc9x\x02\x7f\xff\x00", [-1, 127]),
        (b"\x99x\x00", None),
    ],
)
def test_value_of_pair(pair: bytes, value: Value) -> None:
    body = b"\x19w\x01" + pair + b"\x19z\x02"
    values = extract(body, "/w", "/x", "/z")
    assert values == (1, value, 2)
    assert type(values[1]) is type(value)
    assert extract(body, "/z") == (2,)


@pytest.mark.parametrize(
    ("value", "pair"),
    [
        (None, b"\x01x"),
        (True, b"\x19x\x01"),
        (False, b"\x19x\x00"),
        (127, b"\x19x\x7f"),
        (-128, b"\x19x\x80"),
        (128, b"\x21x\x80\x00"),
        (-(2**15) - 1, b"\x29x\xff\x7f\xff\xff"),
        (2**31, b"\x31x\x00\x00\x00\x80\x00\x00\x00\x00"),
        (2**63, b"\x49x" + b"\x80" * 9 + b"\x01"),
        (-(2**63) - 1, b"\x49x" + b"\xff" * 9 + b"\x7e"),
        (1.0, b"\x39x" + double(1.0)),
        ("", b"\x09x\x00"),
        ("é", b"\x09x\x02\xc3\xa9"),
        ("y" * 200, b"\x09x\xc8\x01" + b"y" * 200),
        ([], b"\x81x\x00"),
        ([1, -2], b"\x99x\x02\x01\xfe"),
        ([1, 300], b"\xa1x\x02\x01\x00\x2c\x01"),
        ([1, 2**63], b"\xc9x\x02\x01" + b"\x80" * 9 + b"\x01"),
        ([1, 1.5], b"\xb9x\x02" + double(1) + double(1.5)),
        ([1, "a", True], b"\x89x\x03\x011\x01a\x011"),
        ([1, None, 2], b"\x99x\x02\x01\x02"),
    ],
)
def test_values_are_written_as_compactly_as_possible(value: Value, pair: bytes) -> None:
    assert BFLAT.build([(("x",), value)]) == pair


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/a", b"\x19a"),
        ("/abcdefg", b"\x1fabcdefg"),
        ("/abcdefgh", b"\x18\x08abcdefgh"),
        ("/" + "n" * 200, b"\x18\xc8\x01" + b"n" * 200),
        ("/a/b", b"\x1ba/b"),
        ("[/two words]", b"\x18\x09two words"),
    ],
)
def test_tags(path: str, first: bytes) -> None:
    assert BFLAT.build([(parse_path(path), 5)]) == first + b"\x05"
    assert extract(first + b"\x05", path) == (5,)
    assert extract(b"\x18\x00\x01" + first + b"\x05", path) == (5,)  # behind an empty tag


def test_subscripts() -> None:
    body = BFLAT.build([(("a",), [1, 2]), (("b",), "x")])
    assert extract(body, "/a", "/a[1]", "/a[2]", "/b[0]", "/b[1]", "/a[0]/b") == (
        [1, 2],
        2,
        None,
        "x",
        None,
        None,
    )


def test_first_of_equal_tags_counts() -> None:
    assert extract(b"\x19x\x01\x19x\x02\x19y\x03", "/x", "/y") == (1, 3)


# A reader that shares nothing with ours: it reads a stream, byte by byte, and everything.


def _number(stream: BytesIO) -> int:
    (byte,) = stream.read(1)
    return int(byte) if byte < 128 else byte - 128 + 128 * _number(stream)


def _signed(stream: BytesIO) -> int:
    (byte,) = stream.read(1)
    if byte >= 128:
        return byte - 128 + 128 * _signed(stream)
    return byte - 128 if byte >= 64 else byte


def _value(stream: BytesIO, code: int) -> Value:
    if code in (1, 2):
        return stream.read(_number(stream)).decode("utf-8", "surrogateescape")
    if code == 9:
        return _signed(stream)
    if code == 7:
        return float(struct.unpack("<d", stream.read(8))[0])
    sizes = {3: 1, 4: 2, 5: 4, 6: 8, 8: 8}
    return int.from_bytes(stream.read(sizes[code]), "little", signed=True) if code else None


def read_all(body: bytes) -> dict[str, Value]:
    stream = BytesIO(body)
    message: dict[str, Value] = {}
    while first := stream.read(1):
        code, size = divmod(first[0], 8)
        tag = stream.read(size or _number(stream)).decode("utf-8", "surrogateescape")
        if code & 16:
            values = [_value(stream, code & 15) for _ in range(_number(stream))]
            message[tag] = [value for value in values if value is not None] or None
        else:
            message[tag] = _value(stream, code)
    return message


INTEGERS = st.integers(-(2**63), 2**64 - 1)
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    INTEGERS,
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(INTEGERS, max_size=5),
    st.lists(st.floats(allow_nan=False), max_size=5),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5),
)
MESSAGES = st.dictionaries(NAMES, VALUES, max_size=8)
BODIES = MESSAGES.map(
    lambda message: BFLAT.build([((name,), value) for name, value in message.items()])
)


@given(MESSAGES)
def test_what_is_written_is_read(message: dict[str, Value]) -> None:
    body = BFLAT.build([((name,), value) for name, value in message.items()])
    expected = {name: None if value == [] else value for name, value in message.items()}
    assert read_all(body) == expected
    paths = [*((name,) for name in message), ("absent",)]
    assert BFLAT.extractor(paths)(body) == (*expected.values(), None)
    for name, value in expected.items():
        assert BFLAT.extractor([(name, 0)])(body) == (read_path(cast("Tree", value), (0,)),)


@given(BODIES, BODIES)
def test_difference_merges_back(previous: bytes, current: bytes) -> None:
    merged = BFLAT.merge(previous, current)
    difference = BFLAT.differ(previous, merged, [])
    assert BFLAT.merge(previous, difference or b"") == merged


def test_rebuilding_keeps_every_untouched_value() -> None:
    wide = b"\x31a\x05" + b"\x00" * 7
    date = b"\x41b" + struct.pack("<q", 5)
    body = wide + date + b"\x09c\x01x"
    assert BFLAT.merge(body, b"\x19d\x01\x01c") == body + b"\x19d\x01"
    assert BFLAT.merge(body, b"\x09c\x00") == body
    assert BFLAT.select(body, parse_selection("-/,+/b")) == date
    assert BFLAT.select(body, parse_selection("-/b")) == wide + b"\x09c\x01x"
    assert BFLAT.update(body, [(("c",), 7), (("n",), None)]) == wide + date + b"\x19c\x07\x01n"


def test_differ() -> None:
    previous = b"\x19i\x01\x19a\x02\x09b\x01x"
    assert BFLAT.differ(previous, b"\x21i\x01\x00\x31a\x02" + b"\x00" * 7, [("i",)]) is None
    assert (
        BFLAT.differ(previous, b"\x19i\x01\x19a\x03\x09b\x01x", [("i",)]) == b"\x19i\x01\x19a\x03"
    )
    assert BFLAT.differ(previous, b"\x19i\x01\x39a" + double(2), []) == b"\x39a" + double(2)


@pytest.mark.parametrize(
    "body",
    [
        b"\x18",
        b"\x1fabc",
        b"\x09a\x05abc",
        b"\x51a",  # type 10
        b"\xd1a\x01",  # an array of type 10
        b"\x49a\xff",
        b"\x09a" + b"\xff" * 12,
        b"\x89a\x02\x01x",
        b"\x99a\xff\xff\xff\xff\x0f",
        b"\x81a" + b"\xff" * 9,
    ],
)
def test_body_that_cannot_be_rebuilt(body: bytes) -> None:
    with pytest.raises(BodyError, match="BFlat"):
        BFLAT.merge(b"\x19b\x01" + body, b"")
    assert extract(b"\x19b\x01" + body, "/b", "/a") == (1, None)


@given(damaged(BODIES), BODIES)
def test_damage_is_survived(body: bytes, other: bytes) -> None:
    survives(BFLAT, body, other)


def test_absurd_lengths_cost_nothing() -> None:
    most = b"\xff" * 4 + b"\x7f"
    for length in (most, b"\xff" * 8 + b"\x7f", b"\xff" * 50):
        for first in range(256):
            survives(BFLAT, bytes([first]) + length * 3, b"\x19a\x01")
            survives(BFLAT, bytes([first]) + b"aaaaaaa" + length * 3, b"\x19a\x01")
            survives(BFLAT, bytes([first & 0xF8 | 1]) + b"a" + length, b"\x19a\x01")
    assert extract(b"\x81a" + most + b"\x19b\x01", "/a", "/b") == (None, 1)
    assert extract(b"\x49a" + b"\xff" * 1_000_000 + b"\x00\x19b\x01", "/a", "/b") == (None, 1)
