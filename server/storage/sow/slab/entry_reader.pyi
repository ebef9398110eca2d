"""Reads many entries of a SOW file from its maps; entry_reader.pyx has the theory of operation."""

import mmap
from array import array
from collections.abc import Sequence

from server.storage.sow.records import Record

class Slabs:
    """Reads entries of a file's slabs.

    Callers check the file's guard afterwards: content that is lost meanwhile reads as zeros.

    Args:
        maps: the slabs; the list is kept, and may grow and shrink.
        size: bytes of a slab.
    """

    def __init__(self, maps: list[mmap.mmap], size: int) -> None: ...
    def join_bodies(
        self, locations: array[int], rows: Sequence[int]
    ) -> tuple[bytes, array[int]] | None:
        """Return the bodies of some rows, see `JoinedBodies`; None if one of them cannot be read.

        Args:
            locations: the location of the entry of each row.
            rows: the rows; for a negative one the result has an empty body.

        Raises:
            IndexError: there is no such row, or slab.
        """

    def read_bodies(self, locations: array[int], rows: Sequence[int]) -> list[bytes] | None:
        """Return the bodies of some rows one by one; see `read_records`."""

    def read_records(
        self, locations: array[int], rows: Sequence[int], topic: str
    ) -> list[Record] | None:
        """Return the records of some rows; None if one of them cannot be read.

        Args:
            locations: the location of the entry of each row.
            rows: the rows.
            topic: the topic of records that name none.

        Raises:
            IndexError: there is no such row, or slab.
        """
