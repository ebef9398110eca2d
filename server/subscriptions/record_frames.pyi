"""The frames of records that change together, in C; the theory of it is in record_frames.pyx."""

from collections.abc import Sequence

def frames(
    left: bytes,
    sow_keys: Sequence[int],
    bodies: Sequence[bytes],
    further: bytes | Sequence[bytes],
    publisher: int,
    numbers: Sequence[int],
    right: bytes,
) -> bytes:
    """Put records into frames, one behind the other.

    Args:
        left: the header up to the SOW key.
        sow_keys: their SOW keys; empty if headers have none.
        bodies: the records.
        further: header keys of all, or of each, as JSON text, each key with its leading comma.
        publisher: what stands for the publisher in bookmarks.
        numbers: the numbers of the messages in these; empty if headers have none.
        right: the end of the header.

    Raises:
        ValueError: there are not as many keys, numbers or further keys as bodies.
    """
