"""The system calls of a commit as one call; commit_io.pyx gives the reasons."""

from collections.abc import Iterable

def store(
    descriptor: int,
    pieces: Iterable[tuple[int, bytes]],
    path: bytes,
    size: int,
    mark: tuple[int, bytes],
) -> bool:
    """Write to a file, sync it, check that it is in place, and write a mark.

    Args:
        descriptor: descriptor of the file.
        pieces: the bytes to write, with their offsets.
        path: the path that the file must have.
        size: the size in bytes that it must have.
        mark: the mark with its offset, written last and not synced.

    Returns:
        Whether the file is in place; if not, the mark has not been written.

    Raises:
        OSError: a system call fails.
    """
