"""Columns of Arrow batches in PostgreSQL's text and binary formats, and rows made from them.

    DataRow: "D", length of the rest (4 bytes), number of columns (2), then for each column
             the length of its value (4; -1 for NULL) and the value

Nothing here runs once per value, except for rare ones: a column is converted by operations of Arrow
and numpy to *pieces*, arrays of bytes that make up its values when they are joined. Then one
operation joins the heads of rows, the lengths, and the pieces of all columns.

    numeric, binary:  [8 bytes of header, 2 bytes per digit group]
    timestamptz:      ["2026-11-29 21:00:00", "+00"]

Every type has the text that PostgreSQL prints with its default settings: floats in their shortest
form that reads back, timestamps in ISO style without trailing zeros, intervals in the style
"postgres", bytea in hex. Times with a zone are in UTC.
Source: PostgreSQL 16, src/backend/utils/adt: the functions *out and *send of each type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.sql.postgres.errors import (
    ARRAY_SUBSCRIPT_ERROR,
    CANNOT_COERCE,
    FEATURE_NOT_SUPPORTED,
    NUMERIC_VALUE_OUT_OF_RANGE,
    PROGRAM_LIMIT_EXCEEDED,
    FormatError,
)
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
    INT2VECTOR,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NAME,
    NUMERIC,
    OID,
    OIDVECTOR,
    RECORD,
    REGCLASS,
    REGNAMESPACE,
    REGPROC,
    REGPROCEDURE,
    REGROLE,
    REGTYPE,
    TEXT,
    TID,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TYPES,
    UNKNOWN,
    UUID,
    VARCHAR,
    VOID,
    XID,
    is_list,
    is_nested,
    oid_of_arrow_type,
)

MAX_ENCODED_BATCH: Final = 128 * 1024 * 1024
"""Bytes of an Arrow batch that are encoded in one go: offsets in Arrow's arrays have 31 bits."""
MAX_ENCODED_ROWS: Final = 1_000_000
MAX_ENCODED_SIZE: Final = 1024 * 1024 * 1024
"""Bytes of messages that are encoded in one go; so are these offsets."""
MAX_ENCODED_ELEMENTS: Final = 20_000_000
"""Elements of all arrays of a column that are encoded in one go."""

POSTGRES_EPOCH_DAYS: Final = 10_957  # 2000-01-01 in days since 1970-01-01
POSTGRES_EPOCH_US: Final = POSTGRES_EPOCH_DAYS * 86_400_000_000
DAY_US: Final = 86_400_000_000
_ROW_HEAD: Final = np.dtype([("type", "S1"), ("length", ">i4"), ("columns", ">u2")])
_COPY_HEAD: Final = np.dtype([("type", "S1"), ("length", ">i4")])
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_YEAR_1_DAYS: Final = -719_162  # 0001-01-01
_YEAR_10000_DAYS: Final = 2_932_897

_MAX_PLAIN_SCALE: Final = 6  # Arrow prints decimals with more digits after the point as 0E-10
_NUMERIC_NEGATIVE: Final = 0x4000
_GROUP_WEIGHTS: Final = np.array([1000, 100, 10, 1], np.int16)
_HEX_PAIRS: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), ">u2")

# Elements of an array that are quoted: empty, the word NULL, or with a character of the syntax.
_QUOTED_ELEMENT: Final = r'^$|^(?i:null)$|[{}",\\\s\v]'
_QUOTED_FIELD: Final = r'^$|[(),"\\\s\v]'

_BINARY: Final = pa.binary()
# Built from buffers: pa.scalar() imports pandas where it is installed, see columns.warm_up().
_EMPTY: Final = pa.BinaryArray.from_buffers(
    _BINARY, 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")]
)[0]

Piece: TypeAlias = "pa.Array | pa.Scalar"
"""An array of the type binary or string, or one value for all rows."""
Converter = Callable[[pa.Array], list[Piece]]


class ColumnFormat(NamedTuple):
    """The format of a column.

    Attributes:
        type_oid: the type that RowDescription names.
        binary: whether the client asked for the binary format.
    """

    type_oid: int
    binary: bool = False


class _TypeFormat(NamedTuple):
    """The formats of a type.

    Attributes:
        arrow_type: the Arrow type that the converters take; None for several.
        text: the converter to the text format.
        binary: the converter to the binary format.
    """

    arrow_type: pa.DataType | None
    text: Converter
    binary: Converter


def encode_data_rows(batch: pa.RecordBatch, columns: Sequence[ColumnFormat]) -> bytes:
    """Encode a record batch as DataRow messages.

    Slices of 10,000 rows or so are best: a call costs 30 to 60 us per column, and the result is one
    piece of memory.

    Args:
        batch: the rows.
        columns: the type and the format of each column.

    Raises:
        FormatError: a value cannot be represented, or a row is too long.
    """
    rows = batch.num_rows
    if rows == 0:
        return b""
    if rows > MAX_ENCODED_ROWS or _is_large(batch):
        return _encode_halves(batch, columns)
    lengths, pieces = _prefixed_columns(rows, batch.columns, columns)
    if lengths.sum() > MAX_ENCODED_SIZE:
        return _encode_halves(batch, columns)
    head = np.empty(rows, _ROW_HEAD)
    head["type"] = b"D"
    head["length"] = lengths + 6
    head["columns"] = len(columns)
    return _content(_joined([_fixed(head), *pieces]))


class CopyMarks(NamedTuple):
    """What separates the values of COPY in the formats text and csv.

    Attributes:
        delimiter: separates the values of a row.
        null: stands for NULL.
        special: finds bytes that have to be escaped or quoted.
        quoted: whole values that have to be quoted.
    """

    delimiter: bytes
    null: bytes
    special: re.Pattern[bytes]
    quoted: frozenset[bytes]


def encode_copy_lines(
    batch: pa.RecordBatch, columns: Sequence[ColumnFormat], marks: CopyMarks
) -> bytes | None:
    """Encode a record batch as CopyData messages, each with a line.

    Returns:
        None if a value has to be escaped or quoted, or the batch is too large: its values have to
        be encoded one by one.
    """
    rows = batch.num_rows
    if rows == 0 or rows > MAX_ENCODED_ROWS or _is_large(batch):
        return None
    texts: list[pa.Array] = []
    size = 0
    for array, column in zip(batch.columns, columns, strict=True):
        pieces = column_pieces(array, column)
        values = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, _EMPTY)
        content = _content(values)
        size += len(content)
        if marks.special.search(content) is not None or size > MAX_ENCODED_SIZE:
            return None
        if marks.quoted:
            in_quotes = pc.is_in(values, pa.array(list(marks.quoted), _BINARY), skip_nulls=True)
            if pc.any(in_quotes).as_py():
                return None
        texts.append(values)
    lines = pc.binary_join_element_wise(
        *texts,
        pa.scalar(marks.delimiter, _BINARY),
        null_handling="replace",
        null_replacement=marks.null,
    )
    end = pa.scalar(b"\n", _BINARY)
    head = np.empty(rows, _COPY_HEAD)
    head["type"] = b"d"
    head["length"] = _lengths([lines, end]) + 4
    return _content(_joined([_fixed(head), lines, end]))


def _encode_halves(batch: pa.RecordBatch, columns: Sequence[ColumnFormat]) -> bytes:
    """Encode a batch in two parts."""
    half = batch.num_rows // 2
    if half == 0:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, f"a row of {batch.nbytes} bytes is too long")
    parts = (batch.slice(0, half), batch.slice(half))
    return b"".join(encode_data_rows(part, columns) for part in parts)


def _is_large(batch: pa.RecordBatch) -> bool:
    """Return True for a batch that is too large to be encoded in one go."""
    # The sum of all its buffers costs less, and is enough unless it is a slice of a large batch.
    if batch.get_total_buffer_size() <= MAX_ENCODED_BATCH:
        return False
    return bool(batch.nbytes > MAX_ENCODED_BATCH)


def _prefixed_columns(
    rows: int, arrays: Sequence[pa.Array], columns: Sequence[ColumnFormat]
) -> tuple[np.ndarray, list[Piece]]:
    """Return the bytes of each row, and the pieces of all columns with a length before each."""
    lengths = np.empty((len(arrays), rows), ">i4")
    values = []
    for number, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        values.append(column_pieces(array, column))
        lengths[number] = _lengths(values[-1])
    prefixes = _fixed(lengths.reshape(-1))
    pieces: list[Piece] = []
    for number, converted in enumerate(values):
        pieces += [prefixes.slice(number * rows, rows), *converted]
    return np.maximum(lengths, 0).sum(axis=0) + 4 * len(arrays), pieces


def column_pieces(array: pa.Array, column: ColumnFormat) -> list[Piece]:
    """Convert a column to pieces that make up its values when they are joined.

    A NULL is null in all pieces. The first piece is an array, any other may be one value for all
    rows.

    Raises:
        FormatError: the values do not fit the type.
    """
    array = _plain(array)
    if pa.types.is_null(array.type):
        return [array.cast(_BINARY)]
    try:
        pieces = _converter(column, array.type)(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        type_name = TYPES[column.type_oid].name if column.type_oid in TYPES else "?"
        code = NUMERIC_VALUE_OUT_OF_RANGE if isinstance(error, pa.ArrowInvalid) else CANNOT_COERCE
        raise FormatError(code, f"a value does not fit the type {type_name}: {error}") from None
    if not isinstance(pieces[0], pa.Array):
        pieces.insert(0, pa.repeat(_EMPTY, len(array)))
    if array.null_count == 0:
        return [_as_binary(piece) for piece in pieces]
    return [_with_nulls(_as_binary(piece), array) for piece in pieces]


def _plain(array: pa.Array) -> pa.Array:
    """Return an array without extension types and dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array


def _converter(column: ColumnFormat, arrow_type: pa.DataType) -> Converter:
    """Return the converter for a column.

    Raises:
        FormatError: there is none.
    """
    oid, binary = column
    known = TYPES.get(oid)
    if known is not None and known.element and oid not in _FORMATS:
        if not is_list(arrow_type) and binary:
            raise FormatError(FEATURE_NOT_SUPPORTED, "an array that came as its text, in binary")
        if not is_list(arrow_type):
            return _text_of_any
        element = ColumnFormat(known.element, binary)
        to_array = _array_binary if binary else _array_text
        return lambda array: to_array(array, element)
    formats = _FORMATS.get(oid)
    if formats is None:
        if binary:
            raise FormatError(FEATURE_NOT_SUPPORTED, f"type {oid} has no binary format here")
        return _text_of_any
    convert = formats.binary if binary else formats.text
    target = formats.arrow_type
    if target is None or target == arrow_type:
        return convert
    return lambda array: convert(_cast(array, target))


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to the Arrow type of a converter.

    Numbers that do not fit are errors. Floats and fractions of seconds are rounded.
    """
    kinds = pa.types
    if kinds.is_timestamp(target) and kinds.is_timestamp(array.type):
        array = array.view(pa.timestamp(array.type.unit))  # Arrow would look for the time zone
    safe = kinds.is_integer(target) or kinds.is_boolean(target)
    return array.cast(target, safe=safe)


def _as_binary(piece: Piece) -> Piece:
    if isinstance(piece, pa.BinaryArray | pa.BinaryScalar):
        return piece
    if isinstance(piece, pa.StringArray):
        return piece.view(_BINARY)
    return piece.cast(_BINARY)


def _with_nulls(piece: Piece, array: pa.Array) -> Piece:
    """Return a piece with null where an array is null."""
    if isinstance(piece, pa.Array) and piece.null_count == array.null_count:
        return piece
    return pc.if_else(array.is_valid(), piece, pa.scalar(None, _BINARY))


def _lengths(pieces: Sequence[Piece]) -> np.ndarray:
    """Return the lengths of values made of pieces of the type binary; -1 for NULL."""
    first = pieces[0]
    offsets = _offsets(first)
    total: np.ndarray = offsets[1:] - offsets[:-1]
    for piece in pieces[1:]:
        if isinstance(piece, pa.Array):
            offsets = _offsets(piece)
            total += offsets[1:] - offsets[:-1]
        else:
            total += len(piece.as_buffer())
    if first.null_count:
        total[_filled(first.is_null())] = -1
    return total


def _joined(pieces: Sequence[Piece]) -> pa.Array:
    """Return the values made of pieces, b"" in place of NULL."""
    return pc.binary_join_element_wise(
        *pieces, _EMPTY, null_handling="replace", null_replacement=b""
    )


def _content(array: pa.Array) -> bytes:
    """Return the values of a binary array in one."""
    offsets = _offsets(array)
    data = memoryview(array.buffers()[2])
    return bytes(data[int(offsets[0]) : int(offsets[-1])])


def _offsets(array: pa.Array) -> np.ndarray:
    """Return the offsets of a binary array: one more than values."""
    whole = np.frombuffer(array.buffers()[1], np.int32)
    return whole[array.offset : array.offset + len(array) + 1]


def _fixed(values: np.ndarray) -> pa.Array:
    """Return the bytes of each row of a numpy array as a binary array."""
    rows = len(values)
    width = values.nbytes // rows if rows else 0
    return _binary_array(np.arange(rows + 1, dtype=np.int32) * np.int32(width), values)


def _binary_array(offsets: np.ndarray, data: np.ndarray | pa.Buffer) -> pa.Array:
    content = data if isinstance(data, pa.Buffer) else pa.py_buffer(np.ascontiguousarray(data))
    starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(_BINARY, len(offsets) - 1, [None, starts, content])


def _masked_rows(values: np.ndarray, keep: np.ndarray) -> pa.Array:
    """Return of each row of a matrix only the items that a mask of the same shape keeps."""
    counts = np.count_nonzero(keep, axis=1)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(counts * values.itemsize, out=offsets[1:])
    return _binary_array(offsets, values[keep])


def _filled(array: pa.Array) -> np.ndarray:
    """Return a primitive array for numpy, with 0 in place of null."""
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _replaced(text: pa.Array, where: np.ndarray, values: Sequence[str]) -> pa.Array:
    """Return texts with some replaced, in order; nulls stay."""
    return pc.replace_with_mask(text, pa.array(where), pa.array(values, text.type))


# Text


def _text_of_any(array: pa.Array) -> list[Piece]:
    """Convert any array to the text of the type that it has by itself."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [array]
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return [array.cast(_BINARY)]
    if pa.types.is_null(kind):
        return [array.cast(pa.string())]
    oid = oid_of_arrow_type(kind)
    if oid in (TEXT, BYTEA):
        return [array.cast(pa.string())]
    return column_pieces(array, ColumnFormat(oid))


def _json_text(array: pa.Array) -> list[Piece]:
    if not is_nested(array.type):
        return _text_of_any(array)
    values = array.to_pylist(maps_as_pydicts="lossy")
    try:
        texts = [None if value is None else _encode_json(value) for value in values]
    except (TypeError, ValueError) as error:
        raise FormatError(CANNOT_COERCE, f"a value has no JSON text: {error}") from None
    return [pa.array(texts, _BINARY)]


def _json_default(value: object) -> object:
    """Encode what JSON has no type for: intervals."""
    if isinstance(value, pa.MonthDayNano):
        return _interval_text_of(value.months, value.days, value.nanoseconds // 1000)
    raise TypeError(type(value).__name__)


_encode_json: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_json_default).encode


def _jsonb_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of jsonb: the version 1, and the text."""
    return [_constant(b"\x01"), *_json_text(array)]


def _void(array: pa.Array) -> list[Piece]:
    return [pa.repeat(_EMPTY, len(array))]


# Booleans, integers, floats


def _bool_text(array: pa.Array) -> list[Piece]:
    return [pc.if_else(array, "t", "f")]


def _bool_binary(array: pa.Array) -> list[Piece]:
    return [pc.if_else(array, pa.scalar(b"\x01"), pa.scalar(b"\x00"))]


def _plain_text(array: pa.Array) -> list[Piece]:
    return [array.cast(pa.string())]


def _big_endian(array: pa.Array) -> list[Piece]:
    values = _filled(array)
    return [_fixed(values.astype(values.dtype.newbyteorder(">")))]


def _float8_text(array: pa.Array) -> list[Piece]:
    """Convert to text: as Arrow, except for numbers that it writes with an exponent or should.

    PostgreSQL uses an exponent below 1e-4 and from 1e15 on, Arrow below 1e-6 and from 1e10 on.
    """
    return [_float_text(array, 1e10, 1e15)]


def _float4_text(array: pa.Array) -> list[Piece]:
    return [_float_text(array, 1e6, 1e6)]


def _float_text(array: pa.Array, plain: float, exponent: float) -> pa.Array:
    """Return the text of floats.

    Args:
        array: the floats.
        plain: from this size on, Arrow's text may differ.
        exponent: from this size on, there is an exponent.
    """
    text = array.cast(pa.string())
    values = _filled(array)
    sizes = np.abs(values)
    differs = ~((sizes < plain) & ((sizes >= 1e-4) | (sizes == 0)))
    if not differs.any():
        return text
    return _replaced(text, differs, [_float_text_of(value, exponent) for value in values[differs]])


def _float_text_of(value: np.floating, exponent: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if 1e-4 <= abs(value) < exponent:
        return np.format_float_positional(value, trim="-")
    return np.format_float_scientific(value, trim="-", exp_digits=2)


# numeric


def _numeric_text(array: pa.Array) -> list[Piece]:
    if pa.types.is_integer(array.type):
        return _plain_text(array)
    if not pa.types.is_decimal(array.type):
        return _text_of_any(array)
    scale = array.type.scale
    if 0 <= scale <= _MAX_PLAIN_SCALE:
        return _plain_text(array)
    negative, digits = _decimal_digits(array)
    digits = pc.ascii_lpad(digits, scale + 1, "0")
    return [
        pc.if_else(negative, "-", ""),
        pc.utf8_slice_codeunits(digits, 0, -scale),
        _constant(b"."),
        pc.utf8_slice_codeunits(digits, -scale),
    ]


def _decimal_digits(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the signs of decimals, true for negative ones, and their digits without the point."""
    if array.type.scale < 0:
        raise pa.ArrowNotImplementedError("a decimal with a negative scale")
    wide = pa.types.is_decimal256(array.type)
    integers = pa.decimal256(76, 0) if wide else pa.decimal128(38, 0)
    unscaled = pa.Array.from_buffers(integers, len(array), array.buffers(), offset=array.offset)
    texts = unscaled.cast(pa.string()).fill_null("0")
    return pc.starts_with(texts, "-"), pc.ascii_ltrim(texts, "-")


def _numeric_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format: a header, and groups of four decimal digits.

    Header: number of groups, weight of the first one in powers of 10,000, sign, digits after the
    point. Groups of zeros at both ends are left out.
    """
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    if not pa.types.is_decimal(array.type):
        raise pa.ArrowNotImplementedError(f"numeric from {array.type}")
    scale = array.type.scale
    negative, digits = _decimal_digits(array)
    longest = pc.max(pc.binary_length(digits)).as_py() or 0
    whole_groups = -(-max(longest - scale, 0) // 4)
    groups = whole_groups + -(-scale // 4)
    if groups == 0:
        groups = whole_groups = 1
    width = 4 * whole_groups + scale
    padded = pc.ascii_lpad(digits, width, "0")
    codes = np.frombuffer(padded.buffers()[2], np.uint8)[: len(array) * width]
    numbers = np.zeros((len(array), 4 * groups), np.int16)
    numbers[:, :width] = codes.reshape(-1, width) - ord("0")
    values = numbers.reshape(-1, groups, 4) @ _GROUP_WEIGHTS
    used = values != 0
    first = used.argmax(axis=1)
    end = np.where(used.any(axis=1), groups - used[:, ::-1].argmax(axis=1), first)
    place = np.arange(groups)
    keep = (place >= first[:, None]) & (place < end[:, None])
    header = np.empty((len(array), 4), ">u2")
    header[:, 0] = end - first
    header[:, 1] = np.where(end > first, whole_groups - 1 - first, 0).astype(np.int16).view("u2")
    header[:, 2] = np.where(_filled(negative), _NUMERIC_NEGATIVE, 0)
    header[:, 3] = scale
    return [_fixed(header), _masked_rows(values.astype(">i2"), keep)]


# bytea, uuid


def _bytea_text(array: pa.Array) -> list[Piece]:
    offsets = _offsets(array)
    start, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    content = np.frombuffer(data, np.uint8)[start:end] if end > start else np.empty(0, np.uint8)
    return [_constant(b"\\x"), _binary_array((offsets - start) * 2, _HEX_PAIRS[content])]


def _uuid_text(array: pa.Array) -> list[Piece]:
    if not pa.types.is_fixed_size_binary(array.type):
        return _text_of_any(array)
    texts = (None if one is None else one.hex() for one in array.to_pylist())
    dashed = [
        None if one is None else f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"
        for one in texts
    ]
    return [pa.array(dashed, pa.string())]


def _uuid_binary(array: pa.Array) -> list[Piece]:
    if pa.types.is_fixed_size_binary(array.type):
        return [array.cast(_BINARY)]
    try:
        values = [
            None if one is None else bytes.fromhex(one.replace("-", ""))
            for one in array.cast(pa.string()).to_pylist()
        ]
    except ValueError as error:
        raise FormatError(CANNOT_COERCE, f"not a uuid: {error}") from None
    return [pa.array(values, _BINARY)]


# Dates and times


def _date_text(array: pa.Array) -> list[Piece]:
    text = array.cast(pa.string())
    days = _filled(array.view(pa.int32()))
    differs = (days < _YEAR_1_DAYS) | (days >= _YEAR_10000_DAYS)
    if differs.any():
        text = _replaced(text, differs, [_date_text_of(int(day)) for day in days[differs]])
    return [text]


def _date_binary(array: pa.Array) -> list[Piece]:
    days = _filled(array.view(pa.int32())).astype(np.int64)
    shifted = days - POSTGRES_EPOCH_DAYS
    shifted[days >= _INT32_MAX] = _INT32_MAX
    shifted[days <= -_INT32_MAX] = -_INT32_MAX - 1
    return [_fixed(np.maximum(shifted, -_INT32_MAX - 1).astype(">i4"))]


def _time_text(array: pa.Array) -> list[Piece]:
    text = _without_trailing_zeros(array.cast(pa.string()))
    differs = _filled(array.view(pa.int64())) >= DAY_US
    if differs.any():
        text = _replaced(text, differs, ["24:00:00"] * int(differs.sum()))
    return [text]


def _time_binary(array: pa.Array) -> list[Piece]:
    return _big_endian(array.view(pa.int64()))


def _timestamp_text(array: pa.Array) -> list[Piece]:
    return _timestamp_pieces(array, "")


def _timestamptz_text(array: pa.Array) -> list[Piece]:
    return _timestamp_pieces(array, "+00")


def _timestamp_pieces(array: pa.Array, zone: str) -> list[Piece]:
    text = _without_trailing_zeros(array.cast(pa.string()))
    moments = _filled(array.view(pa.int64()))
    differs = (moments < _YEAR_1_DAYS * DAY_US) | (moments >= _YEAR_10000_DAYS * DAY_US)
    if not differs.any():
        return [text, _constant(zone.encode())] if zone else [text]
    if zone:
        text = pc.binary_join_element_wise(text, zone, "")
    texts = [_timestamp_text_of(int(moment), zone) for moment in moments[differs]]
    return [_replaced(text, differs, texts)]


def _without_trailing_zeros(text: pa.Array) -> pa.Array:
    """Return the text of times with six digits after the point, without zeros at the end."""
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def _timestamp_binary(array: pa.Array) -> list[Piece]:
    moments = _filled(array.view(pa.int64()))
    shifted = np.where(moments > -_INT64_MAX + POSTGRES_EPOCH_US, moments - POSTGRES_EPOCH_US, 0)
    shifted[moments == _INT64_MAX] = _INT64_MAX
    shifted[moments <= -_INT64_MAX + POSTGRES_EPOCH_US] = -_INT64_MAX - 1
    return [_fixed(shifted.astype(">i8"))]


def _date_text_of(day: int) -> str:
    """Return the text of a date, given in days since 1970: any year, or infinity."""
    if abs(day) >= _INT32_MAX:
        return "infinity" if day > 0 else "-infinity"
    date, era = _civil(day)
    return date + era


def _timestamp_text_of(moment: int, zone: str) -> str:
    """Return the text of a timestamp, given in microseconds since 1970."""
    if abs(moment) >= _INT64_MAX:
        return "infinity" if moment > 0 else "-infinity"
    day, rest = divmod(moment, DAY_US)
    date, era = _civil(day)
    return f"{date} {clock_text(rest)}{zone}{era}"


def clock_text(microseconds: int) -> str:
    """Return a time of day, or a duration, as hours, minutes and seconds."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _civil(day: int) -> tuple[str, str]:
    """Return the date of a day since 1970 in the proleptic Gregorian calendar, and the era.

    Python's own dates end at the years 1 and 9999. Algorithm: Howard Hinnant, "chrono-Compatible
    Low-Level Date Algorithms", civil_from_days.
    """
    era, in_era = divmod(day + 719_468, 146_097)
    year_of_era = (in_era - in_era // 1460 + in_era // 36_524 - in_era // 146_096) // 365
    day_of_year = in_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month_day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + 400 * era + (month <= 2)
    if year > 0:
        return f"{year:04}-{month:02}-{month_day:02}", ""
    return f"{1 - year:04}-{month:02}-{month_day:02}", " BC"


def _interval_fields(array: pa.Array) -> np.ndarray:
    """Return months, days and nanoseconds of intervals."""
    data = array.buffers()[1]
    dtype = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def _interval_text(array: pa.Array) -> list[Piece]:
    texts = [
        _interval_text_of(months, days, nanoseconds // 1000)
        for months, days, nanoseconds in _interval_fields(array).tolist()
    ]
    return [pa.array(texts, pa.string())]


def _interval_binary(array: pa.Array) -> list[Piece]:
    fields = _interval_fields(array)
    out = np.empty(len(array), np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")]))
    out["us"] = fields["nanoseconds"] // 1000
    out["days"] = fields["days"]
    out["months"] = fields["months"]
    return [_fixed(out)]


def _interval_text_of(months: int, days: int, microseconds: int) -> str:
    """Return the text of an interval in the style "postgres" (EncodeInterval)."""
    years = int(months / 12)
    parts: list[str] = []
    before = False  # the part before is negative, so that a positive one needs its sign
    for value, unit in ((years, "year"), (months - 12 * years, "mon"), (days, "day")):
        if value:
            plus = "+" if before and value > 0 else ""
            parts.append(f"{plus}{value} {unit}{'' if value == 1 else 's'}")
            before = value < 0
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else "+" if before else ""
        parts.append(sign + clock_text(abs(microseconds)))
    return " ".join(parts)


# Arrays and records


def _array_text(array: pa.Array, element: ColumnFormat) -> list[Piece]:
    """Convert lists to the text of arrays: {1,NULL,"a b"}, {{1,2},{3,4}}."""
    shape = _shape(array)
    texts = _quoted_texts(shape.elements, element)
    for offsets in reversed(shape.offsets[1:]):
        texts = pc.binary_join_element_wise("{", _joined_lists(offsets, texts, ","), "}", "")
    joined = _joined_lists(shape.offsets[0], texts, ",")
    if len(shape.offsets) > 1:
        joined = _replaced(joined, shape.is_empty, [""] * int(shape.is_empty.sum()))
    return [_constant(b"{"), joined, _constant(b"}")]


def _vector_text(array: pa.Array) -> list[Piece]:
    """Convert lists to the text of int2vector and oidvector: 1 2 3."""
    if not is_list(array.type):
        return _text_of_any(array)
    offsets, values = _flattened(array)
    return [_joined_lists(offsets, _quoted_texts(values, ColumnFormat(INT8)), " ")]


def _quoted_texts(values: pa.Array, element: ColumnFormat) -> pa.Array:
    """Return elements of arrays as they are in the text of an array."""
    text = _joined_with_nulls(column_pieces(values, element)).cast(pa.string())
    quoted = pc.match_substring_regex(text, _QUOTED_ELEMENT)
    if pc.any(quoted).as_py():
        text = pc.if_else(quoted, _in_quotes(text, r"\\\1"), text)
    return text.fill_null("NULL")


def _joined_lists(offsets: np.ndarray, texts: pa.Array, separator: str) -> pa.Array:
    """Return the elements of each list as one text, by the offsets of lists in elements."""
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts)
    return pc.binary_join(lists, separator)


def _in_quotes(text: pa.Array, escape: str) -> pa.Array:
    """Return texts in quotes, with quotes and backslashes in them escaped."""
    return pc.binary_join_element_wise(
        '"', pc.replace_substring_regex(text, r'(["\\])', escape), '"', ""
    )


def _joined_with_nulls(pieces: Sequence[Piece]) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def _flattened(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return the offsets of lists, and the elements of all of them; a null list is empty."""
    values = array.flatten()
    if len(values) > MAX_ENCODED_ELEMENTS:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, f"arrays of {len(values)} elements are too long")
    lengths = _filled(pc.list_value_length(array))
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, values


class _Shape(NamedTuple):
    """The shapes of arrays of one or more dimensions.

    Attributes:
        offsets: for each dimension, the offsets of lists in those of the next one, or in elements.
        lengths: for each dimension, the lengths of all arrays.
        element_offsets: the offsets of arrays in elements.
        elements: the elements of all arrays.
    """

    offsets: list[np.ndarray]
    lengths: list[np.ndarray]
    element_offsets: np.ndarray
    elements: pa.Array

    @property
    def is_empty(self) -> np.ndarray:
        """Whether arrays have no element; then they have no dimension."""
        empty: np.ndarray = np.diff(self.element_offsets) == 0
        return empty


def _shape(array: pa.Array) -> _Shape:
    """Return the shapes of lists, or of lists of lists, as arrays.

    Raises:
        FormatError: the lists in a list differ in length.
    """
    starts, values = _flattened(array)
    offsets, lengths = [starts], [np.diff(starts)]
    while is_list(values.type):
        inner, elements = _flattened(values)
        length = np.zeros(len(array), inner.dtype)
        filled = np.diff(starts) > 0
        length[filled] = np.diff(inner)[starts[:-1][filled]]
        if values.null_count or (np.diff(inner) != np.repeat(length, np.diff(starts))).any():
            raise FormatError(
                ARRAY_SUBSCRIPT_ERROR,
                "multidimensional arrays must have sub-arrays with matching dimensions",
            )
        offsets.append(inner)
        lengths.append(length)
        starts, values = inner[starts], elements
    return _Shape(offsets, lengths, starts, values)


def _array_binary(array: pa.Array, element: ColumnFormat, lower_bound: int = 1) -> list[Piece]:
    """Convert lists to the binary format of arrays.

    Header: dimensions, whether there are NULLs, type of elements; number of elements and lower
    bound of each dimension. An empty array has no dimension, so that its header ends with the type.
    """
    shape = _shape(array)
    offsets, values = shape.element_offsets, shape.elements
    dimensions = len(shape.lengths)
    pieces = column_pieces(values, element)
    nulls_before = np.zeros(len(values) + 1, np.int32)
    np.cumsum(_filled(values.is_null()), out=nulls_before[1:])
    header = np.empty((len(array), 3 + 2 * dimensions), ">i4")
    header[:, 0] = np.where(shape.is_empty, 0, dimensions)
    header[:, 1] = np.diff(nulls_before[offsets]) > 0
    header[:, 2] = element.type_oid
    for dimension, length in enumerate(shape.lengths):
        header[:, 3 + 2 * dimension] = length
    header[:, 4::2] = lower_bound
    keep = np.ones(header.shape, bool)
    keep[shape.is_empty, 3:] = False
    if len(values) == 0:
        return [_masked_rows(header, keep)]
    elements = _joined([_fixed(_lengths(pieces).astype(">i4")), *pieces])
    ends = _offsets(elements)
    return [
        _masked_rows(header, keep),
        _binary_array(ends[offsets], elements.buffers()[2]),  # the bytes of neighbours are one run
    ]


def _vector_binary(element: int) -> Converter:
    """Return the converter for int2vector or oidvector, whose lower bound is 0."""
    return lambda array: _array_binary(array, ColumnFormat(element, binary=True), 0)


def _record_text(array: pa.Array) -> list[Piece]:
    """Convert structs to the text of rows: (1,"a b",)."""
    if not pa.types.is_struct(array.type):
        return _text_of_any(array)
    fields = []
    for child in array.flatten():
        column = ColumnFormat(oid_of_arrow_type(child.type))
        text = _joined_with_nulls(column_pieces(child, column)).cast(pa.string())
        quoted = pc.match_substring_regex(text, _QUOTED_FIELD)
        fields.append(pc.if_else(quoted, _in_quotes(text, r"\1\1"), text).fill_null(""))
    commas = chain.from_iterable((_constant(b","), field) for field in fields)
    pieces: list[Piece] = list(commas)[1:]
    return [_constant(b"("), *pieces, _constant(b")")]


def _record_binary(array: pa.Array) -> list[Piece]:
    """Convert structs to the binary format of rows: a count, then type, length and value each."""
    if not pa.types.is_struct(array.type):
        raise pa.ArrowNotImplementedError(f"record from {array.type}")
    children = array.flatten()
    pieces: list[Piece] = [_constant(len(children).to_bytes(4, "big"))]
    for child in children:
        oid = oid_of_arrow_type(child.type)
        _, prefixed = _prefixed_columns(len(child), [child], [ColumnFormat(oid, binary=True)])
        filled = [pc.fill_null(piece, b"") for piece in prefixed]
        pieces += [_constant(oid.to_bytes(4, "big")), *filled]
    return pieces


def _constant(value: bytes) -> Piece:
    return pa.scalar(value, _BINARY)


_TEXT_FORMAT: Final = _TypeFormat(None, _text_of_any, _text_of_any)


def _catalogue_id(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of regclass and the like: the OID."""
    return _big_endian(_cast(array, pa.uint32()))


_NAMED_OBJECT_FORMAT: Final = _TypeFormat(None, _text_of_any, _catalogue_id)
_UNSIGNED_FORMAT: Final = _TypeFormat(pa.uint32(), _plain_text, _big_endian)

_FORMATS: Final[Mapping[int, _TypeFormat]] = MappingProxyType(
    {
        BOOL: _TypeFormat(pa.bool_(), _bool_text, _bool_binary),
        INT2: _TypeFormat(pa.int16(), _plain_text, _big_endian),
        INT4: _TypeFormat(pa.int32(), _plain_text, _big_endian),
        INT8: _TypeFormat(pa.int64(), _plain_text, _big_endian),
        OID: _UNSIGNED_FORMAT,
        XID: _UNSIGNED_FORMAT,
        CID: _UNSIGNED_FORMAT,
        FLOAT4: _TypeFormat(pa.float32(), _float4_text, _big_endian),
        FLOAT8: _TypeFormat(pa.float64(), _float8_text, _big_endian),
        NUMERIC: _TypeFormat(None, _numeric_text, _numeric_binary),
        TEXT: _TEXT_FORMAT,
        VARCHAR: _TEXT_FORMAT,
        BPCHAR: _TEXT_FORMAT,
        NAME: _TEXT_FORMAT,
        CHAR: _TEXT_FORMAT,
        UNKNOWN: _TEXT_FORMAT,
        TID: _TEXT_FORMAT,
        JSON: _TypeFormat(None, _json_text, _json_text),
        JSONB: _TypeFormat(None, _json_text, _jsonb_binary),
        BYTEA: _TypeFormat(_BINARY, _bytea_text, _text_of_any),
        UUID: _TypeFormat(None, _uuid_text, _uuid_binary),
        DATE: _TypeFormat(pa.date32(), _date_text, _date_binary),
        TIME: _TypeFormat(pa.time64("us"), _time_text, _time_binary),
        TIMESTAMP: _TypeFormat(pa.timestamp("us"), _timestamp_text, _timestamp_binary),
        TIMESTAMPTZ: _TypeFormat(pa.timestamp("us"), _timestamptz_text, _timestamp_binary),
        INTERVAL: _TypeFormat(pa.month_day_nano_interval(), _interval_text, _interval_binary),
        REGPROC: _NAMED_OBJECT_FORMAT,
        REGPROCEDURE: _NAMED_OBJECT_FORMAT,
        REGCLASS: _NAMED_OBJECT_FORMAT,
        REGTYPE: _NAMED_OBJECT_FORMAT,
        REGNAMESPACE: _NAMED_OBJECT_FORMAT,
        REGROLE: _NAMED_OBJECT_FORMAT,
        INT2VECTOR: _TypeFormat(None, _vector_text, _vector_binary(INT2)),
        OIDVECTOR: _TypeFormat(None, _vector_text, _vector_binary(OID)),
        RECORD: _TypeFormat(None, _record_text, _record_binary),
        VOID: _TypeFormat(None, _void, _void),
    }
)
"""The formats of all types but arrays, which follow from those of their elements."""
