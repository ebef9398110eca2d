"""Struct: the reference's codes, layouts compared with Python's `struct`, what is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import BodyError, MessageTypeError, Value
from server.message_types.paths import parse_path
from server.message_types.select_list import parse_selection
from tests.message_types.bodies import message_type


def extract(fields: list[str], body: bytes, *paths: str) -> tuple[Value, ...]:
    return message_type("struct", Field=fields).extractor([parse_path(path) for path in paths])(
        body
    )


@pytest.mark.parametrize(
    ("code", "data", "value"),
    [
        ("c", b"A", "A"),
        ("3c", b"abc", "abc"),
        ("b", b"\xff", -1),
        ("B", b"\xff", 255),
        ("?", b"\x00", False),
        ("?", b"\x02", True),
        ("h", b"\xfe\xff", -2),
        (">h", b"\xff\xfe", -2),
        ("H", b"\x01\x02", 0x0201),
        (">H", b"\x01\x02", 0x0102),
        ("i", b"\xff\xff\xff\xff", -1),
        ("=I", b"\xff\xff\xff\xff", 2**32 - 1),
        ("l", b"\xff\xff\xff\xff", -1),
        ("@L", b"\xff\xff\xff\xff", 2**32 - 1),
        ("q", b"\xff" * 8, -1),
        ("Q", b"\xff" * 8, 2**64 - 1),
        ("n", b"\xff" * 8, -1),
        (">N", b"\x00" * 7 + b"\x01", 1),
        ("f", b"\x00\x00\xc0\x3f", 1.5),
        ("<d", struct.pack("<d", -0.1), -0.1),
        ("4s", b"ab\x00\x00", "ab\x00\x00"),
        ("2s", b"\xff\xfe", "\udcff\udcfe"),
        ("4S", b"ab\x00c", "ab"),
        ("4S", b"abcd", "abcd"),
        ("5p", b"\x02abcd", "ab"),
        ("5p", b"\xffabcd", "abcd"),
        ("1i", b"\x01\x00\x00\x00", 1),
    ],
)
def test_value_of_code(code: str, data: bytes, value: Value) -> None:
    fields = ["/before = h", f"/value = {code}", "/after = >h"]
    body = b"\x07\x00" + data + b"\x00\x08" + b"more bytes than are declared"
    assert extract(fields, body, "/before", "/value", "/after") == (7, value, 8)
    (found,) = extract(fields, body, "/value")
    assert (found, type(found)) == (value, type(value))


EXAMPLE = ["/id = i", "/ignored = 4x", "/price=f", "/ignored = 32x", "/code = 16s"]


def test_a_c_struct() -> None:
    body = struct.pack("<iif32s16s32s", 42, 7, 2.5, b"label", b"code" + b" " * 12, b"rest")
    paths = ("/code", "/id", "/price", "/ignored", "/absent", "/id[0]", "/id[1]", "/id")
    assert extract(EXAMPLE, body, *paths) == ("code" + " " * 12, 42, 2.5, None, None, 42, None, 42)


def test_a_short_body_has_the_fields_that_fit() -> None:
    body = struct.pack("<iif", 42, 7, 2.5)
    assert extract(EXAMPLE, body, "/id", "/price", "/code") == (42, 2.5, None)
    assert extract(EXAMPLE, body[:-1], "/price", "/id") == (None, 42)
    assert extract(EXAMPLE, b"", "/id") == (None,)


def test_fields_of_one_name_are_an_array() -> None:
    fields = ["/leg/px = b", "/leg/px = >h", "[/two words] = b"]
    paths = ("/leg/px", "/leg/px[1]", "/leg", "[/two words]")
    assert extract(fields, b"\x01\x00\x02\x03", *paths) == ([1, 2], 2, None, 3)
    assert extract(fields, b"\x01", *paths) == ([1, None], None, None, None)


CODES = st.sampled_from([*"bBhHiIqQ?", "4s", "3x"])


@given(st.lists(st.tuples(st.sampled_from("<>"), CODES), min_size=1, max_size=12), st.binary())
def test_layout_is_that_of_python(layout: list[tuple[str, str]], data: bytes) -> None:
    fields = [f"/f{index} = {order}{code}" for index, (order, code) in enumerate(layout)]
    paths = [f"/f{index}" for index in range(len(layout))]
    expected: list[Value] = []
    offset = 0
    for order, code in layout:
        size = struct.calcsize(order + code)
        chunk = data[offset : offset + size]
        read = struct.unpack(order + code, chunk) if len(chunk) == size else ()
        value = read[0] if read else None
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        expected.append(value)
        offset += size
    assert extract(fields, data, *paths) == tuple(expected)
    assert extract(fields, data, *reversed(paths)) == tuple(reversed(expected))
    assert [extract(fields, data, path)[0] for path in paths] == expected


def test_bodies_are_passed_on_as_they_are() -> None:
    kind = message_type("struct", Field=["/a = b"])
    assert kind.merge(b"\x01", b"\x02") == b"\x02"
    assert kind.differ(b"\x01", b"\x02", [("a",)]) == b"\x02"
    assert kind.select(b"\x01", parse_selection("-/a")) == b"\x01"
    with pytest.raises(BodyError, match="cannot be set"):
        kind.update(b"\x01", [(("a",), 1)])
    with pytest.raises(BodyError, match="cannot be made"):
        kind.build([(("a",), 1)])
    capabilities = kind.capabilities
    assert (capabilities.fields, capabilities.delta) == (True, False)
    assert (capabilities.build, capabilities.select) == (False, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "Field: at least one is required, expected /name = "),
        (["/a"], "Field: '/a': expected /name = [order][count]code"),
        (["/a = "], "Field: '/a =': expected /name = "),
        (["a = i"], "Field: 'a = i': expected '/' and a name"),
        (["/a = z"], "Field: '/a = z': unknown type 'z', expected one of "),
        (["/a = !i"], "Field: '/a = !i': expected /name = "),
        (["/a = i4"], "Field: '/a = i4': expected /name = "),
        (["/a = s"], "Field: '/a = s': s needs a number of bytes, such as 16s"),
        (["/a = 0s"], "Field: '/a = 0s': s needs a number of bytes, such as 16s"),
        (["/a = x"], "Field: '/a = x': x needs a number of bytes, such as 16x"),
        (["/a = b", "/b = 3i"], "Field: '/b = 3i': i is one value, write a Field for each"),
    ],
)
def test_configuration_that_is_refused(fields: list[str], message: str) -> None:
    with pytest.raises(MessageTypeError) as caught:
        message_type("struct", Field=fields)
    assert str(caught.value).startswith(message)


def test_unknown_option() -> None:
    with pytest.raises(MessageTypeError, match=r"Fields: .*did you mean Field"):
        message_type("struct", Field=["/a = i"], Fields=["/b = i"])
