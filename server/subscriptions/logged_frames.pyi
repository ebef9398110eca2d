"""The frames of messages of the log, in C; the theory of it is in logged_frames.pyx."""

from collections.abc import Sequence

def frames(
    records: bytes,
    place_of_bodies: bytes,
    presented: Sequence[bytes] | None,
    left: bytes,
    keys: bytes,
    right: bytes,
    bookmark: bool,
    timestamp: bool,
    sow_key: bool,
) -> bytes:
    """Put messages into frames, one behind the other.

    Args:
        records: of entries without extras, each with its body's place in `place_of_bodies`.
        place_of_bodies: as in a `Passage`.
        presented: the bodies to be sent in place of those, None to send those.
        left: the header up to the length of the body.
        keys: further header keys as JSON text, each with its leading comma.
        right: the header behind the keys that are asked for.
        bookmark: whether the header has the bookmark.
        timestamp: whether it has the moment at which the message was recorded.
        sow_key: whether it has the SOW key, of messages that have one.

    Raises:
        ValueError: there are not as many bodies as records.
        OverflowError: a message was recorded beyond the year 9999.
    """
