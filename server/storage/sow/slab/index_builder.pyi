"""Builds the index of the records of a SOW file; index_builder.pyx has the theory of operation."""

from array import array
from collections.abc import Callable
from mmap import mmap

class IndexBuilder:
    """Applies the entries of a file's log to the index of records, in the order of writing.

    Args:
        topic: the topic of records that name none, if identities contain the topic; else None.
        rows: identity -> row; complete when `finish` has been called.
        locations: the location of each row.
        sizes: the size of the entry of each row.
        free: rows that can be used again.
        other: applies an entry that is about no current record, given its location and bytes.

    Attributes:
        topics: the topics that entries name; entries that name none count for `topic`, if
            identities contain the topic, and else are ignored.
    """

    topics: set[str]

    def __init__(
        self,
        topic: str | None,
        rows: dict[str, int],
        locations: array[int],
        sizes: array[int],
        free: list[int],
        other: Callable[[int, bytes], None],
    ) -> None: ...
    def apply_slab(
        self, slab: mmap | bytes, start: int, position: int, end: int, epoch: int
    ) -> tuple[int, int, int]:
        """Apply the entries of a slab, up to the first invalid one.

        Args:
            slab: the slab.
            start: the location of its first byte.
            position: the position of the first entry in the slab.
            end: the limit of the end of its entries.
            epoch: the lower 32 bits of its epoch.

        Returns:
            The end of the entries; the number of bytes by which the live bytes have grown, besides
            those that `other` counts; and the highest sequence of an entry.

        Raises:
            ValueError: the position is not in the slab.
        """

    def finish(self) -> None:
        """Complete `rows`, after all slabs have been read."""
