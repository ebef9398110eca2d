"""Frees large bytes without the interpreter's lock."""

def free_unshared(waiting: dict[int, bytes]) -> None:
    """Remove and free those bytes that nothing else refers to; other threads run meanwhile.

    Args:
        waiting: the bytes, by any keys. Other threads may add some.
    """
