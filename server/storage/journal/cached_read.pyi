"""Reads from the page cache, in C; cached_read.pyx gives the reasons."""

def read_in_memory(descriptor: int, length: int, offset: int) -> bytes | None:
    """Read bytes of a file, if all of them are in the page cache.

    Args:
        descriptor: descriptor of the file.
        length: number of bytes to read, not negative.
        offset: offset of the first byte, not negative.

    Returns:
        The bytes; None if the read would have to wait for the disk, or reaches beyond the end.
    """
