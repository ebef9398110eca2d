"""Encoder of entries that are appended together; entry_encoder.pyx gives the reasons."""

from collections.abc import Sequence

from server.storage.journal.write.blocks import AppendPosition, EntryColumns, FieldColumn

def count_fitting(data: Sequence[bytes], room: int) -> int:
    """Return how many entries fit.

    Args:
        data: their bodies with extras.
        room: bytes available for bodies and records.
    """

def make_block(
    place: AppendPosition, content: EntryColumns, flags: FieldColumn = 0
) -> tuple[bytes, bytes, int, Sequence[int]]:
    """Encode the bodies and records of a run.

    Args:
        place: its place in the file.
        content: the contents of its entries; the caller makes sure that they fit.
        flags: flags for the records.

    Returns:
        The bodies with extras, back to back; the records in the order of the file, the last one
        first; the offset after the last body; the checksums of the bodies with extras.
    """
