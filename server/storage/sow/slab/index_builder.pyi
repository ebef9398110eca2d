"""Finding out where the records of a SOW file are; the theory of it is in index_builder.pyx."""

from array import array
from collections.abc import Callable
from mmap import mmap

class Placing:
    """Applies the entries of a file's log to what finds records, in the order they were written.

    Args:
        topic: the topic of records that name none, if identities tell topics apart; else None.
        rows: identity -> row; complete when `finish` has been called.
        locations: of each row.
        rooms: that entries take, of each row.
        free: rows that can be used again.
        other: applies an entry that is about no current record, given its location and bytes.

    Attributes:
        topics: those that entries name; those that name none have the topic, if identities tell
            topics apart, and else count for nothing.
    """

    topics: set[str]

    def __init__(
        self,
        topic: str | None,
        rows: dict[str, int],
        locations: array[int],
        rooms: array[int],
        free: list[int],
        other: Callable[[int, bytes], None],
    ) -> None: ...
    def place(
        self, slab: mmap | bytes, start: int, position: int, end: int, epoch: int
    ) -> tuple[int, int, int]:
        """Apply the entries of a slab, up to the first that is not whole.

        Args:
            slab: the slab.
            start: its place in the file's locations.
            position: where in it the first entry is.
            end: where its entries end at the latest.
            epoch: the lower 32 bits of its epoch.

        Returns:
            Where the entries end, by how many bytes more is live than `other` knows of, and the
            highest sequence of an entry.

        Raises:
            ValueError: the position is not in the slab.
        """

    def finish(self) -> None:
        """Let records be found by their identities: all slabs have been read."""
