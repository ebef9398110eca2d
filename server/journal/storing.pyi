"""A commit's system calls in one go; the theory of it is in storing.pyx."""

from collections.abc import Iterable

def store(
    descriptor: int,
    pieces: Iterable[tuple[int, bytes]],
    path: bytes,
    size: int,
    mark: tuple[int, bytes],
) -> bool:
    """Write to a file, put that on stable storage, see that it will be found, and leave a mark.

    Args:
        descriptor: of the file.
        pieces: what to write where.
        path: where the file has to be.
        size: in bytes, which it has to have.
        mark: what to write where, behind all else, and without putting it on stable storage.

    Returns:
        Whether the file is in place; if not, the mark has not been left.

    Raises:
        OSError: the system refuses.
    """
