"""Encodes the frames of logged messages, in C; logged_frames.pyx has the theory of operation."""

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
    """Return the frames of messages, concatenated.

    Args:
        records: the records of entries without extras, each with its body's offset in
            `place_of_bodies`.
        place_of_bodies: as in a `RawEntryRange`.
        presented: the bodies to send in place of those of the records; None to send the latter.
        left: the header up to the length of the body.
        keys: further header keys as JSON text, each with its leading comma.
        right: the header after the optional keys.
        bookmark: whether the header has the bookmark.
        timestamp: whether the header has the time at which the message was recorded.
        sow_key: whether the header has the SOW key, for messages that have one.

    Raises:
        ValueError: the number of bodies differs from that of records.
        OverflowError: a message was recorded beyond the year 9999.
    """
