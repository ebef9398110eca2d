"""The SOW keys of many messages, in C; the theory of it is in key_column.pyx."""

from collections.abc import Callable, Sequence

from server.message_types.base import Value

def numbers_of(
    start: bytes,
    columns: Sequence[Sequence[Value]],
    digest: Callable[[bytes], int],
    octets: Callable[[Value], bytes | None],
) -> list[int]:
    """Return the keys of messages, as numbers.

    Args:
        start: what all are hashed with: the key domain.
        columns: for each key field, at least one, its values.
        digest: makes the key of what is hashed.
        octets: the bytes of a value that is neither a text nor a small integer, None for NULL.

    Raises:
        ValueError: the columns have different lengths.
    """
