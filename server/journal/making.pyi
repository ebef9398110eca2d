"""Entries that are appended together as they are written; the theory of it is in making.pyx."""

from collections.abc import Sequence

from server.journal.blocks import Content, Field, Place

def how_many_fit(data: Sequence[bytes], room: int) -> int:
    """How many entries find room.

    Args:
        data: their bodies with extras.
        room: bytes that bodies and records may take.
    """

def make_block(
    place: Place, content: Content, flags: Field = 0
) -> tuple[bytes, bytes, int, Sequence[int]]:
    """The bodies and records of a run.

    Args:
        place: where it goes.
        content: what its entries say; not more than there is room for.
        flags: as the records have them.

    Returns:
        The bodies with extras, back to back; the records as they lie in the file, the last one
        first; the offset behind the last body; the checksums of the bodies.
    """
