"""Columns of Arrow batches in PostgreSQL's text and binary formats, and rows made from them.

    DataRow: "D", length of the rest (4 bytes), number of columns (2), then for each column
             the length of its value (4; -1 for NULL) and the value

Nothing here runs once per value, except for rare ones, and for a few rows (`few_rows`): a column is
converted by operations of Arrow and numpy to *pieces*, arrays of bytes that make up its values when
they are joined. Then one operation joins the heads of rows, the lengths, and the pieces of all
columns.

    numeric, binary:  [8 bytes of header, 2 bytes per digit group]
    timestamptz:      ["2026-11-29 21:00:00", "+00"]

Every type has the text that PostgreSQL prints with its default settings: floats in their shortest
form that reads back, timestamps in ISO style without trailing zeros, intervals in the style
"postgres", bytea in hex. Times with a zone are in UTC.
Source: PostgreSQL 16, src/backend/utils/adt: the functions *out and *send of each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.sql.postgres import types
from server.sql.postgres.errors import FormatError
from server.sql.postgres.few_rows import encode_few_rows
from server.sql.postgres.nested_formats import (
    array_binary,
    array_text,
    record_binary,
    record_text,
    vector_binary,
    vector_text,
)
from server.sql.postgres.pieces import (
    BINARY,
    EMPTY,
    ColumnFormat,
    Converter,
    Piece,
    as_binary,
    big_endian,
    binary_array,
    constant,
    content_of,
    fixed_width,
    join_pieces,
    masked_rows,
    offsets_of,
    replace_texts,
    to_numpy,
    value_lengths,
    with_nulls,
)
from server.sql.postgres.time_formats import (
    date_binary,
    date_text,
    interval_binary,
    interval_text,
    interval_text_of,
    time_binary,
    time_text,
    timestamp_binary,
    timestamp_text,
    timestamptz_text,
)
from server.sql.postgres.types import TYPES, is_list, is_nested, oid_of_arrow_type
from server.sql.sqlstate import (
    CANNOT_COERCE,
    FEATURE_NOT_SUPPORTED,
    NUMERIC_VALUE_OUT_OF_RANGE,
    PROGRAM_LIMIT_EXCEEDED,
)

MAX_ENCODED_BATCH: Final = 128 * 1024 * 1024
"""Bytes of an Arrow batch that are encoded in one go: offsets in Arrow's arrays have 31 bits."""
MAX_ENCODED_ROWS: Final = 1_000_000
MAX_ENCODED_SIZE: Final = 1024 * 1024 * 1024
"""Bytes of messages that are encoded in one go; so are these offsets."""

_ROW_HEAD: Final = np.dtype([("type", "S1"), ("length", ">i4"), ("columns", ">u2")])

_MAX_PLAIN_SCALE: Final = 6  # Arrow prints decimals with more digits after the point as 0E-10
_NUMERIC_NEGATIVE: Final = 0x4000
_GROUP_WEIGHTS: Final = np.array([1000, 100, 10, 1], np.int16)
_HEX_PAIRS: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), ">u2")


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
    few = encode_few_rows(batch, columns)
    if few is not None and len(few) <= MAX_ENCODED_SIZE:
        return few
    if is_large(batch):
        return _encode_halves(batch, columns)
    lengths, pieces = _prefixed_columns(rows, batch.columns, columns)
    if lengths.sum() > MAX_ENCODED_SIZE:
        return _encode_halves(batch, columns)
    head = np.empty(rows, _ROW_HEAD)
    head["type"] = b"D"
    head["length"] = lengths + 6
    head["columns"] = len(columns)
    return content_of(join_pieces([fixed_width(head), *pieces]))


def _encode_halves(batch: pa.RecordBatch, columns: Sequence[ColumnFormat]) -> bytes:
    """Encode a batch in two parts."""
    half = batch.num_rows // 2
    if half == 0:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, f"a row of {batch.nbytes} bytes is too long")
    parts = (batch.slice(0, half), batch.slice(half))
    return b"".join(encode_data_rows(part, columns) for part in parts)


def is_large(batch: pa.RecordBatch) -> bool:
    """Return True for a batch that is too large to be encoded in one go."""
    if batch.num_rows > MAX_ENCODED_ROWS:
        return True
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
        lengths[number] = value_lengths(values[-1])
    prefixes = fixed_width(lengths.reshape(-1))
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
        return [array.cast(BINARY)]
    try:
        pieces = _converter(column, array.type)(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        type_name = TYPES[column.type_oid].name if column.type_oid in TYPES else "?"
        code = NUMERIC_VALUE_OUT_OF_RANGE if isinstance(error, pa.ArrowInvalid) else CANNOT_COERCE
        raise FormatError(code, f"a value does not fit the type {type_name}: {error}") from None
    if not isinstance(pieces[0], pa.Array):
        pieces.insert(0, pa.repeat(EMPTY, len(array)))
    if array.null_count == 0:
        return [as_binary(piece) for piece in pieces]
    return [with_nulls(as_binary(piece), array) for piece in pieces]


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
        to_array = array_binary if binary else array_text
        return lambda array: to_array(column_pieces, array, element)
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


# Text


def _text_of_any(array: pa.Array) -> list[Piece]:
    """Convert any array to the text of the type that it has by itself."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [array]
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return [array.cast(BINARY)]
    if pa.types.is_null(kind):
        return [array.cast(pa.string())]
    oid = oid_of_arrow_type(kind)
    if oid in (types.TEXT, types.BYTEA):
        return [array.cast(pa.string())]
    return column_pieces(array, ColumnFormat(oid))


def _json_text(array: pa.Array) -> list[Piece]:
    if not is_nested(array.type):
        return _text_of_any(array)
    values = array.to_pylist(maps_as_pydicts="lossy")
    try:
        texts = [None if value is None else _encode_json(value) for value in values]
    except (TypeError, ValueError) as error:
        raise FormatError(CANNOT_COERCE, f"a value has no types.JSON text: {error}") from None
    return [pa.array(texts, BINARY)]


def _json_default(value: object) -> object:
    """Encode values that JSON has no type for: intervals."""
    if isinstance(value, pa.MonthDayNano):
        return interval_text_of(value.months, value.days, value.nanoseconds // 1000)
    raise TypeError(type(value).__name__)


_encode_json: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_json_default).encode


def _jsonb_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of jsonb: the version 1, and the text."""
    return [constant(b"\x01"), *_json_text(array)]


def _void(array: pa.Array) -> list[Piece]:
    return [pa.repeat(EMPTY, len(array))]


# Booleans, integers, floats


def _bool_text(array: pa.Array) -> list[Piece]:
    return [pc.if_else(array, "t", "f")]


def _bool_binary(array: pa.Array) -> list[Piece]:
    return [pc.if_else(array, pa.scalar(b"\x01"), pa.scalar(b"\x00"))]


def _plain_text(array: pa.Array) -> list[Piece]:
    return [array.cast(pa.string())]


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
    values = to_numpy(array)
    sizes = np.abs(values)
    differs = ~((sizes < plain) & ((sizes >= 1e-4) | (sizes == 0)))
    if not differs.any():
        return text
    return replace_texts(
        text, differs, [_float_text_of(value, exponent) for value in values[differs]]
    )


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
        constant(b"."),
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
    header[:, 2] = np.where(to_numpy(negative), _NUMERIC_NEGATIVE, 0)
    header[:, 3] = scale
    return [fixed_width(header), masked_rows(values.astype(">i2"), keep)]


# bytea, uuid


def _bytea_text(array: pa.Array) -> list[Piece]:
    offsets = offsets_of(array)
    start, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    content = np.frombuffer(data, np.uint8)[start:end] if end > start else np.empty(0, np.uint8)
    return [constant(b"\\x"), binary_array((offsets - start) * 2, _HEX_PAIRS[content])]


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
        return [array.cast(BINARY)]
    try:
        values = [
            None if one is None else bytes.fromhex(one.replace("-", ""))
            for one in array.cast(pa.string()).to_pylist()
        ]
    except ValueError as error:
        raise FormatError(CANNOT_COERCE, f"not a uuid: {error}") from None
    return [pa.array(values, BINARY)]


# Vectors and records


def _vector_text(array: pa.Array) -> list[Piece]:
    return vector_text(column_pieces, array) if is_list(array.type) else _text_of_any(array)


def _record_text(array: pa.Array) -> list[Piece]:
    is_record = pa.types.is_struct(array.type)
    return record_text(column_pieces, array) if is_record else _text_of_any(array)


_TEXT_FORMAT: Final = _TypeFormat(None, _text_of_any, _text_of_any)


def _catalogue_id(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of regclass and the like: the OID."""
    return big_endian(_cast(array, pa.uint32()))


_NAMED_OBJECT_FORMAT: Final = _TypeFormat(None, _text_of_any, _catalogue_id)
_UNSIGNED_FORMAT: Final = _TypeFormat(pa.uint32(), _plain_text, big_endian)

_FORMATS: Final[Mapping[int, _TypeFormat]] = MappingProxyType(
    {
        types.BOOL: _TypeFormat(pa.bool_(), _bool_text, _bool_binary),
        types.INT2: _TypeFormat(pa.int16(), _plain_text, big_endian),
        types.INT4: _TypeFormat(pa.int32(), _plain_text, big_endian),
        types.INT8: _TypeFormat(pa.int64(), _plain_text, big_endian),
        types.OID: _UNSIGNED_FORMAT,
        types.XID: _UNSIGNED_FORMAT,
        types.CID: _UNSIGNED_FORMAT,
        types.FLOAT4: _TypeFormat(pa.float32(), _float4_text, big_endian),
        types.FLOAT8: _TypeFormat(pa.float64(), _float8_text, big_endian),
        types.NUMERIC: _TypeFormat(None, _numeric_text, _numeric_binary),
        types.TEXT: _TEXT_FORMAT,
        types.VARCHAR: _TEXT_FORMAT,
        types.BPCHAR: _TEXT_FORMAT,
        types.NAME: _TEXT_FORMAT,
        types.CHAR: _TEXT_FORMAT,
        types.UNKNOWN: _TEXT_FORMAT,
        types.TID: _TEXT_FORMAT,
        types.JSON: _TypeFormat(None, _json_text, _json_text),
        types.JSONB: _TypeFormat(None, _json_text, _jsonb_binary),
        types.BYTEA: _TypeFormat(BINARY, _bytea_text, _text_of_any),
        types.UUID: _TypeFormat(None, _uuid_text, _uuid_binary),
        types.DATE: _TypeFormat(pa.date32(), date_text, date_binary),
        types.TIME: _TypeFormat(pa.time64("us"), time_text, time_binary),
        types.TIMESTAMP: _TypeFormat(pa.timestamp("us"), timestamp_text, timestamp_binary),
        types.TIMESTAMPTZ: _TypeFormat(pa.timestamp("us"), timestamptz_text, timestamp_binary),
        types.INTERVAL: _TypeFormat(pa.month_day_nano_interval(), interval_text, interval_binary),
        types.REGPROC: _NAMED_OBJECT_FORMAT,
        types.REGPROCEDURE: _NAMED_OBJECT_FORMAT,
        types.REGCLASS: _NAMED_OBJECT_FORMAT,
        types.REGTYPE: _NAMED_OBJECT_FORMAT,
        types.REGNAMESPACE: _NAMED_OBJECT_FORMAT,
        types.REGROLE: _NAMED_OBJECT_FORMAT,
        types.INT2VECTOR: _TypeFormat(None, _vector_text, vector_binary(column_pieces, types.INT2)),
        types.OIDVECTOR: _TypeFormat(None, _vector_text, vector_binary(column_pieces, types.OID)),
        types.RECORD: _TypeFormat(None, _record_text, partial(record_binary, column_pieces)),
        types.VOID: _TypeFormat(None, _void, _void),
    }
)
"""The formats of all types but arrays, which follow from those of their elements."""
