"""Columns as pieces: arrays of bytes that make up the values of a column when they are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BINARY: Final = pa.binary()
# Built from buffers: pa.scalar() imports pandas where it is installed, see columns.warm_up().
EMPTY: Final = pa.BinaryArray.from_buffers(
    BINARY, 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")]
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


def as_binary(piece: Piece) -> Piece:
    """Return a piece as one of the type binary."""
    if isinstance(piece, pa.BinaryArray | pa.BinaryScalar):
        return piece
    if isinstance(piece, pa.StringArray):
        return piece.view(BINARY)
    return piece.cast(BINARY)


def with_nulls(piece: Piece, array: pa.Array) -> Piece:
    """Return a piece with null where an array is null."""
    if isinstance(piece, pa.Array) and piece.null_count == array.null_count:
        return piece
    return pc.if_else(array.is_valid(), piece, pa.scalar(None, BINARY))


def value_lengths(pieces: Sequence[Piece]) -> np.ndarray:
    """Return the lengths of values made of pieces of the type binary; -1 for NULL."""
    first = pieces[0]
    offsets = offsets_of(first)
    total: np.ndarray = offsets[1:] - offsets[:-1]
    for piece in pieces[1:]:
        if isinstance(piece, pa.Array):
            offsets = offsets_of(piece)
            total += offsets[1:] - offsets[:-1]
        else:
            total += len(piece.as_buffer())
    if first.null_count:
        total[to_numpy(first.is_null())] = -1
    return total


def join_pieces(pieces: Sequence[Piece]) -> pa.Array:
    """Return the values made of pieces, b"" in place of NULL."""
    return pc.binary_join_element_wise(
        *pieces, EMPTY, null_handling="replace", null_replacement=b""
    )


def content_of(array: pa.Array) -> bytes:
    """Return the values of a binary array in one."""
    offsets = offsets_of(array)
    data = memoryview(array.buffers()[2])
    return bytes(data[int(offsets[0]) : int(offsets[-1])])


def offsets_of(array: pa.Array) -> np.ndarray:
    """Return the offsets of a binary array: one more than values."""
    whole = np.frombuffer(array.buffers()[1], np.int32)
    return whole[array.offset : array.offset + len(array) + 1]


def fixed_width(values: np.ndarray) -> pa.Array:
    """Return the bytes of each row of a numpy array as a binary array."""
    rows = len(values)
    width = values.nbytes // rows if rows else 0
    return binary_array(np.arange(rows + 1, dtype=np.int32) * np.int32(width), values)


def binary_array(offsets: np.ndarray, data: np.ndarray | pa.Buffer) -> pa.Array:
    """Return a binary array of offsets and content."""
    content = data if isinstance(data, pa.Buffer) else pa.py_buffer(np.ascontiguousarray(data))
    starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(BINARY, len(offsets) - 1, [None, starts, content])


def masked_rows(values: np.ndarray, keep: np.ndarray) -> pa.Array:
    """Return of each row of a matrix only the items that a mask of the same shape keeps."""
    counts = np.count_nonzero(keep, axis=1)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(counts * values.itemsize, out=offsets[1:])
    return binary_array(offsets, values[keep])


def to_numpy(array: pa.Array) -> np.ndarray:
    """Return a primitive array for numpy, with 0 in place of null."""
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def replace_texts(text: pa.Array, where: np.ndarray, values: Sequence[str]) -> pa.Array:
    """Return texts with some replaced, in order; nulls stay."""
    return pc.replace_with_mask(text, pa.array(where), pa.array(values, text.type))


def constant(value: bytes) -> Piece:
    """Return a value that is the same for all rows."""
    return pa.scalar(value, BINARY)


def big_endian(array: pa.Array) -> list[Piece]:
    """Convert integers or floats to the binary format."""
    values = to_numpy(array)
    return [fixed_width(values.astype(values.dtype.newbyteorder(">")))]
