"""The elements of BSON documents (bsonspec.org): sizes, decoding and encoding.

    document = int32 total length, elements, 0x00
    element  = kind, name, 0x00, value

A value's length follows from its kind, from a length in front of it, or (regular expressions only)
from two terminators, so a reader skips unwanted values without decoding them.

The reference does not define the conversion of values; docs/message_types.md documents ours:

    double -> float                             string, code, symbol -> text
    int32, int64, timestamp -> int              object id, pointer -> 24 hexadecimal digits
    boolean -> bool                             binary -> its bytes as text
    date -> int, milliseconds since 1970        regular expression -> /pattern/options
    decimal128 -> int if whole, else float      null, undefined, min key, max key -> NULL
"""

from __future__ import annotations

import struct
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from server.message_types.base import BodyError
from server.message_types.path_tree import MAX_DEPTH
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server.message_types.base import Value
    from server.message_types.trees import Tree

    Scalar: TypeAlias = bool | int | float | str | None


class BsonKind(IntEnum):
    """The first byte of an element."""

    DOUBLE = 0x01
    STRING = 0x02
    DOCUMENT = 0x03
    ARRAY = 0x04
    BINARY = 0x05
    UNDEFINED = 0x06
    OBJECT_ID = 0x07
    BOOLEAN = 0x08
    DATE = 0x09
    NULL = 0x0A
    REGEX = 0x0B
    POINTER = 0x0C
    CODE = 0x0D
    SYMBOL = 0x0E
    SCOPED_CODE = 0x0F
    INT32 = 0x10
    TIMESTAMP = 0x11
    INT64 = 0x12
    DECIMAL = 0x13
    MAX_KEY = 0x7F
    MIN_KEY = 0xFF


LENGTH = struct.Struct("<I")
"""Lengths are signed in BSON; read as unsigned, a negative one is simply too long."""
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")
_UINT64_PAIR = struct.Struct("<QQ")
_DOUBLE = struct.Struct("<d")

_FIXED = {
    BsonKind.DOUBLE: 8,
    BsonKind.UNDEFINED: 0,
    BsonKind.OBJECT_ID: 12,
    BsonKind.BOOLEAN: 1,
    BsonKind.DATE: 8,
    BsonKind.NULL: 0,
    BsonKind.INT32: 4,
    BsonKind.TIMESTAMP: 8,
    BsonKind.INT64: 8,
    BsonKind.DECIMAL: 16,
    BsonKind.MAX_KEY: 0,
    BsonKind.MIN_KEY: 0,
}
_PREFIXED = {
    BsonKind.STRING: 4,
    BsonKind.DOCUMENT: 0,
    BsonKind.ARRAY: 0,
    BsonKind.BINARY: 5,
    BsonKind.POINTER: 16,
    BsonKind.CODE: 4,
    BsonKind.SYMBOL: 4,
    BsonKind.SCOPED_CODE: 0,
}
"""Bytes of a value beyond the length in front of it: the length itself where it is not included, a
binary's subtype, a pointer's object id."""

UNSIZED = -1000

SIZES = tuple(
    _FIXED[BsonKind(kind)]
    if kind in _FIXED
    else -1 - _PREFIXED[BsonKind(kind)]
    if kind in _PREFIXED
    else UNSIZED
    for kind in range(256)
)
"""For each kind its size; below 0 it starts with a length, to which -1 - SIZES[kind] is added;
UNSIZED needs `unsized`."""


def unsized(body: bytes, kind: int, start: int, end: int) -> int:
    """Return the size of a value that has no length. For an unknown kind or a missing terminator
    it exceeds the rest of the body."""
    beyond = end - start + 1
    if kind != BsonKind.REGEX:
        return beyond
    pattern_end = body.find(b"\0", start, end)
    options_end = body.find(b"\0", pattern_end + 1, end)
    return beyond if pattern_end < 0 or options_end < 0 else options_end + 1 - start


def elements(body: bytes, start: int, end: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Iterate over the elements between two offsets.

    Yields:
        Kind, name, and the offsets of the value's begin and end.

    Raises:
        BodyError: an element is truncated, exceeds the end or has an unknown kind.
    """
    while start < end:
        kind = body[start]
        value = body.find(b"\0", start + 1, end) + 1
        if not value:
            raise BodyError(f"BSON: the name at offset {start + 1} does not end")
        size = SIZES[kind]
        if size == UNSIZED:
            size = unsized(body, kind, value, end)
        elif size < 0:
            if end - value < LENGTH.size:
                raise BodyError(f"BSON: the value at offset {value} is cut short")
            size = LENGTH.unpack_from(body, value)[0] - 1 - size
        after = value + size
        if after > end:
            raise BodyError(
                f"BSON: the value at offset {value} has an unknown type (0x{kind:02x}), or is"
                " longer than what holds it"
            )
        yield kind, body[start + 1 : value - 1], value, after
        start = after


def document_bounds(body: bytes, start: int, after: int) -> tuple[int, int]:
    """Return the offsets of the begin and end of a document's elements.

    Raises:
        BodyError: the document's length or terminator is wrong.
    """
    if after - start < 5 or LENGTH.unpack_from(body, start)[0] != after - start or body[after - 1]:
        raise BodyError(f"BSON: the document at offset {start} has a wrong length or no end")
    return start + 4, after - 1


def decode(body: bytes, kind: int, start: int, after: int, depth: int = 0) -> Tree:
    """Decode one value, documents and arrays included.

    Raises:
        BodyError: a document or array inside is malformed or nests too deep.
        struct.error: a value is too short for its kind.
    """
    if kind not in (BsonKind.DOCUMENT, BsonKind.ARRAY):
        return SCALARS[kind](body, start, after)
    if depth == MAX_DEPTH:
        raise BodyError(f"BSON: documents nest deeper than {MAX_DEPTH}")
    begin, end = document_bounds(body, start, after)
    inside = [
        (name, decode(body, inner, value, value_end, depth + 1))
        for inner, name, value, value_end in elements(body, begin, end)
    ]
    if kind == BsonKind.ARRAY:
        return [value for _, value in inside]
    document: dict[str, Tree] = {}
    for name, value in inside:
        document.setdefault(bytes_to_text(name), value)
    return document


def _text(body: bytes, start: int, after: int) -> Scalar:
    return body[start + 4 : after - 1].decode("utf-8", "surrogateescape")


def _scoped_code(body: bytes, start: int, _after: int) -> Scalar:
    return _text(body, start + 4, start + 8 + LENGTH.unpack_from(body, start + 4)[0])


def _regex(body: bytes, start: int, after: int) -> Scalar:
    pattern, _, options = body[start : after - 1].partition(b"\0")
    return f"/{bytes_to_text(pattern)}/{bytes_to_text(options)}"


def _null(_body: bytes, _start: int, _after: int) -> Scalar:
    return None


_EXPONENT_BIAS = 6176
_MAX_COEFFICIENT = 10**34 - 1


def _decimal(body: bytes, start: int, _after: int) -> Scalar:
    parts = _decimal_parts(body, start)
    if isinstance(parts, float):
        return parts
    coefficient, exponent = parts
    if exponent == 0 and -(2**63) <= coefficient < 2**64:
        return coefficient
    return float(f"{coefficient}e{exponent}")


def decimal128(body: bytes, start: int) -> Decimal:
    """Decode a decimal128 exactly."""
    parts = _decimal_parts(body, start)
    return Decimal(parts) if isinstance(parts, float) else Decimal(f"{parts[0]}e{parts[1]}")


def _decimal_parts(body: bytes, start: int) -> tuple[int, int] | float:
    """Decode IEEE 754-2008 decimal128 in its binary integer encoding, as BSON prescribes.

    Returns:
        Coefficient and exponent of 10; NaN or an infinity if it is one.
    """
    low: int
    high: int
    low, high = _UINT64_PAIR.unpack_from(body, start)
    negative = high >> 63
    combination = high >> 58 & 0x1F
    if combination == 0x1F:
        return float("nan")
    if combination == 0x1E:
        return float("-inf") if negative else float("inf")
    exponent = (high >> 49 & 0x3FFF) - _EXPONENT_BIAS
    coefficient = (high & 0x1_FFFF_FFFF_FFFF) << 64 | low
    if combination >= 0x18 or coefficient > _MAX_COEFFICIENT:  # not canonical: means zero
        exponent = coefficient = 0
    return (-coefficient if negative else coefficient), exponent


SCALARS: dict[int, Callable[[bytes, int, int], Scalar]] = {
    BsonKind.DOUBLE: lambda body, start, _: _DOUBLE.unpack_from(body, start)[0],
    BsonKind.STRING: _text,
    BsonKind.BINARY: lambda body, start, after: bytes_to_text(body[start + 5 : after]),
    BsonKind.UNDEFINED: _null,
    BsonKind.OBJECT_ID: lambda body, start, after: body[start:after].hex(),
    BsonKind.BOOLEAN: lambda body, start, _: body[start] != 0,
    BsonKind.DATE: lambda body, start, _: _INT64.unpack_from(body, start)[0],
    BsonKind.NULL: _null,
    BsonKind.REGEX: _regex,
    BsonKind.POINTER: lambda body, _, after: body[after - 12 : after].hex(),
    BsonKind.CODE: _text,
    BsonKind.SYMBOL: _text,
    BsonKind.SCOPED_CODE: _scoped_code,
    BsonKind.INT32: lambda body, start, _: _INT32.unpack_from(body, start)[0],
    BsonKind.TIMESTAMP: lambda body, start, _: _UINT64.unpack_from(body, start)[0],
    BsonKind.INT64: lambda body, start, _: _INT64.unpack_from(body, start)[0],
    BsonKind.DECIMAL: _decimal,
    BsonKind.MAX_KEY: _null,
    BsonKind.MIN_KEY: _null,
}
"""Kind -> decoder of (body, start of the value, its end)."""


def encode(value: Value) -> tuple[int, bytes]:
    """Encode a value as kind and bytes: integers as int64 (above its range decimal128)."""
    match value:
        case None:
            return BsonKind.NULL, b""
        case bool():
            return BsonKind.BOOLEAN, b"\x01" if value else b"\x00"
        case int() if -(2**63) <= value < 2**63:
            return BsonKind.INT64, _INT64.pack(value)
        case int():
            return _encode_big(value)
        case float():
            return BsonKind.DOUBLE, _DOUBLE.pack(value)
        case str():
            text = text_to_bytes(value)
            return BsonKind.STRING, LENGTH.pack(len(text) + 1) + text + b"\0"
        case list():
            return BsonKind.ARRAY, document(
                (str(index).encode(), *encode(element)) for index, element in enumerate(value)
            )


def _encode_big(value: int) -> tuple[int, bytes]:
    if abs(value) > _MAX_COEFFICIENT:
        return BsonKind.DOUBLE, _DOUBLE.pack(float("inf" if value > 0 else "-inf"))
    high = (value < 0) << 63 | _EXPONENT_BIAS << 49 | abs(value) >> 64
    return BsonKind.DECIMAL, _UINT64_PAIR.pack(abs(value) & 2**64 - 1, high)


def document(fields: Iterator[tuple[bytes, int, bytes]]) -> bytes:
    """Encode a document from elements (name, kind, value's bytes).

    Raises:
        BodyError: a name contains a zero byte, which BSON cannot express.
    """
    parts = []
    for name, kind, value in fields:
        if b"\0" in name:
            raise BodyError(f"BSON: the name {bytes_to_text(name)!r} holds a zero byte")
        parts.append(b"%c%b\0%b" % (kind, name, value))
    inside = b"".join(parts)
    return LENGTH.pack(len(inside) + 5) + inside + b"\0"
