"""Values of parameters: PostgreSQL's text and binary formats -> Python values.

A value is decoded as the type that the statement gives to its parameter. Source: PostgreSQL 16,
src/backend/utils/adt: the functions *in and *recv of each type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from itertools import starmap
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from server.sql.postgres.errors import (
    CHARACTER_NOT_IN_REPERTOIRE,
    DATETIME_FIELD_OVERFLOW,
    FEATURE_NOT_SUPPORTED,
    INVALID_BINARY_REPRESENTATION,
    INVALID_DATETIME_FORMAT,
    INVALID_TEXT_REPRESENTATION,
    NUMERIC_VALUE_OUT_OF_RANGE,
    PROGRAM_LIMIT_EXCEEDED,
    FormatError,
)
from server.sql.postgres.time_formats import DAY_US, POSTGRES_EPOCH_DAYS, clock_text
from server.sql.postgres.types import (
    BOOL,
    BPCHAR,
    BYTEA,
    CHAR,
    CID,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NAME,
    NUMERIC,
    OID,
    REGCLASS,
    REGNAMESPACE,
    REGPROC,
    REGPROCEDURE,
    REGROLE,
    REGTYPE,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TYPES,
    UNKNOWN,
    UUID,
    VARCHAR,
    VOID,
    XID,
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

_DATE_ORIGIN: Final = date(1970, 1, 1).toordinal() + POSTGRES_EPOCH_DAYS
_EPOCH: Final = datetime(2000, 1, 1)
_INFINITE_US: Final = 2**63 - 1
_INFINITE_DAYS: Final = 2**31 - 1
_FLOAT4: Final = Struct(">f")
_FLOAT8: Final = Struct(">d")
_INTERVAL: Final = Struct(">qii")
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
_ZONE: Final = re.compile(
    r"\s*(?:(Z|UTC|GMT)|([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?)$", re.IGNORECASE
)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T\s]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?)?"
)
_CLOCK: Final = re.compile(r"([+-]?)(\d{1,9}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?")
_INTERVAL_PART: Final = re.compile(r"([+-]?\d{1,10}(?:\.\d{1,9})?)\s*([a-z]+)")
_ISO_INTERVAL: Final = re.compile(r"(T)|([+-]?\d{1,10}(?:\.\d{1,9})?)([YMWDHS])")
_SPACES: Final = " \t\n\v\f\r"  # around elements of arrays
_ARRAY_TOKEN: Final = re.compile(
    r'[ \t\n\v\f\r]*+(?:([{},])|"((?:[^"\\]|\\.)*+)"|((?:[^{},"\\]|\\.)++))', re.DOTALL
)

_PLAIN_ARRAY: Final = re.compile(r'\{[^{}"\\]*+\}')  # can be split at its commas
_ESCAPED_CHARACTER: Final = re.compile(r"\\(.)", re.DOTALL)

_UNITS_US: Final = {
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "hr": 3_600_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "ms": 1000,
    "millisecond": 1000,
    "us": 1,
    "microsecond": 1,
}
_UNITS_DAYS: Final = {"d": 1, "day": 1, "week": 7}
_UNITS_MONTHS: Final = {"mon": 1, "month": 1, "y": 12, "year": 12, "decade": 120, "century": 1200}
_ISO_UNITS: Final = {"Y": "year", "W": "week", "D": "day", "H": "hour", "S": "sec"}


class IntervalValue(NamedTuple):
    """An interval: PostgreSQL keeps months and days apart, which differ in length.

    Attributes:
        months: years are 12 months.
        days: days.
        microseconds: the rest.
    """

    months: int
    days: int
    microseconds: int

    def __str__(self) -> str:
        """Return a text that PostgreSQL and DuckDB read as this interval."""
        sign = "-" if self.microseconds < 0 else ""
        clock = sign + clock_text(abs(self.microseconds))
        return f"{self.months} months {self.days} days {clock}"


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


def _of_size(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError("incorrect size")
    return data


# Booleans and numbers


def _bool_from_text(text: str) -> Value:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(word)


def _bool_from_binary(data: bytes) -> Value:
    return _of_size(data, 1) != b"\0"


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
        return int.from_bytes(_of_size(data, size), "big", signed=signed)

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
    return float(_FLOAT4.unpack(_of_size(data, 4))[0])


def _float8_from_binary(data: bytes) -> Value:
    return float(_FLOAT8.unpack(_of_size(data, 8))[0])


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
    return _dashed(_of_size(data, 16).hex())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _jsonb_from_binary(data: bytes) -> Value:
    if data[:1] != b"\x01":
        raise ValueError("unsupported jsonb version")
    return _text(data[1:])


# Dates and times


def _date_from_text(text: str) -> Value:
    moment = _moment(text)
    return moment.date()


def _date_from_binary(data: bytes) -> Value:
    days = int.from_bytes(_of_size(data, 4), "big", signed=True)
    if days >= _INFINITE_DAYS:
        return date.max
    if days < -_INFINITE_DAYS:
        return date.min
    try:
        return date.fromordinal(days + _DATE_ORIGIN)
    except (ValueError, OverflowError):
        raise _out_of_range("date") from None


def _timestamp_from_text(text: str) -> Value:
    return _moment(text).replace(tzinfo=None)  # PostgreSQL ignores a zone here


def _timestamptz_from_text(text: str) -> Value:
    moment = _moment(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _timestamp_from_binary(data: bytes) -> Value:
    microseconds = int.from_bytes(_of_size(data, 8), "big", signed=True)
    if microseconds >= _INFINITE_US:
        return datetime.max
    if microseconds < -_INFINITE_US:
        return datetime.min
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise _out_of_range("timestamp") from None


def _timestamptz_from_binary(data: bytes) -> Value:
    moment = _timestamp_from_binary(data)
    assert isinstance(moment, datetime)  # noqa: S101 - for the type checker
    return moment.replace(tzinfo=UTC)


def _out_of_range(name: str) -> FormatError:
    return FormatError(DATETIME_FIELD_OVERFLOW, f"{name} out of range")


def _moment(text: str) -> datetime:
    """Return the moment that a text in ISO style names, in UTC if it has a zone.

    Infinity is the last moment that Python has, -infinity the first one.
    """
    text = text.strip()
    word = text.lower()
    if word in ("infinity", "+infinity"):
        return datetime.max
    if word == "-infinity":
        return datetime.min
    match = _TIMESTAMP.match(text)
    if match is None:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for date or time")
    rest = text[match.end() :]
    zone = _ZONE.match(rest)
    if rest and zone is None:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    clock = timedelta(hours=hour, minutes=minute, seconds=second)
    if minute > 59 or second > 60 or clock > timedelta(days=1):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "date/time field value out of range")
    try:
        moment = datetime(year, month, day) + clock
        moment += timedelta(microseconds=_fraction_us(match[7]))
        if zone is None:
            return moment
        return (moment - _zone_offset(zone)).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "date/time field value out of range") from None


def _zone_offset(zone: re.Match[str]) -> timedelta:
    hours, minutes, seconds = (int(part or 0) for part in zone.groups()[2:])
    if hours > 15 or minutes > 59 or seconds > 59:
        raise ValueError("time zone displacement out of range")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -offset if zone[2] == "-" else offset


def _fraction_us(digits: str | None) -> int:
    """Return the digits after the point of seconds in microseconds, rounded."""
    return (int((digits or "0")[:7].ljust(7, "0")) + 5) // 10


def _clock_us(match: re.Match[str]) -> int:
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:4])
    if minutes > 59 or seconds > 60:
        raise _out_of_range("time")
    total = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + _fraction_us(match[5])
    return -total if match[1] == "-" else total


def _time_from_text(text: str) -> Value:
    match = _CLOCK.fullmatch(text.strip())
    if match is None or match[1]:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for type time")
    return _time_of_day(_clock_us(match))


def _time_from_binary(data: bytes) -> Value:
    return _time_of_day(int.from_bytes(_of_size(data, 8), "big", signed=True))


def _time_of_day(microseconds: int) -> time:
    """Return a time of day; Python has no 24:00:00, and gets the last moment of the day."""
    if not 0 <= microseconds <= DAY_US:
        raise _out_of_range("time")
    seconds, fraction = divmod(min(microseconds, DAY_US - 1), 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)


def _interval_from_binary(data: bytes) -> Value:
    microseconds, days, months = _INTERVAL.unpack(_of_size(data, 16))
    return IntervalValue(months, days, microseconds)


def _interval_from_text(text: str) -> Value:
    """Decode the styles "postgres", "postgres_verbose" and ISO 8601."""
    text = text.strip()
    parts = _iso_interval_parts(text) if text[:1] == "P" else _interval_parts(text.lower())
    months = days = microseconds = Decimal(0)
    for amount, unit in parts:
        singular = unit.removesuffix("s") if len(unit) > 2 else unit
        if singular in _UNITS_US:
            microseconds += amount * _UNITS_US[singular]
        elif singular in _UNITS_DAYS:
            days += amount * _UNITS_DAYS[singular]
        elif singular in _UNITS_MONTHS:
            months += amount * _UNITS_MONTHS[singular]
        else:
            raise ValueError("unknown unit")
    # A fraction of a month goes to days, one of a day to the rest, as in PostgreSQL.
    days += (months - int(months)) * 30
    microseconds += (days - int(days)) * DAY_US
    value = IntervalValue(int(months), int(days), round(microseconds))
    limits = (2**31, 2**31, 2**63)
    if not all(-limit <= part < limit for part, limit in zip(value, limits, strict=True)):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "interval out of range")
    return value


def _interval_parts(text: str) -> list[tuple[Decimal, str]]:
    text = text.removeprefix("@").strip()
    sign = -1 if text.endswith(" ago") else 1
    text = text.removesuffix(" ago")
    parts = []
    position = 0
    while position < len(text):
        if match := _INTERVAL_PART.match(text, position):
            parts.append((sign * Decimal(match[1]), match[2]))
        elif match := _CLOCK.match(text, position):
            parts.append((sign * Decimal(_clock_us(match)), "us"))
        else:
            raise ValueError("not an interval")
        position = match.end()
        while text[position : position + 1].isspace():
            position += 1
    if not parts:
        raise ValueError("not an interval")
    return parts


def _iso_interval_parts(text: str) -> list[tuple[Decimal, str]]:
    parts = []
    in_time = False
    position = 1
    while position < len(text):
        match = _ISO_INTERVAL.match(text, position)
        if match is None:
            raise ValueError("not an interval")
        position = match.end()
        if match[1]:
            in_time = True
        elif match[3] == "M":
            parts.append((Decimal(match[2]), "min" if in_time else "month"))
        else:
            parts.append((Decimal(match[2]), _ISO_UNITS[match[3]]))
    if not parts:
        raise ValueError("not an interval")
    return parts


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
        _of_size(data, _ARRAY_HEAD.size)
        return []
    if dimensions != 1:
        raise FormatError(FEATURE_NOT_SUPPORTED, "arrays of several dimensions as parameters")
    if sent_element != element and UNKNOWN not in (element, sent_element):
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
_LONG_TYPES: Final = (BYTEA, JSONB)

_DECODERS: Final[Mapping[int, _Decoders]] = MappingProxyType(
    {
        BOOL: _Decoders(_bool_from_text, _bool_from_binary),
        INT2: _integer_decoders("smallint", 2),
        INT4: _integer_decoders("integer", 4),
        INT8: _integer_decoders("bigint", 8),
        OID: _integer_decoders("oid", 4, signed=False),
        XID: _integer_decoders("xid", 4, signed=False),
        CID: _integer_decoders("cid", 4, signed=False),
        FLOAT4: _Decoders(_float4_from_text, _float4_from_binary),
        FLOAT8: _Decoders(_float_from_text, _float8_from_binary),
        NUMERIC: _Decoders(_numeric_from_text, _numeric_from_binary),
        TEXT: _TEXT,
        VARCHAR: _TEXT,
        BPCHAR: _TEXT,
        NAME: _TEXT,
        CHAR: _TEXT,
        UNKNOWN: _TEXT,
        VOID: _TEXT,
        JSON: _TEXT,
        JSONB: _Decoders(_same_text, _jsonb_from_binary),
        BYTEA: _Decoders(_bytea_from_text, _bytea_from_binary),
        UUID: _Decoders(_uuid_from_text, _uuid_from_binary),
        DATE: _Decoders(_date_from_text, _date_from_binary),
        TIME: _Decoders(_time_from_text, _time_from_binary),
        TIMESTAMP: _Decoders(_timestamp_from_text, _timestamp_from_binary),
        TIMESTAMPTZ: _Decoders(_timestamptz_from_text, _timestamptz_from_binary),
        INTERVAL: _Decoders(_interval_from_text, _interval_from_binary),
        REGPROC: _named_object_decoders("regproc"),
        REGPROCEDURE: _named_object_decoders("regprocedure"),
        REGCLASS: _named_object_decoders("regclass"),
        REGTYPE: _named_object_decoders("regtype"),
        REGNAMESPACE: _named_object_decoders("regnamespace"),
        REGROLE: _named_object_decoders("regrole"),
    }
)
"""The decoders of all types but arrays, which follow from those of their elements."""
