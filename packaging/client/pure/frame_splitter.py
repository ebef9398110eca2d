"""In place of frame_splitter.pyx: no header is known, so the reader splits frames one by one."""

from __future__ import annotations

from collections.abc import Sequence


class HeaderShapes:
    """The known shapes of headers: none."""

    generation = 0

    def __len__(self) -> int:
        return 0

    def clear(self) -> None:
        """Do nothing."""

    def find(self, header: bytes) -> tuple[int, bytes, bytes, bytes, bytes, bytes]:  # noqa: ARG002 - as in frame_splitter.pyi
        """Return -1 and no values: the shape is unknown."""
        return -1, b"", b"", b"", b"", b""

    def add(self, header: bytes) -> int:  # noqa: ARG002 - as above
        """Return -1: no shape is added."""
        return -1


def split_known(
    chunk: bytes,  # noqa: ARG001 - as in frame_splitter.pyi
    start: int,
    shapes: HeaderShapes,  # noqa: ARG001 - as above
    limit: int,  # noqa: ARG001 - as above
) -> tuple[Sequence[bytes], Sequence[bytes], tuple[Sequence[bytes], ...], int | Sequence[int], int]:
    """Return no frames, and the start."""
    return (), (), ((), (), (), (), ()), 0, start
