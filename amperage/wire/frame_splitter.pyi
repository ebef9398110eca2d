"""Frames with known headers, split off in C; the theory of it is in frame_splitter.pyx."""

from collections.abc import Iterable, Sequence

from amperage.wire.frame_slices import FrameSlices
from amperage.wire.header_template import HeaderShape

class HeaderShapes:
    """The known shapes of headers.

    Args:
        shapes: shapes to begin with.

    Attributes:
        shapes: the shapes, by index. `clear` begins another list and leaves this one as it is.
    """

    shapes: Sequence[HeaderShape]

    def __init__(self, shapes: Iterable[HeaderShape] = ()) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None:
        """Forget all shapes."""

    def index(self, shape: HeaderShape) -> int:
        """Return the index of a shape; -1 if it is unknown."""

    def add(self, shape: HeaderShape) -> int:
        """Add a shape, unless it is known, and return its index."""

def split_known(
    chunk: bytes, start: int, shapes: HeaderShapes, limit: int
) -> tuple[FrameSlices, FrameSlices, int | Sequence[int], int]:
    """Split off whole, consecutive frames whose headers have known shapes.

    Args:
        chunk: bytes of the stream.
        start: where a frame begins in them.
        shapes: the known shapes.
        limit: the largest frame accepted, in bytes.

    Returns:
        The bodies; the digits of each sequence number (empty where a header has none), nothing if
        no header has one; the index of the shape of each header, or the one that all have; and
        where the next frame begins, whose header is unknown, or which is incomplete or too large.
    """
