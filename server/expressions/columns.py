"""Columns: the values of one field in many records, in the form that can be tested all at once.

A column keeps every value as it was: `to_values` gives back what `column_of` was given, but for the
empty text, which becomes NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from server.expressions.octets import from_octets, to_octets
from server.message_types.base import Value

Mask: TypeAlias = NDArray[np.bool_]
Indexes: TypeAlias = NDArray[np.intp]

_INT64: Final = range(-(2**63), 2**63)
_EXACT: Final = range(-(2**53) + 1, 2**53)
"""Integers that a double holds exactly."""


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """Numbers and NULLs.

    Attributes:
        values: int64 or float64; anything where `valid` is false.
        valid: where there is a number; None where there is one everywhere.
        integers: of a float64 column, where the number is an integer, whose magnitude is below
            2^53; None where none is.
    """

    values: NDArray[np.int64] | NDArray[np.float64]
    valid: Mask | None = None
    integers: Mask | None = None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.values)

    def take(self, rows: Indexes) -> NumberColumn:
        """The column of some rows."""
        return NumberColumn(
            self.values[rows],
            None if self.valid is None else self.valid[rows],
            None if self.integers is None else self.integers[rows],
        )

    def to_values(self) -> list[Value]:
        """The rows one by one."""
        values: list[Value] = self.values.tolist()
        if self.integers is not None:
            for row in np.flatnonzero(self.integers):
                values[row] = int(self.values[row])
        if self.valid is not None:
            for row in np.flatnonzero(~self.valid):
                values[row] = None
        return values

    def present(self) -> Mask:
        """Where there is a number."""
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts and NULLs.

    Attributes:
        values: an Arrow array of type binary, the bytes of the texts; null where there is none.
    """

    values: pa.Array

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.values)

    def take(self, rows: Indexes) -> TextColumn:
        """The column of some rows."""
        return TextColumn(self.values.take(pa.array(rows)))

    def to_values(self) -> list[Value]:
        """The rows one by one."""
        octets: list[bytes | None] = self.values.to_pylist()
        return [None if item is None else from_octets(item) for item in octets]


@dataclass(frozen=True, slots=True)
class MixedColumn:
    """Any values; tested one by one."""

    values: Sequence[Value]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.values)

    def take(self, rows: Indexes) -> MixedColumn:
        """The column of some rows."""
        return MixedColumn([self.values[row] for row in rows])

    def to_values(self) -> list[Value]:
        """The rows one by one."""
        return list(self.values)


Column: TypeAlias = NumberColumn | TextColumn | MixedColumn


def column_of(values: Sequence[Value]) -> Column:
    """Make the fastest column that keeps some values."""
    kinds = {type(value) for value in values if value is not None and value != ""}
    if kinds == {str}:
        octets = [
            to_octets(value) if isinstance(value, str) and value else None for value in values
        ]
        return TextColumn(pa.array(octets, pa.binary()))
    if kinds and kinds <= {int, float} and str not in {type(value) for value in values}:
        return _numbers(values, kinds) or MixedColumn(values)
    return MixedColumn(values)


def _numbers(values: Sequence[Value], kinds: set[type]) -> NumberColumn | None:
    """A column of numbers; None if there are integers too large for it."""
    integers = [value for value in values if isinstance(value, int)]
    allowed = _EXACT if float in kinds else _INT64
    if integers and not (min(integers) in allowed and max(integers) in allowed):
        return None
    valid = np.array([value is not None for value in values], np.bool_)
    filled = [0 if value is None else value for value in values]
    present = None if valid.all() else valid
    if float not in kinds:
        return NumberColumn(np.array(filled, np.int64), present)
    whole = np.array([isinstance(value, int) for value in values], np.bool_)
    return NumberColumn(np.array(filled, np.float64), present, whole if whole.any() else None)
