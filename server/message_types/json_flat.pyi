"""Differences and merges of JSON objects, in C; the theory of it is in json_flat.pyx."""

def differ(previous: bytes, current: bytes, kept_names: tuple[bytes, ...]) -> bytes | None:
    """Return the members of `current` that differ from those of `previous`, and the kept ones.

    Args:
        previous: the earlier body.
        current: the later body.
        kept_names: the names of the members to keep, of ASCII that JSON does not escape.

    Returns:
        b"" if no other member differs; None if a body is not plain, or an object differs.
    """

def merge(stored: bytes, delta: bytes, nulls: bool) -> bytes | None:
    """Return a body with the members of a delta; None if one is not plain, or has objects.

    Args:
        stored: the body.
        delta: the members to set.
        nulls: whether members that are NULL are set, too.
    """
