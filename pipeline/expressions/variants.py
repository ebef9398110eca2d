"""Encodes values of expressions as Spark's VARIANTs, which have their own type in every row.

A VARIANT is two binary fields: a dictionary of names (empty for scalars and arrays) and the value,
whose first byte is its type. Source: Apache Parquet, Variant Binary Encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from server.message_types.base import Value
from server.util.encoding import text_to_bytes

_NO_NAMES: Final = b"\x01\x00\x00"
_NULL: Final = b"\x00"
_TRUE, _FALSE = b"\x04", b"\x08"
_INT64: Final = 6 << 2
_DOUBLE: Final = 7 << 2
_DECIMAL: Final = 10 << 2
_BINARY: Final = 15 << 2
_STRING: Final = 16 << 2
_SHORT_STRING: Final = 1
_MAX_SHORT_LENGTH: Final = 63
_ARRAY: Final = 0b000_1_11_11
"""An array with four bytes each for its number of elements and its offsets."""
_FITS: Final = range(-(2**63), 2**63)

_FIELDS: Final = (
    pa.field("value", pa.binary(), nullable=False),
    pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
)


def variants(values: Sequence[Value]) -> pa.Array:
    """Return an Arrow array that Spark accepts as a column of VARIANTs.

    Args:
        values: a value for each row; NULL becomes a VARIANT null.
    """
    encoded = pa.array([encode(value) for value in values], pa.binary())
    names = pa.array([_NO_NAMES] * len(values), pa.binary())
    return pa.StructArray.from_arrays([encoded, names], fields=list(_FIELDS))


def encode(value: Value) -> bytes:
    """Return the value part of a VARIANT.

    Integers beyond 64 bits become decimals, texts that are not UTF-8 become binary.
    """
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        if value in _FITS:
            return struct.pack("<Bq", _INT64, value)
        return struct.pack("<BB", _DECIMAL, 0) + value.to_bytes(16, "little", signed=True)
    if isinstance(value, float):
        return struct.pack("<Bd", _DOUBLE, value)
    if isinstance(value, str):
        return _text(text_to_bytes(value))
    return _array([encode(item) for item in value])


def _text(octets: bytes) -> bytes:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return struct.pack("<BI", _BINARY, len(octets)) + octets
    if len(octets) <= _MAX_SHORT_LENGTH:
        return bytes((len(octets) << 2 | _SHORT_STRING,)) + octets
    return struct.pack("<BI", _STRING, len(octets)) + octets


def _array(items: Sequence[bytes]) -> bytes:
    ends = [0]
    for item in items:
        ends.append(ends[-1] + len(item))
    head = struct.pack(f"<BI{len(ends)}I", _ARRAY, len(items), *ends)
    return head + b"".join(items)
