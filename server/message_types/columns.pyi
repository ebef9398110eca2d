"""Types of columns.pyx."""

from collections.abc import Sequence
from enum import IntFlag
from typing import Protocol

import numpy as np
import numpy.typing as npt

class Kind(IntFlag):
    """What a column holds."""

    WHOLE = 1
    REAL = 2
    TRUTH = 3
    TEXT = 4
    MOMENT = 5
    DAY = 6
    PART = 7
    OBJECT = 8

class WantedColumn(Protocol):
    """A column.

    Attributes:
        name: the key of its values, encoded.
        kind: what it holds.
        width: of a value, in bytes: 1, 2, 4 or 8 for WHOLE, 4 or 8 for REAL, 1 for TRUTH, 8 for
            MOMENT, 4 for DAY, 16 for PART; 0 for the others.
        members: the columns of an OBJECT.
    """

    @property
    def name(self) -> bytes: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def width(self) -> int: ...
    @property
    def members(self) -> Sequence[WantedColumn]: ...

class ColumnReader:
    """Reads columns; that of a message type inherits from it.

    Args:
        wanted: the columns; names of one level differ.
    """

    def __init__(self, wanted: Sequence[WantedColumn]) -> None: ...
    def read(
        self, data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[list[tuple[bytearray, bytes | bytearray, bytearray | None]], list[int]]:
        """Read some bodies.

        Args:
            data: bytes among which they are.
            starts: where they begin.
            ends: and end.

        Returns:
            For each column, breadth first: a byte for each row that says if it has a value; the
            values, those of PART as two numbers of 64 bits that say where it begins and ends in the
            data, those of texts one behind the other; and where texts begin, as numbers of 32 bits,
            one more than there are rows. And the rows of bodies that were not plain: they are
            without values, and it is for others to say which there are.

        Raises:
            OverflowError: the texts of a column have more than 2 GB together.
            ValueError: a body lies outside the data.
        """
