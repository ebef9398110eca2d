"""Types of columns.pyx."""

from collections.abc import Sequence
from enum import IntFlag

import numpy as np
import numpy.typing as npt

from pipeline.arrow_fill import ColumnRequest

class Kind(IntFlag):
    """The kind of a column's values."""

    WHOLE = 1
    REAL = 2
    TRUTH = 3
    TEXT = 4
    MOMENT = 5
    DAY = 6
    PART = 7
    OBJECT = 8
    ARRAY = 9

class ColumnReader:
    """Reads columns; the base class of the readers of message types.

    Args:
        wanted: the columns; names of one level differ.
    """

    def __init__(self, wanted: Sequence[ColumnRequest]) -> None: ...
    def read(
        self, data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[list[tuple[bytearray, bytes | bytearray, bytearray | None]], list[int]]:
        """Read some bodies.

        Args:
            data: a buffer with the bodies.
            starts: the offsets of their begins.
            ends: the offsets of their ends.

        Returns:
            For each column, breadth first: a validity byte for each row; the values, those of PART
            as two numbers of 64 bits, the offsets of begin and end in the data, those of texts
            concatenated; and the offsets of texts and of elements, as numbers of 32 bits, one more
            than there are rows. Below an ARRAY, its elements are the rows. And the rows of bodies
            that were not plain: they have no values, and the caller must read them in another way.

        Raises:
            OverflowError: the texts of a column exceed 2 GB in total, or its arrays have too many
                elements.
            ValueError: a body is outside the data.
        """
