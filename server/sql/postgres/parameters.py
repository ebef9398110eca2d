"""Values of parameters: PostgreSQL's text and binary formats -> Python values.

A value is decoded as the type that the statement gives to its parameter. Source: PostgreSQL 16,
src/backend/utils/adt: the functions *in and *recv of each type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import starmap
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from server.sql.postgres import types
from server.sql.postgres.errors import FormatError
from server.sql.postgres.time_parameters import (
    IntervalValue,
    date_from_binary,
    date_from_text,
    interval_from_binary,
    interval_from_text,
    of_size,
    time_from_binary,
    time_from_text,
    timestamp_from_binary,
    timestamp_from_text,
    timestamptz_from_binary,
    timestamptz_from_text,
)
from server.sql.postgres.types import TYPES
from server.sql.sqlstate import (
    CHARACTER_NOT_IN_REPERTOIRE,
    FEATURE_NOT_SUPPORTED,
    INVALID_BINARY_REPRESENTATION,
    INVALID_TEXT_REPRESENTATION,
    NUMERIC_VALUE_OUT_OF_RANGE,
    PROGRAM_LIMIT_EXCEEDED,
)

MAX_ARRAY_DIMENSIONS: Final = 6  # as PostgreSQL
MAX_NUMERIC_DIGITS: Final = 1000
"""Limit of a number's digits, and of its exponent: the text 1e9999999 needs 10 MB when expanded."""
MAX_VALUES: Final = 10_000
"""Limit of all values of one statement, elements of arrays included: decoding one costs 1 us of the
thread that serves all connections."""
MAX_ESCAPED_BYTEA: Final = 64 * 1024
"""Characters of a bytea in the format of PostgreSQL before 9.0, which is decoded bit by bit."""
MAX_SHORT_VALUE: Final = 1000
"""Bytes of a value of any type but texts, documents, bytea and arrays."""

_FLOAT4: Final = Struct(">f")
_FLOAT8: Final = Struct(">d")
_NUMERIC_HEAD: Final = Struct(">HhHH")
_ARRAY_HEAD: Final = Struct(">iiI")
_DIMENSION: Final = Struct(">ii")

_TRUE: Final = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE: Final = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,5})?|[+-]?inf(?:inity)?|nan",
    re.IGNORECASE,
)
_UUID: Final = re.compile(r"\{?[0-9a-fA-F]{4}(?:-?[0-9a-fA-F]{4}){7}\}?")
_ESCAPED_BYTE: Final = re.compile(rb"\\(?:([0-3][0-7]{2})|(\\)|(.?))", re.DOTALL)
_SPACES: Final = " \t\n\v\f\r"  # around elements of arrays
_ARRAY_TOKEN: Final = re.compile(
    r'[ \t\n\v\f\r]*+(?:([{},])|"((?:[^"\\]|\\.)*+)"|((?:[^{},"\\]|\\.)++))', re.DOTALL
)

_PLAIN_ARRAY: Final = re.compile(r'\{[^{}"\\]*+\}')  # can be split at its commas
_ESCAPED_CHARACTER: Final = re.compile(r"\\(.)", re.DOTALL)


Value = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | date
    | datetime
    | time
    | IntervalValue
    | list["Value | None"]
)
"""A value of a parameter: `list` for arrays, `str` for all types that have no type in Python."""


class _Decoders(NamedTuple):
    """The decoders of a type.

    Attributes:
        text: from the text format.
        binary: from the binary format.
    """

    text: Callable[[str], Value]
    binary: Callable[[bytes], Value]


def decode_parameters(
    values: Sequence[bytes | None], types: Sequence[int], formats: Sequence[int]
) -> tuple[Value | None, ...]:
    """Decode the values of all parameters of a statement.

    Args:
        values: the values as they were sent; None for NULL.
        types: the types of the parameters.
        formats: the format of each value, 0 for text and 1 for binary.

    Raises:
        FormatError: a value is no value of its type, or there are too many.
    """
    parameters = [
        (data, type_oid, bool(code))
        for data, type_oid, code in zip(values, types, formats, strict=True)
    ]
    if sum(starmap(_value_count, parameters)) > MAX_VALUES:
        raise FormatError(
            PROGRAM_LIMIT_EXCEEDED, f"the parameters have more than {MAX_VALUES} values"
        )
    return tuple(
        decode_parameter(data, type_oid, binary=binary) for data, type_oid, binary in parameters
    )


def _value_count(data: bytes | None, type_oid: int, binary: bool) -> int:
    """Return an upper limit of the number of values in a parameter."""
    if data is None or type_oid in _DECODERS or type_oid not in TYPES:
        return 1
    return len(data) // 4 if binary else 1 + data.count(b",") + data.count(b"{")


def decode_parameter(data: bytes | None, type_oid: int, *, binary: bool) -> Value | None:
    """Decode the value of a parameter.

    Args:
        data: the value as it was sent; None for NULL.
        type_oid: the type of the parameter; 0 and unknown types are texts.
        binary: whether it was sent in the binary format.

    Raises:
        FormatError: it is no value of this type.
    """
    if data is None:
        return None
    try:
        return _decode(data, type_oid, binary=binary)
    except FormatError:
        raise
    except (ValueError, OverflowError, InvalidOperation):
        name = TYPES[type_oid].name if type_oid in TYPES else "unknown"
        if binary:
            raise FormatError(
                INVALID_BINARY_REPRESENTATION, f"incorrect binary data format for type {name}"
            ) from None
        raise FormatError(
            INVALID_TEXT_REPRESENTATION, f"invalid input syntax for type {name}"
        ) from None


def _decode(data: bytes, type_oid: int, *, binary: bool) -> Value:
    decoders = _DECODERS.get(type_oid)
    if decoders is None and type_oid in TYPES and (element := TYPES[type_oid].element):
        if binary:
            return _array_from_binary(data, element)
        return _array_from_text(_text(data), element)
    if decoders is None:
        decoders = _TEXT
    if len(data) > MAX_SHORT_VALUE and decoders is not _TEXT and type_oid not in _LONG_TYPES:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, "a value is too long for its type")
    return decoders.binary(data) if binary else decoders.text(_text(data))


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FormatError(
            CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding UTF8 in a parameter"
        )
    return text


def _same_text(text: str) -> Value:
    return text


# Booleans and numbers


def _bool_from_text(text: str) -> Value:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(word)


def _bool_from_binary(data: bytes) -> Value:
    return of_size(data, 1) != b"\0"


def _integer_decoders(name: str, size: int, *, signed: bool = True) -> _Decoders:
    bits = 8 * size - signed
    least, most = (-(1 << bits) if signed else 0), (1 << bits) - 1

    def from_text(text: str) -> Value:
        if _INTEGER.fullmatch(text.strip()) is None:
            raise ValueError("not an integer")
        value = int(text)
        if not least <= value <= most:
            raise FormatError(NUMERIC_VALUE_OUT_OF_RANGE, f"value is out of range for type {name}")
        return value

    def from_binary(data: bytes) -> Value:
        return int.from_bytes(of_size(data, size), "big", signed=signed)

    return _Decoders(from_text, from_binary)


def _named_object_decoders(name: str) -> _Decoders:
    """Return the decoders of regclass and the like: an OID, or in the text format also a name."""
    number = _integer_decoders(name, 4, signed=False)

    def from_text(text: str) -> Value:
        return number.text(text) if text.strip().isdecimal() else text

    return _Decoders(from_text, number.binary)


def _float_from_text(text: str) -> Value:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError("not a number")
    return float(text)


def _float4_from_text(text: str) -> Value:
    value = _float_from_text(text)
    try:
        return float(_FLOAT4.unpack(_FLOAT4.pack(value))[0])
    except OverflowError:
        raise FormatError(
            NUMERIC_VALUE_OUT_OF_RANGE, "value is out of range for type real"
        ) from None


def _float4_from_binary(data: bytes) -> Value:
    return float(_FLOAT4.unpack(of_size(data, 4))[0])


def _float8_from_binary(data: bytes) -> Value:
    return float(_FLOAT8.unpack(of_size(data, 8))[0])


def _numeric_from_text(text: str) -> Value:
    text = text.strip()
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a number")
    value = Decimal(text)
    if value.is_finite() and value and abs(value.adjusted()) > MAX_NUMERIC_DIGITS:
        raise FormatError(NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
    return value


def _numeric_from_binary(data: bytes) -> Value:
    if len(data) < _NUMERIC_HEAD.size:
        raise ValueError("incorrect size")
    count, weight, sign, scale = _NUMERIC_HEAD.unpack_from(data)
    if len(data) != _NUMERIC_HEAD.size + 2 * count:
        raise ValueError("incorrect size")
    special = _SPECIAL_NUMERICS.get(sign)
    if special is not None:
        return special
    if sign not in (0, 0x4000):
        raise ValueError("incorrect sign")
    if 4 * count > MAX_NUMERIC_DIGITS or 4 * abs(weight) > MAX_NUMERIC_DIGITS:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, "a number has too many digits")
    groups = [int.from_bytes(data[at : at + 2], "big") for at in range(8, len(data), 2)]
    if scale > MAX_NUMERIC_DIGITS or any(group > 9999 for group in groups):
        raise ValueError("incorrect digits")
    whole = groups[: max(weight + 1, 0)]
    whole += [0] * (weight + 1 - len(whole))
    fraction = [0] * max(-weight - 1, 0) + groups[max(weight + 1, 0) :]
    after_point = "".join(f"{group:04}" for group in fraction)[:scale].ljust(scale, "0")
    digits = "".join(f"{group:04}" for group in whole) + after_point
    return Decimal((1 if sign else 0, tuple(map(int, digits or "0")), -scale))


_SPECIAL_NUMERICS: Final = {
    0xC000: Decimal("NaN"),
    0xD000: Decimal("Infinity"),
    0xF000: Decimal("-Infinity"),
}


# bytea, uuid, jsonb


def _bytea_from_text(text: str) -> Value:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])

    def unescape(match: re.Match[bytes]) -> bytes:
        octal, backslash, other = match.groups()
        if other is not None:
            raise ValueError("incorrect escape")
        return backslash or bytes([int(octal, 8)])

    if len(text) > MAX_ESCAPED_BYTEA:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, "a long bytea needs the hex or the binary format")
    return _ESCAPED_BYTE.sub(unescape, text.encode())


def _bytea_from_binary(data: bytes) -> Value:
    return data


def _uuid_from_text(text: str) -> Value:
    if _UUID.fullmatch(text) is None:
        raise ValueError("not a uuid")
    return _dashed(text.strip("{}").replace("-", "").lower())


def _uuid_from_binary(data: bytes) -> Value:
    return _dashed(of_size(data, 16).hex())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _jsonb_from_binary(data: bytes) -> Value:
    if data[:1] != b"\x01":
        raise ValueError("unsupported jsonb version")
    return _text(data[1:])


# Arrays


def _array_from_text(text: str, element: int) -> Value:
    """Decode the text of an array of one dimension or more: {1,NULL,"a b"}."""
    stack: list[list[Value | None]] = []
    done: list[Value | None] | None = None
    value_allowed = True  # after { and ,
    position = 0
    text = text.strip(_SPACES)
    if _PLAIN_ARRAY.fullmatch(text) is not None:
        elements = text[1:-1].split(",") if text[1:-1].strip(_SPACES) else []
        return [_element(None, one, element) for one in elements]
    while position < len(text):
        match = _ARRAY_TOKEN.match(text, position)
        if match is None or done is not None:
            raise ValueError("malformed array")
        position = match.end()
        mark, quoted, bare = match.groups()
        if mark == "{" and value_allowed and len(stack) < MAX_ARRAY_DIMENSIONS:
            inner: list[Value | None] = []
            if stack:
                stack[-1].append(inner)
            stack.append(inner)
        elif mark == "," and stack and not value_allowed:
            value_allowed = True
        elif mark == "}" and stack and (not value_allowed or not stack[-1]):
            closed = stack.pop()
            done = None if stack else closed
            value_allowed = False
        elif mark is None and stack and value_allowed:
            stack[-1].append(_element(quoted, bare, element))
            value_allowed = False
        else:
            raise ValueError("malformed array")
    if done is None:
        raise ValueError("malformed array")
    return done


def _element(quoted: str | None, bare: str | None, element: int) -> Value | None:
    if quoted is None:
        text = (bare or "").strip(_SPACES)
        if not text:
            raise ValueError("malformed array")
        if len(text) == 4 and text.upper() == "NULL":
            return None
    else:
        text = quoted
    if "\\" in text:
        text = _ESCAPED_CHARACTER.sub(r"\1", text)
    return _decode(text.encode(), element, binary=False)


def _array_from_binary(data: bytes, element: int) -> Value:
    """Decode the binary format of an array; see `formats` for its form."""
    if len(data) < _ARRAY_HEAD.size:
        raise ValueError("incorrect size")
    dimensions, _, sent_element = _ARRAY_HEAD.unpack_from(data)
    if dimensions == 0:
        of_size(data, _ARRAY_HEAD.size)
        return []
    if dimensions != 1:
        raise FormatError(FEATURE_NOT_SUPPORTED, "arrays of several dimensions as parameters")
    if sent_element != element and types.UNKNOWN not in (element, sent_element):
        raise ValueError("wrong element type")
    if len(data) < _ARRAY_HEAD.size + _DIMENSION.size:
        raise ValueError("incorrect size")
    count, _ = _DIMENSION.unpack_from(data, _ARRAY_HEAD.size)
    position = _ARRAY_HEAD.size + _DIMENSION.size
    if not 0 <= count <= (len(data) - position) // 4:
        raise ValueError("incorrect size")
    values: list[Value | None] = []
    for _ in range(count):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size == -1:
            values.append(None)
            continue
        if not 0 <= size <= len(data) - position:
            raise ValueError("incorrect size")
        values.append(decode_parameter(data[position : position + size], element, binary=True))
        position += size
    if position != len(data):
        raise ValueError("incorrect size")
    return values


_TEXT: Final = _Decoders(_same_text, _text)
_LONG_TYPES: Final = (types.BYTEA, types.JSONB)

_DECODERS: Final[Mapping[int, _Decoders]] = MappingProxyType(
    {
        types.BOOL: _Decoders(_bool_from_text, _bool_from_binary),
        types.INT2: _integer_decoders("smallint", 2),
        types.INT4: _integer_decoders("integer", 4),
        types.INT8: _integer_decoders("bigint", 8),
        types.OID: _integer_decoders("oid", 4, signed=False),
        types.XID: _integer_decoders("xid", 4, signed=False),
        types.CID: _integer_decoders("cid", 4, signed=False),
        types.FLOAT4: _Decoders(_float4_from_text, _float4_from_binary),
        types.FLOAT8: _Decoders(_float_from_text, _float8_from_binary),
        types.NUMERIC: _Decoders(_numeric_from_text, _numeric_from_binary),
        types.TEXT: _TEXT,
        types.VARCHAR: _TEXT,
        types.BPCHAR: _TEXT,
        types.NAME: _TEXT,
        types.CHAR: _TEXT,
        types.UNKNOWN: _TEXT,
        types.VOID: _TEXT,
        types.JSON: _TEXT,
        types.JSONB: _Decoders(_same_text, _jsonb_from_binary),
        types.BYTEA: _Decoders(_bytea_from_text, _bytea_from_binary),
        types.UUID: _Decoders(_uuid_from_text, _uuid_from_binary),
        types.DATE: _Decoders(date_from_text, date_from_binary),
        types.TIME: _Decoders(time_from_text, time_from_binary),
        types.TIMESTAMP: _Decoders(timestamp_from_text, timestamp_from_binary),
        types.TIMESTAMPTZ: _Decoders(timestamptz_from_text, timestamptz_from_binary),
        types.INTERVAL: _Decoders(interval_from_text, interval_from_binary),
        types.REGPROC: _named_object_decoders("regproc"),
        types.REGPROCEDURE: _named_object_decoders("regprocedure"),
        types.REGCLASS: _named_object_decoders("regclass"),
        types.REGTYPE: _named_object_decoders("regtype"),
        types.REGNAMESPACE: _named_object_decoders("regnamespace"),
        types.REGROLE: _named_object_decoders("regrole"),
    }
)
"""The decoders of all types but arrays, which follow from those of their elements."""


def query_values(parameters: Sequence[Value | None]) -> tuple[object, ...]:
    """Return the values of parameters as queries take them: intervals are texts."""
    return tuple(_query_value(value) for value in parameters)


def _query_value(value: object) -> object:
    if isinstance(value, IntervalValue):
        return str(value)
    if isinstance(value, list | tuple):
        return [_query_value(item) for item in value]
    return value
