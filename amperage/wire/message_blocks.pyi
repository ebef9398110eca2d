"""Types of message_blocks.pyx."""

Texts = tuple[bytearray, bytearray, bytes]
"""A byte for each message that says whether it has a text; where texts begin, as numbers of 32
bits, and one more, where the last one ends; and the texts, one behind the other."""

FIELDS: tuple[str, ...]
"""The header fields of which there are columns, by their names in `header.Header`."""

def read_records(content: bytes) -> tuple[bytearray, bytearray, dict[str, Texts]] | None:
    """Find the records of a `sow` frame.

    Args:
        content: everything behind the frame's header.

    Returns:
        Where bodies begin and end in the content, as numbers of 64 bits; and columns of the header
        fields that any record has. None if there is no record, or a header that is not plain, or
        not followed by its body.

    Raises:
        OverflowError: the texts of a column have more than 2 GB together.
    """

def read_publications(
    frames: list[tuple[bytes, bytes]], first: int
) -> tuple[bytes, bytes, bytearray, bytearray, dict[str, Texts]] | None:
    """Gather publications of the same subscriptions that follow one another.

    Args:
        frames: headers and bodies, as a frame reader cut them.
        first: where to begin.

    Returns:
        The ids of the subscriptions; the bodies one behind the other; then as `read_records`. There
        are as many as frames have been taken. None if the first one is another kind of message, one
        of a queue, or has a header that is not plain.

    Raises:
        OverflowError: the texts of a column have more than 2 GB together.
    """
