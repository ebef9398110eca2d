"""The records of entries that are appended together, in C; the theory of it is in making.pyx."""

from server.journal.blocks import Content, Field, Place

def make_records(place: Place, content: Content, flags: Field = 0) -> tuple[bytes, int]:
    """The records of a run.

    Args:
        place: where it goes.
        content: what its entries say; not more than there is room for.
        flags: as the records have them.

    Returns:
        The records as they lie in the file, the last one first; the offset behind the last body.
    """
