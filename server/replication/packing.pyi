"""Entries of the log as columns of a batch, in C; the theory of it is in packing.pyx."""

from collections.abc import Mapping, Sequence

def pack(
    records: bytes, ways: Mapping[int, int], now: int
) -> tuple[int, Sequence[int], bytes, Sequence[tuple[int, int]]]:
    """Pack entries.

    Args:
        records: see `Passage`.
        ways: by the number of a topic, times 2**32, and that of an origin: 0 if entries of both
            stay here, 1 if they go and were published here, 2 if they go and came from elsewhere.
        now: microseconds since the Unix epoch; lifetimes are counted from then on.

    Returns:
        How many go; their topics and origins, as in `ways`, in the order in which the first column
        numbers them; the columns; where their bodies are, as first and end of pieces.
    """
