"""Which records of a block are wanted, in C; the theory of it is in choosing.pyx."""

from collections.abc import Container, Mapping, Sequence

def choose(
    block: bytes,
    first_txid: int,
    file_size: int,
    kinds: int,
    wanted: Mapping[int, bool],
    topics: Container[int],
    origins: Container[int],
    most_bytes: int,
) -> tuple[bytes, Sequence[tuple[int, int]], int, Sequence[int]]:
    """Choose records of a block.

    Args:
        block: records back to back as in the file, the last one first.
        first_txid: of the first of them.
        file_size: in bytes.
        kinds: of entries that are wanted, as bits.
        wanted: whether the topic with a number is wanted.
        topics: the numbers of topics that are known; entries of others are damaged.
        origins: the numbers of origins that are known, likewise.
        most_bytes: of bodies after which to stop; the last body may go beyond.

    Returns:
        The chosen records in order, each with the place of its body among what is to be read in
        place of that in the file; what that is, as offsets in the file; how many records have been
        looked at; the txids of those that are damaged.
    """

def broken(records: bytes, bodies: bytes) -> Sequence[int]:
    """Find bodies that are damaged, or are not there.

    Args:
        records: as `choose` gives them.
        bodies: what it says that is to be read.

    Returns:
        The positions of their records.
    """

def alike(records: bytes) -> Sequence[tuple[int, int]]:
    """Where runs of records begin and end that agree in topic, origin and whether they have extras.

    Args:
        records: records back to back.
    """

def pick(records: bytes, positions: Sequence[int]) -> bytes:
    """Some of the records.

    Args:
        records: records back to back.
        positions: which, counted from 0.

    Raises:
        IndexError: there is no such record.
    """

def cut(records: bytes, bodies: bytes) -> list[bytes]:
    """The bodies of intact records, with their extras.

    Args:
        records: as `choose` gives them, which `broken` finds no fault with.
        bodies: what `choose` says that is to be read.
    """
