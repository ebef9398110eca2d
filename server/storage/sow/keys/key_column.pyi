"""The SOW keys of many messages, in C; key_column.pyx has the theory of operation."""

from collections.abc import Callable, Sequence

from server.message_types.base import Value

def numbers_of(
    start: bytes | Sequence[bytes],
    columns: Sequence[Sequence[Value]],
    digest: Callable[[bytes], int],
    octets: Callable[[Value], bytes | None],
) -> list[int]:
    """Return the keys of messages, as numbers.

    Args:
        start: the bytes that precede the values in each hash: the key domain, one for all messages
            or one for each.
        columns: for each key field, at least one, its values.
        digest: computes the key of the bytes to hash.
        octets: returns the bytes of a value that is neither a text nor a small integer, None for
            NULL.

    Raises:
        ValueError: the columns have different lengths.
    """
