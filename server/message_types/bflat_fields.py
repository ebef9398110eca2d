"""The fields of BFlat messages: sizes, decoding and encoding.

A message is tag/value pairs up to its end, everything little-endian:

    pair  = first byte, [tag length], tag, value
    first = type code << 3 | tag length         with tag length 0: it follows as unsigned LEB128
    array = unsigned LEB128 count, that many bare values; its code has the bit 0x10

Text and binary values begin with their length as unsigned LEB128. The codes are those of
`BFlatCode`. A datetime is an Integer to expressions: milliseconds since 1970, UTC (AMPS User Guide,
BFlat Data Types).
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from server.message_types.base import BodyError
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server.message_types.base import Value

    Scalar: TypeAlias = bool | int | float | str | None


class BFlatCode(IntEnum):
    """Type codes."""

    NULL = 0
    STRING = 1
    BINARY = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    DATETIME = 8
    LEB128 = 9


ARRAY = 0x10

_FORMATS = {
    BFlatCode.INT8: "b",
    BFlatCode.INT16: "h",
    BFlatCode.INT32: "i",
    BFlatCode.INT64: "q",
    BFlatCode.DOUBLE: "d",
    BFlatCode.DATETIME: "q",
}
_FIXED = {code: struct.Struct(f"<{letter}") for code, letter in _FORMATS.items()}

WIDTHS = tuple(
    0 if code == BFlatCode.NULL else _FIXED[BFlatCode(code)].size if code in _FIXED else -1
    for code in range(32)
)
"""Type code -> size of its values, -1 if `value_end` must read it from the value."""

_LEB128_END = re.compile(rb"[\x00-\x7f]")
_MAX_LENGTH = 5
"""Maximum number of bytes of a length: 35 bits exceed the size of any body."""
_MAX_INTEGER_SIZE = 147
"""Maximum number of bytes of a LEB128 integer that is decoded: a float's range."""


def unsigned(body: bytes, position: int) -> tuple[int, int]:
    """Read a length or count, and return it with the offset after it.

    Raises:
        BodyError: the number is truncated, or longer than any length.
    """
    number = 0
    for shift in range(0, 7 * _MAX_LENGTH, 7):
        if position >= len(body):
            break
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise BodyError(f"BFlat: the length that ends at offset {position} is malformed")


def value_end(body: bytes, code: int, position: int) -> int:
    """Return the offset after a value; it may be beyond the body's end.

    Raises:
        BodyError: the code is unknown, or the value is malformed.
    """
    if code & ARRAY:
        return _array_end(body, code ^ ARRAY, position)
    if WIDTHS[code] >= 0:
        return position + WIDTHS[code]
    if code in (BFlatCode.STRING, BFlatCode.BINARY):
        size, position = unsigned(body, position)
        return position + size
    if code != BFlatCode.LEB128:
        raise BodyError(f"BFlat: the value at offset {position} has the unknown type {code}")
    last = _LEB128_END.search(body, position)
    if last is None:
        raise BodyError(f"BFlat: the integer at offset {position} does not end")
    return last.end()


def _array_end(body: bytes, element: int, position: int) -> int:
    count, position = unsigned(body, position)
    if WIDTHS[element] >= 0:
        return position + count * WIDTHS[element]
    for _ in range(count):
        position = value_end(body, element, position)
        if position > len(body):
            break
    return position


def fields(body: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Iterate over the pairs of a message.

    Yields:
        Tag, type code, and the offsets of the value's begin and end.

    Raises:
        BodyError: a pair is malformed or truncated.
    """
    position = 0
    while position < len(body):
        first = body[position]
        size = first & 7
        position += 1
        if not size:
            size, position = unsigned(body, position)
        start = position + size
        end = value_end(body, first >> 3, start)
        if end > len(body):
            raise BodyError(f"BFlat: the field at offset {position} is cut short")
        yield body[position:start], first >> 3, start, end
        position = end


def decode(body: bytes, code: int, start: int, end: int) -> Value:
    """Decode a value; an array without values, or of nulls, is NULL.

    Raises:
        BodyError: a length inside is malformed.
    """
    if not code & ARRAY:
        return _SCALARS[code](body, start, end)
    element = code ^ ARRAY
    count, position = unsigned(body, start)
    if not count or element == BFlatCode.NULL:
        return None
    if element in _FIXED:
        return list(struct.unpack_from(f"<{count}{_FORMATS[BFlatCode(element)]}", body, position))
    values: list[Value] = []
    for _ in range(count):
        after = value_end(body, element, position)
        values.append(_SCALARS[element](body, position, after))
        position = after
    return values


def _decode_text(body: bytes, start: int, end: int) -> Scalar:
    start += 1 if body[start] < 0x80 else unsigned(body, start)[1] - start
    return body[start:end].decode("utf-8", "surrogateescape")


def _decode_leb128(body: bytes, start: int, end: int) -> Scalar:
    """Return a signed integer; as a float beyond 64 bits, and NULL beyond a float's range."""
    digits = body[start:end]
    if len(digits) > _MAX_INTEGER_SIZE:
        return None
    number = 0
    for index, byte in enumerate(digits):
        number |= (byte & 0x7F) << 7 * index
    if digits[-1] & 0x40:
        number -= 1 << 7 * len(digits)
    if -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return None


def _fixed_reader(code: BFlatCode) -> Callable[[bytes, int, int], Scalar]:
    unpack = _FIXED[code].unpack_from
    return lambda body, start, _: unpack(body, start)[0]


_SCALARS: dict[int, Callable[[bytes, int, int], Scalar]] = {
    **{code: _fixed_reader(code) for code in _FIXED},
    BFlatCode.NULL: lambda _body, _start, _end: None,
    BFlatCode.STRING: _decode_text,
    BFlatCode.BINARY: _decode_text,
    BFlatCode.LEB128: _decode_leb128,
}
"""Type code -> decoder of (body, start of the value, its end)."""


def encode(value: Value) -> tuple[int, bytes]:
    """Encode a value as type code and bytes, in the most compact form of BFlat. A Boolean, which
    BFlat does not have, is 1 or 0."""
    match value:
        case None:
            return BFlatCode.NULL, b""
        case str():
            return BFlatCode.STRING, _encode_text(value)
        case float():
            return BFlatCode.DOUBLE, _FIXED[BFlatCode.DOUBLE].pack(value)
        case int():
            return _encode_integers([value])
        case list():
            return _encode_array(value)


def _encode_array(values: list[Value]) -> tuple[int, bytes]:
    """Encode an array. It has one type for all elements: the smallest integer type that can hold
    them, else double, else text. Null elements and nested arrays cannot be written and are left
    out."""
    present = [value for value in values if value is not None and not isinstance(value, list)]
    numbers = [value for value in present if not isinstance(value, str)]
    integers = [value for value in numbers if not isinstance(value, float)]
    if not present:
        return ARRAY | BFlatCode.NULL, b"\0"
    if len(integers) == len(present):
        code, data = _encode_integers(integers)
    elif len(numbers) == len(present):
        code, data = BFlatCode.DOUBLE, struct.pack(f"<{len(numbers)}d", *numbers)
    else:
        code, data = BFlatCode.STRING, b"".join(_encode_text(_as_text(value)) for value in present)
    return ARRAY | code, encode_unsigned(len(present)) + data


def _as_text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


_INTEGER_CODES = (
    (BFlatCode.INT8, 8),
    (BFlatCode.INT16, 16),
    (BFlatCode.INT32, 32),
    (BFlatCode.INT64, 64),
)


def _encode_integers(values: list[int]) -> tuple[int, bytes]:
    """Encode integers in the narrowest type that can hold them all."""
    low, high = min(values), max(values)
    for code, bits in _INTEGER_CODES:
        if -(1 << bits - 1) <= low and high < 1 << bits - 1:
            return code, struct.pack(f"<{len(values)}{_FORMATS[code]}", *values)
    return BFlatCode.LEB128, b"".join(_encode_leb128(value) for value in values)


def _encode_leb128(value: int) -> bytes:
    digits = bytearray()
    while not -0x40 <= value < 0x40:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value & 0x7F)
    return bytes(digits)


def encode_unsigned(number: int) -> bytes:
    """Write a length or count."""
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _encode_text(text: str) -> bytes:
    data = text_to_bytes(text)
    return encode_unsigned(len(data)) + data


def pair(tag: bytes, code: int, value: bytes) -> bytes:
    """Write a field."""
    if 0 < len(tag) < 8:
        return b"%c%b%b" % (code << 3 | len(tag), tag, value)
    return b"%c%b%b%b" % (code << 3, encode_unsigned(len(tag)), tag, value)
