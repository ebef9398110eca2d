"""Columns: the values of one field in many records, in a form for vectorized tests.

A column keeps every value unchanged: `to_values` returns the values passed to `column_of`, except
that the empty text becomes NULL.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from typing import Final, TypeAlias

import numpy as np
import numpy.ma  # pyarrow imports it with the first array, while clients wait (20 ms)
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from server.message_types.base import Value
from server.message_types.bulk import RawColumn
from server.util.encoding import bytes_to_text, text_to_bytes

Mask: TypeAlias = NDArray[np.bool_]
Indexes: TypeAlias = NDArray[np.intp]

_INTEGER: Final = 1
_DOUBLE: Final = 2
_TEXT: Final = 4
"""Tags of a `RawColumn`."""
_EXACT: Final = range(-(2**53) + 1, 2**53)
"""Integers that a double holds exactly."""


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """Numbers and NULLs.

    Attributes:
        values: int64 or float64; undefined where `valid` is false.
        valid: mask of the rows with a number; None if all rows have one.
        integers: of a float64 column, mask of the integers, with magnitudes below 2^53; None if
            there is none.
    """

    values: NDArray[np.int64] | NDArray[np.float64]
    valid: Mask | None = None
    integers: Mask | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def take(self, rows: Indexes) -> NumberColumn:
        """Return the column of some rows."""
        return NumberColumn(
            self.values[rows],
            None if self.valid is None else self.valid[rows],
            None if self.integers is None else self.integers[rows],
        )

    def to_values(self) -> list[Value]:
        """Return the rows one by one."""
        values: list[Value] = self.values.tolist()
        if self.integers is not None:
            for row in np.flatnonzero(self.integers):
                values[row] = int(self.values[row])
        if self.valid is not None:
            for row in np.flatnonzero(~self.valid):
                values[row] = None
        return values

    def valid_mask(self) -> Mask:
        """Return the mask of the rows with a number."""
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts and NULLs.

    Attributes:
        values: an Arrow array of type binary, the bytes of the texts; null for NULL.
    """

    values: pa.Array

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def take(self, rows: Indexes) -> TextColumn:
        """Return the column of some rows."""
        return TextColumn(self.values.take(pa.array(rows)))

    def to_values(self) -> list[Value]:
        """Return the rows one by one."""
        octets: list[bytes | None] = self.values.to_pylist()
        return [None if item is None else bytes_to_text(item) for item in octets]


@dataclass(frozen=True, slots=True)
class MixedColumn:
    """Values of any kinds, tested one by one."""

    values: Sequence[Value]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def take(self, rows: Indexes) -> MixedColumn:
        """Return the column of some rows."""
        return MixedColumn([self.values[row] for row in rows])

    def to_values(self) -> list[Value]:
        """Return the rows one by one."""
        return list(self.values)


Column: TypeAlias = NumberColumn | TextColumn | MixedColumn


_LARGE: Final = 1_000_000


def warm_up() -> None:
    """Run the one-time initialization of Arrow, so that no query pays for it.

    The first array makes Arrow import pandas if it is installed. A server does not use pandas, and
    the import takes as long as the rest of the start, and 40 MB: it is blocked. The first large
    array makes Arrow allocate memory from the system.
    """
    with _ImportBlocker("pandas"):
        text_array(("x" * _LARGE, "", None))


class _ImportBlocker(MetaPathFinder):
    """Makes a module appear as not installed, unless it is imported already."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for the module; see `MetaPathFinder`."""
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def column_of(values: Sequence[Value]) -> Column:
    """Make the fastest kind of column that can hold the values."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str}:
        return TextColumn(text_array(values))
    if kinds == {float} or kinds == {int}:
        return _plain_numbers(values, kinds) or MixedColumn(values)
    if kinds == {int, float}:
        return _mixed_numbers(values) or MixedColumn(values)
    return MixedColumn(values)


def column_of_raw(raw: RawColumn) -> Column:
    """Make the fastest kind of column for the values of a raw one, mostly without copying."""
    tags = np.frombuffer(raw.tags, np.int8)
    kinds = int(np.bitwise_or.reduce(tags, initial=0))
    present = None if tags.all() else tags != 0
    if kinds == _TEXT:
        return _raw_texts(raw, present)
    numbers = np.frombuffer(raw.numbers, np.int64)
    if kinds == _INTEGER:
        return NumberColumn(numbers, present)
    if kinds == _DOUBLE:
        return NumberColumn(numbers.view(np.float64), present)
    if kinds == _INTEGER | _DOUBLE:
        is_integer = tags == _INTEGER
        integers = numbers[is_integer]
        if int(integers.min()) in _EXACT and int(integers.max()) in _EXACT:
            doubles = np.where(is_integer, numbers.astype(np.float64), numbers.view(np.float64))
            return NumberColumn(doubles, present, is_integer)
    return MixedColumn(_raw_values(raw))


def _raw_texts(raw: RawColumn, present: Mask | None) -> TextColumn:
    """Make a column of texts and NULLs; the empty text becomes NULL."""
    lengths = np.diff(np.frombuffer(raw.offsets, np.int32))
    if present is not None or not lengths.all():
        present = lengths > 0
    bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [bits, pa.py_buffer(raw.offsets), pa.py_buffer(raw.text)]
    return TextColumn(pa.Array.from_buffers(pa.binary(), len(raw.tags), buffers))


def _raw_values(raw: RawColumn) -> list[Value]:
    integers = np.frombuffer(raw.numbers, np.int64).tolist()
    doubles = np.frombuffer(raw.numbers, np.float64).tolist()
    offsets = np.frombuffer(raw.offsets, np.int32).tolist()
    values: list[Value] = []
    for row, tag in enumerate(raw.tags):
        if tag == _TEXT:
            values.append(bytes_to_text(raw.text[offsets[row] : offsets[row + 1]]))
        elif tag == _INTEGER:
            values.append(integers[row])
        elif tag == _DOUBLE:
            values.append(doubles[row])
        else:
            values.append(raw.others.get(row))
    return values


def text_array(values: Sequence[Value]) -> pa.Array:
    """Return an Arrow array of type binary of texts and NULLs; the empty text becomes NULL."""
    try:
        array = pa.array(values, pa.string()).cast(pa.binary())
    except UnicodeEncodeError:  # bytes that were no UTF-8
        octets = [text_to_bytes(value) if isinstance(value, str) else None for value in values]
        array = pa.array(octets, pa.binary())
    empty = pc.equal(pc.binary_length(array), 0)
    return pc.if_else(empty, None, array) if pc.any(empty).as_py() else array


def _plain_numbers(values: Sequence[Value], kinds: set[type]) -> NumberColumn | None:
    """Make a column of numbers of one kind; None if an integer is too large for it."""
    try:
        array = pa.array(values, pa.float64() if float in kinds else pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return None
    if not array.null_count:
        return NumberColumn(array.to_numpy())
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return NumberColumn(array.fill_null(0).to_numpy(), valid)


def _mixed_numbers(values: Sequence[Value]) -> NumberColumn | None:
    """Make a column of integers and doubles; None if an integer is too large for it."""
    integers = [value for value in values if isinstance(value, int)]
    if not (min(integers) in _EXACT and max(integers) in _EXACT):
        return None
    valid = np.array([value is not None for value in values], np.bool_)
    filled = np.array([0 if value is None else value for value in values], np.float64)
    is_integer = np.array([isinstance(value, int) for value in values], np.bool_)
    return NumberColumn(filled, None if valid.all() else valid, is_integer)
