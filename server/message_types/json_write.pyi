"""Types of json_write.pyx."""

from collections.abc import Sequence
from enum import IntFlag

from typing_extensions import Buffer

class Form(IntFlag):
    """What a column holds, and how it is written."""

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
    """A column, as Arrow has it.

    Args:
        name: its JSON text and a colon; empty for the elements of an array.
        form: what it holds.
        width: of a value, in bytes, of WHOLE and REAL.
        offset: the place of its first value.
        valid: a bit for each value that says if it is there; None if all are.
        values: the values; None for OBJECT and ARRAY.
        places: of texts, bytes and arrays, where each begins, as numbers of 32 bits.
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
            rows: how many rows there are.

        Returns:
            The objects, one behind the other; and where each ends, as numbers of 64 bits.

        Raises:
            OverflowError: a time is not in the years 1 to 9999.
        """
