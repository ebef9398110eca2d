"""Selection of matching records from a block, in C; entry_filter.pyx gives the reasons."""

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
    """Choose the records of a block that match by topic and kind.

    Args:
        block: records back to back as in the file, the last one first.
        first_txid: txid of the first entry.
        file_size: size of the file in bytes.
        kinds: the kinds of entries to choose, as bits.
        wanted: whether entries of a topic are to be chosen, by its number.
        topics: the numbers of known topics; entries of others are damaged.
        origins: the numbers of known origins, likewise.
        most_bytes: bytes of bodies after which to stop; the last body may go beyond.

    Returns:
        The chosen records in order, with offsets of bodies in the bytes to be read instead of in
        the file; the parts of the file to be read, as offsets; the number of examined records; the
        txids of damaged ones.
    """

def broken(records: bytes, bodies: bytes) -> Sequence[int]:
    """Find bodies that are damaged or missing.

    Args:
        records: records as `choose` returns them.
        bodies: the bytes of the parts that `choose` returns.

    Returns:
        The positions of their records.
    """

def alike(records: bytes) -> Sequence[tuple[int, int]]:
    """Return the bounds of batches of records with equal topic, origin and presence of extras.

    Args:
        records: records back to back.
    """

def kinds(records: bytes) -> list[int] | None:
    """Return the kinds of records, each once; None if any has extras.

    The kind of a record is the number of its topic, plus that of its origin times 2^32.

    Args:
        records: records back to back.
    """

def pick(records: bytes, positions: Sequence[int]) -> bytes:
    """Return the records at the positions.

    Args:
        records: records back to back.
        positions: positions, counted from 0.

    Raises:
        IndexError: there is no such record.
    """

def cut(records: bytes, bodies: bytes) -> list[bytes]:
    """Return the bodies of intact records, with their extras.

    Args:
        records: records as `choose` returns them, without those that `broken` finds.
        bodies: the bytes of the parts that `choose` returns.
    """
