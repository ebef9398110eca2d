"""Encodes the frames of logged messages, in C; logged_frames.pyx has the theory of operation."""

from collections.abc import Sequence

from server.topics.subscriptions.delivery.logged_batch import LoggedHeader

def frames(
    records: bytes,
    place_of_bodies: bytes,
    presented: Sequence[bytes] | None,
    headers: dict[int, LoggedHeader],
) -> tuple[bytes, int]:
    """Frame messages whose kind has a header.

    Args:
        records: the records of entries without extras, each with its body's offset in
            `place_of_bodies`.
        place_of_bodies: as in a `RawEntryRange`.
        presented: the bodies to send in place of those of the records; None to send the latter.
        headers: the headers, by the kind of a record; see `RawEntryRange.kinds`.

    Returns:
        The frames, concatenated, and their number.

    Raises:
        ValueError: the number of bodies differs from that of records.
        OverflowError: a message was recorded beyond the year 9999.
    """
