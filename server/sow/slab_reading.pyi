"""Reading many entries of a SOW file from its maps; the theory of it is in slab_reading.pyx."""

import mmap
from array import array
from collections.abc import Callable, Sequence

from server.sow.records import Record

class Slabs:
    """Reads entries of a file's slabs.

    Whoever reads looks at the file's guard afterwards: what was lost meanwhile reads as zeros.

    Args:
        maps: the slabs; the list is kept, and may grow and shrink.
        size: bytes of a slab.
    """

    def __init__(self, maps: list[mmap.mmap], size: int) -> None: ...
    def join_bodies(
        self, locations: array[int], rows: Sequence[int]
    ) -> tuple[bytes, array[int]] | None:
        """The bodies of some rows, see `JoinedBodies`; None if one of them cannot be had.

        Args:
            locations: where the entry of each row is.
            rows: which rows; an empty body for one that is negative.

        Raises:
            IndexError: there is no such row, or slab.
        """

    def read_records(
        self, locations: array[int], rows: Sequence[int], topic: str
    ) -> list[Record] | None:
        """The records of some rows; None if one of them cannot be had.

        Args:
            locations: where the entry of each row is.
            rows: which rows.
            topic: the topic of records that name none.

        Raises:
            IndexError: there is no such row, or slab.
        """

    def place_records(
        self,
        index: int,
        position: int,
        end: int,
        epoch: int,
        topic: str | None,
        rows: dict[str, int],
        locations: array[int],
        rooms: array[int],
        free: list[int],
        other: Callable[[int, bytes], None],
    ) -> tuple[int, int, int]:
        """Apply the entries of a slab, up to the first that is not whole, to what finds records.

        Args:
            index: the slab.
            position: where in it the first entry is.
            end: where its entries end at the latest.
            epoch: the lower 32 bits of its epoch.
            topic: the topic of records that name none, if identities tell topics apart; else None.
            rows: identity -> row.
            locations: of each row.
            rooms: of each row.
            free: rows that can be used again.
            other: applies an entry that is no record, given its location and bytes.

        Returns:
            Where the entries end, by how many bytes more is live than `other` knows of, and the
            highest sequence of an entry.
        """
