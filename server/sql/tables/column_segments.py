"""Segments: the columns of several blocks of the record store as one, in the form that queries use.

A block of the record store is small, so that its update delays no one; a query over a million
records would spend most of its time on the number of blocks. So the columns of `SEGMENT_BLOCKS`
blocks are joined, and values that repeat are dictionary-encoded, as codes into the distinct values:
conditions are then decided once for each distinct value, and DuckDB groups by codes in half of the
time.

A column of the record store is never changed; an update replaces it. So a segment of the same
columns has the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from server.expressions.backends.columns import MixedColumn, NumberColumn, TextColumn
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import common_type, to_arrow, type_of_column

if TYPE_CHECKING:
    from server.expressions.backends.columns import Column
    from server.message_types.base import Value

SEGMENT_BLOCKS: Final = 16
"""Blocks of a segment: of 32,768 rows, from which on DuckDB gets no faster."""

_MAX_DISTINCT: Final = 4096
_MAX_SAMPLE_DISTINCT: Final = 1024
"""Distinct values of a segment, and of its first block, up to which they are listed."""

_MAX_TEXT_BYTES: Final = 32 * 1024 * 1024
"""Texts of a segment, beyond which they are not copied together."""

_NUMBERS: Final = (SqlType.BIGINT, SqlType.DOUBLE)

_VALUE_BYTES: Final = 10
"""Approximate memory of a value that is no text."""

_EXACT: Final = 2**53
"""The magnitude below which integers are doubles, exactly."""


@dataclass(frozen=True, slots=True)
class DictionaryColumn:
    """Values of which many are equal.

    Attributes:
        values: the distinct values, and NULL as the last one.
        codes: for each row the place of its value.
    """

    values: TextColumn | MixedColumn
    codes: NDArray[np.int16]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)


JoinedColumn: TypeAlias = NumberColumn | TextColumn | DictionaryColumn


class SegmentField:
    """The values of a field in the rows of a segment. It may be used by several threads.

    Args:
        blocks: the columns of its blocks.
        similar: the same field of another segment: if it has all of the distinct values, they are
            listed once for both, and conditions are decided once.

    Attributes:
        blocks: see above.
        column: the columns as one; None if their values are too different.
        type: the narrowest type that holds the values; None if all are NULL.
        size_bytes: the memory that it takes, approximately.
    """

    __slots__ = ("_arrays", "_numbers", "blocks", "column", "size_bytes", "type")

    def __init__(self, blocks: Sequence[Column], similar: SegmentField | None = None) -> None:
        self.blocks: Final = blocks
        self.column: Final[JoinedColumn | None] = _joined(
            blocks, None if similar is None else similar.column
        )
        self.type: Final = _type_of(self.column, blocks)
        self.size_bytes: Final = _size_bytes(self.column, sum(map(len, blocks)))
        self._arrays: dict[SqlType, pa.Array] = {}
        self._numbers: dict[SqlType, NDArray[np.generic] | None] = {}

    def is_of(self, blocks: Sequence[Column]) -> bool:
        """Return whether it has the values of the columns."""
        return len(blocks) == len(self.blocks) and all(map(is_, blocks, self.blocks))

    def array(self, sql_type: SqlType) -> pa.Array:
        """Return all rows as a type that holds them; texts perhaps as a dictionary."""
        array = self._arrays.get(sql_type)
        if array is None:
            array = self._converted(sql_type)
            if self.column is not None:  # else it may be much larger than `size_bytes`
                self._arrays[sql_type] = array
        return array

    def take(self, sql_type: SqlType, rows: NDArray[np.intp]) -> pa.Array:
        """Return some rows as a type that holds them; never as a dictionary."""
        array = self.array(sql_type)
        if isinstance(array, pa.DictionaryArray):
            return array.dictionary.take(array.indices.take(pa.array(rows)))
        return array.take(pa.array(rows))

    def numbers(self, sql_type: SqlType) -> NDArray[np.generic] | None:
        """Return all rows as numbers; None if they are others, or have NULL.

        NumPy takes a few of them in a tenth of the time of Arrow.
        """
        if sql_type not in self._numbers:
            self._numbers[sql_type] = None
            if isinstance(self.column, NumberColumn) and sql_type in _NUMBERS:
                array = self.array(sql_type)
                self._numbers[sql_type] = None if array.null_count else array.to_numpy()
        return self._numbers[sql_type]

    def _converted(self, sql_type: SqlType) -> pa.Array:
        column = self.column
        if column is None:
            return pa.concat_arrays([to_arrow(block, sql_type) for block in self.blocks])
        if not isinstance(column, DictionaryColumn):
            return to_arrow(column, sql_type)
        values = to_arrow(column.values, sql_type)
        if not pa.types.is_string(values.type) or values.null_count > 1 or not _is_unique(values):
            return values.take(pa.array(column.codes))
        null = len(values) - 1
        codes = pa.array(column.codes, mask=column.codes == null)
        return pa.DictionaryArray.from_arrays(codes, values.slice(0, null))


def _is_unique(values: pa.Array) -> bool:
    """Return whether values differ: values that are no UTF-8 may have become equal."""
    return len(values.unique()) == len(values)


def _type_of(column: JoinedColumn | None, blocks: Sequence[Column]) -> SqlType | None:
    if isinstance(column, DictionaryColumn):
        return type_of_column(column.values)
    if column is not None:
        return type_of_column(column)
    found: SqlType | None = None
    for block in blocks:
        found = common_type(found, type_of_column(block))
    return found


def _size_bytes(column: JoinedColumn | None, rows: int) -> int:
    if isinstance(column, TextColumn):
        return int(column.values.nbytes)
    if isinstance(column, DictionaryColumn) and isinstance(column.values, TextColumn):
        return int(column.codes.nbytes) + int(column.values.values.nbytes)
    return rows * _VALUE_BYTES


# ---- columns as one


def _joined(columns: Sequence[Column], similar: JoinedColumn | None) -> JoinedColumn | None:
    """Return columns as one; None if their values are too different, or too large to be copied."""
    kinds = {type(column) for column in columns if not _is_null(column)}
    if kinds == {NumberColumn}:
        return _joined_numbers(columns)
    if kinds == {TextColumn}:
        return _joined_texts(columns, similar)
    return _listed_values(columns)


def _is_null(column: Column) -> bool:
    """Return whether a column of any values has NULL only."""
    return isinstance(column, MixedColumn) and all(value is None for value in column.values)


def _joined_numbers(columns: Sequence[Column]) -> NumberColumn | None:
    numbers = [
        column
        if isinstance(column, NumberColumn)
        else NumberColumn(np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_))
        for column in columns
    ]
    if any(column.values.dtype != np.int64 for column in numbers):
        doubles = [_as_doubles(column) for column in numbers]
        numbers = [column for column in doubles if column is not None]
        if len(numbers) < len(doubles):
            return None
    if len(numbers) == 1:
        return numbers[0]
    valid = integers = None
    if any(column.valid is not None for column in numbers):
        valid = np.concatenate([column.valid_mask() for column in numbers])
    if any(column.integers is not None for column in numbers):
        integers = np.concatenate(
            [
                np.zeros(len(column), np.bool_) if column.integers is None else column.integers
                for column in numbers
            ]
        )
    return NumberColumn(np.concatenate([column.values for column in numbers]), valid, integers)


def _as_doubles(column: NumberColumn) -> NumberColumn | None:
    """Return a column of numbers as doubles; None if it has integers that are none."""
    if column.values.dtype != np.int64:
        return column
    present = column.valid_mask()
    if not present.any():
        return NumberColumn(column.values.astype(np.float64), column.valid)
    integers = column.values[present]
    if int(integers.min()) <= -_EXACT or int(integers.max()) >= _EXACT:
        return None
    return NumberColumn(column.values.astype(np.float64), column.valid, present)


def _joined_texts(
    columns: Sequence[Column], similar: JoinedColumn | None
) -> TextColumn | DictionaryColumn | None:
    arrays = [
        column.values if isinstance(column, TextColumn) else pa.nulls(len(column), pa.binary())
        for column in columns
    ]
    if sum(array.nbytes for array in arrays) > _MAX_TEXT_BYTES:
        return None
    texts = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    if len(arrays[0].unique()) > _MAX_SAMPLE_DISTINCT:
        return TextColumn(texts)
    if isinstance(similar, DictionaryColumn) and isinstance(similar.values, TextColumn):
        found = pc.index_in(texts, value_set=similar.values.values)  # NULL has a code, too
        if not found.null_count:
            return DictionaryColumn(similar.values, found.to_numpy().astype(np.int16))
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) > _MAX_DISTINCT:
        return TextColumn(texts)
    null = len(encoded.dictionary)
    codes = encoded.indices.fill_null(null).to_numpy().astype(np.int16)
    values = pa.concat_arrays([encoded.dictionary, pa.nulls(1, pa.binary())])
    return DictionaryColumn(TextColumn(values), codes)


def _listed_values(columns: Sequence[Column]) -> DictionaryColumn | None:
    """Return values of any kinds with the distinct ones listed; None if these are too many."""
    code_of: dict[tuple[type, object], int] = {}
    values: list[Value] = []
    codes: list[int] = []
    for column in columns:
        for value in column.to_values():
            if isinstance(value, list):
                return None
            # 0.0 and -0.0 are equal, and different texts
            key = type(value), repr(value) if isinstance(value, float) else value
            code = code_of.setdefault(key, len(code_of))
            if code == len(values):
                values.append(value)
            codes.append(code)
        if len(values) > _MAX_DISTINCT:
            return None
    return DictionaryColumn(MixedColumn([*values, None]), np.array(codes, np.int16))
