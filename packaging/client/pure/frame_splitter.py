"""In place of frame_splitter.pyx: no header is known, so the reader splits frames one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amperage.wire.header_template import HeaderShape


class HeaderShapes:
    """The known shapes of headers: none."""

    shapes: Sequence[HeaderShape] = ()

    def __init__(self, shapes: Iterable[HeaderShape] = ()) -> None:
        pass

    def __len__(self) -> int:
        return 0

    def clear(self) -> None:
        """Do nothing."""

    def index(self, shape: HeaderShape) -> int:  # noqa: ARG002 - as in frame_splitter.pyi
        """Return -1: a shape is unknown."""
        return -1

    def add(self, shape: HeaderShape) -> int:  # noqa: ARG002 - as above
        """Return -1: no shape is added."""
        return -1


def split_known(
    chunk: bytes,  # noqa: ARG001 - as in frame_splitter.pyi
    start: int,
    shapes: HeaderShapes,  # noqa: ARG001 - as above
    limit: int,  # noqa: ARG001 - as above
) -> tuple[Sequence[bytes], Sequence[bytes], int | Sequence[int], int]:
    """Return no frames, and the start."""
    return (), (), 0, start
