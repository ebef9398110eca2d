"""Encodes the frames of a batch of records, in C; record_frames.pyx has the theory of operation."""

from collections.abc import Sequence

def frames(
    left: bytes,
    sow_keys: Sequence[int] | Sequence[bytes],
    bodies: Sequence[bytes],
    further: bytes | Sequence[bytes],
    publisher: int,
    numbers: Sequence[int],
    right: bytes,
) -> bytes:
    """Return the frames of records, concatenated.

    Args:
        left: the header up to the SOW key.
        sow_keys: the SOW keys of the records, all as numbers or all as JSON text; empty if headers
            have none.
        bodies: the bodies of the records.
        further: further header keys of all records, or of each, as JSON text, each key with its
            leading comma.
        publisher: the hash that identifies the publisher in bookmarks.
        numbers: the messages' sequence numbers in bookmarks; empty if headers have none.
        right: the end of the header.

    Raises:
        ValueError: the number of keys, sequence numbers or further keys is not that of bodies.
    """
