"""Packs entries of the log into columns of a batch, in C; entry_packer.pyx has the reasons."""

from collections.abc import Mapping, Sequence

def pack(
    records: bytes, ways: Mapping[int, int], now: int
) -> tuple[int, Sequence[int], bytes, Sequence[tuple[int, int]]]:
    """Pack entries.

    Args:
        records: see `RawEntryRange`.
        ways: by the number of a topic, times 2**32, plus that of an origin: 0 if entries of both
            stay here, 1 if they go and were published here, 2 if they go and came from elsewhere.
        now: microseconds since the Unix epoch; lifetimes are counted from then on.

    Returns:
        The number of entries that go; their topics and origins, as in `ways`, in the order in which
        the first column numbers them; the columns; the start and end of each piece of bodies.
    """
