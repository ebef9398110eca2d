"""Encoder of entries that are appended together; entry_encoder.pyx gives the reasons."""

from collections.abc import Sequence

from server.storage.journal.write.blocks import AppendPosition, EntryColumns, FieldColumn

def count_fitting(data: Sequence[bytes], free_bytes: int) -> int:
    """Return how many entries fit.

    Args:
        data: their bodies with extras.
        free_bytes: bytes available for bodies and records.
    """

def make_block(
    position: AppendPosition, content: EntryColumns, flags: FieldColumn = 0
) -> tuple[bytes, bytes, int, Sequence[int]]:
    """Encode the bodies and records of a batch.

    Args:
        position: its position in the file.
        content: the contents of its entries; the caller makes sure that they fit.
        flags: flags for the records.

    Returns:
        The bodies with extras, back to back; the records in the order of the file, the last one
        first; the offset after the last body; the checksums of the bodies with extras.
    """
