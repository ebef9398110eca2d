"""Types of json_write.pyx."""

from collections.abc import Sequence
from enum import IntFlag

from typing_extensions import Buffer

class Form(IntFlag):
    """The kind of a column's values, and their format."""

    WHOLE = 1
    REAL = 2
    TRUTH = 3
    TEXT = 4
    MOMENT = 5
    CLOCK = 6
    DAY = 7
    BYTES = 8
    JSON = 9
    OBJECT = 10
    ARRAY = 11

class Source:
    """A column in the layout of Arrow.

    Args:
        name: its JSON text and a colon; empty for the elements of an array.
        form: the kind of its values.
        width: of a value, in bytes, of WHOLE and REAL.
        offset: the place of its first value.
        valid: a validity bit for each value; None if all are valid.
        values: the values; None for OBJECT and ARRAY.
        places: of texts, bytes and arrays, the offset of each, as numbers of 32 bits.
        members: of an OBJECT, with an offset of their own; of an ARRAY, one: its elements.
    """

    def __init__(
        self,
        name: bytes,
        form: Form,
        width: int,
        offset: int,
        valid: Buffer | None,
        values: Buffer | None,
        places: Buffer | None,
        members: Sequence[Source],
    ) -> None: ...

class Writer:
    """Writes bodies."""

    def write(self, sources: list[Source], rows: int) -> tuple[bytes, bytearray]:
        """Write an object for each row.

        Args:
            sources: the columns.
            rows: number of rows.

        Returns:
            The concatenated objects, and the end of each, as numbers of 64 bits.

        Raises:
            OverflowError: a time is not in the years 1 to 9999.
        """
