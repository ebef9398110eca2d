"""Reading what the system has in memory, in C; the theory of it is in reading.pyx."""

def read_in_memory(descriptor: int, length: int, offset: int) -> bytes | None:
    """What a file has at some place, if the system has all of that in memory.

    Args:
        descriptor: of the file.
        length: bytes to read, not negative.
        offset: where they begin, not negative.

    Returns:
        The bytes; None if that would have to wait for the disk, or there are not so many.
    """
