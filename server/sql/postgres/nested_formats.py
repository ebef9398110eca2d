"""Arrays, vectors and records in PostgreSQL's text and binary formats.

Their elements are columns by themselves, which a `ColumnConverter` converts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.sql.postgres.errors import FormatError
from server.sql.postgres.pieces import (
    EMPTY,
    ColumnFormat,
    Converter,
    Piece,
    binary_array,
    constant,
    fixed_width,
    join_pieces,
    masked_rows,
    offsets_of,
    replace_texts,
    to_numpy,
    value_lengths,
)
from server.sql.postgres.types import INT8, is_list, oid_of_arrow_type
from server.sql.sqlstate import ARRAY_SUBSCRIPT_ERROR, PROGRAM_LIMIT_EXCEEDED

MAX_ENCODED_ELEMENTS: Final = 20_000_000
"""Elements of all arrays of a column that are encoded in one go."""

# Elements of an array that are quoted: empty, the word NULL, or with a character of the syntax.
_QUOTED_ELEMENT: Final = r'^$|^(?i:null)$|[{}",\\\s\v]'
_QUOTED_FIELD: Final = r'^$|[(),"\\\s\v]'

ColumnConverter: TypeAlias = Callable[[pa.Array, ColumnFormat], list[Piece]]
"""Converts a column to pieces; see `server.sql.postgres.formats.column_pieces`."""


def array_text(convert: ColumnConverter, array: pa.Array, element: ColumnFormat) -> list[Piece]:
    """Convert lists to the text of arrays: {1,NULL,"a b"}, {{1,2},{3,4}}."""
    shape = _shape(array)
    texts = _quoted_texts(convert, shape.elements, element)
    for offsets in reversed(shape.offsets[1:]):
        texts = pc.binary_join_element_wise("{", _joined_lists(offsets, texts, ","), "}", "")
    joined = _joined_lists(shape.offsets[0], texts, ",")
    if len(shape.offsets) > 1:
        joined = replace_texts(joined, shape.is_empty, [""] * int(shape.is_empty.sum()))
    return [constant(b"{"), joined, constant(b"}")]


def vector_text(convert: ColumnConverter, array: pa.Array) -> list[Piece]:
    """Convert lists to the text of int2vector and oidvector: 1 2 3."""
    offsets, values = _flattened(array)
    return [_joined_lists(offsets, _quoted_texts(convert, values, ColumnFormat(INT8)), " ")]


def _quoted_texts(convert: ColumnConverter, values: pa.Array, element: ColumnFormat) -> pa.Array:
    """Return elements of arrays as they are in the text of an array."""
    text = _joined_with_nulls(convert(values, element)).cast(pa.string())
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
    return pc.binary_join_element_wise(*pieces, EMPTY)


def _flattened(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return the offsets of lists, and the elements of all of them; a null list is empty."""
    values = array.flatten()
    if len(values) > MAX_ENCODED_ELEMENTS:
        raise FormatError(PROGRAM_LIMIT_EXCEEDED, f"arrays of {len(values)} elements are too long")
    lengths = to_numpy(pc.list_value_length(array))
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


def array_binary(
    convert: ColumnConverter, array: pa.Array, element: ColumnFormat, lower_bound: int = 1
) -> list[Piece]:
    """Convert lists to the binary format of arrays.

    Header: dimensions, whether there are NULLs, type of elements; number of elements and lower
    bound of each dimension. An empty array has no dimension, so that its header ends with the type.
    """
    shape = _shape(array)
    offsets, values = shape.element_offsets, shape.elements
    dimensions = len(shape.lengths)
    pieces = convert(values, element)
    nulls_before = np.zeros(len(values) + 1, np.int32)
    np.cumsum(to_numpy(values.is_null()), out=nulls_before[1:])
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
        return [masked_rows(header, keep)]
    elements = join_pieces([fixed_width(value_lengths(pieces).astype(">i4")), *pieces])
    ends = offsets_of(elements)
    return [
        masked_rows(header, keep),
        binary_array(ends[offsets], elements.buffers()[2]),  # the bytes of neighbours are one run
    ]


def vector_binary(convert: ColumnConverter, element: int) -> Converter:
    """Return the converter for int2vector or oidvector, whose lower bound is 0."""
    return lambda array: array_binary(convert, array, ColumnFormat(element, binary=True), 0)


def record_text(convert: ColumnConverter, array: pa.Array) -> list[Piece]:
    """Convert structs to the text of rows: (1,"a b",)."""
    fields = []
    for child in array.flatten():
        column = ColumnFormat(oid_of_arrow_type(child.type))
        text = _joined_with_nulls(convert(child, column)).cast(pa.string())
        quoted = pc.match_substring_regex(text, _QUOTED_FIELD)
        fields.append(pc.if_else(quoted, _in_quotes(text, r"\1\1"), text).fill_null(""))
    commas = chain.from_iterable((constant(b","), field) for field in fields)
    pieces: list[Piece] = list(commas)[1:]
    return [constant(b"("), *pieces, constant(b")")]


def record_binary(convert: ColumnConverter, array: pa.Array) -> list[Piece]:
    """Convert structs to the binary format of rows: a count, then type, length and value each."""
    if not pa.types.is_struct(array.type):
        raise pa.ArrowNotImplementedError(f"record from {array.type}")
    children = array.flatten()
    pieces: list[Piece] = [constant(len(children).to_bytes(4, "big"))]
    for child in children:
        oid = oid_of_arrow_type(child.type)
        values = convert(child, ColumnFormat(oid, binary=True))
        prefix = fixed_width(value_lengths(values).astype(">i4"))
        filled = [pc.fill_null(piece, b"") for piece in (prefix, *values)]
        pieces += [constant(oid.to_bytes(4, "big")), *filled]
    return pieces
