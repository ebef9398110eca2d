"""Frames with known headers, split off in C; the theory of it is in frame_splitter.pyx."""

from collections.abc import Sequence

from amperage.wire.frame_slices import FrameSlices

class HeaderShapes:
    """The known shapes of headers: of a header, all but the values of its message.

    Attributes:
        generation: another number after each `clear`.
    """

    generation: int

    def __len__(self) -> int: ...
    def clear(self) -> None:
        """Forget all shapes."""

    def find(self, header: bytes) -> tuple[int, bytes, bytes, bytes, bytes, bytes]:
        """Return the index of a header's shape, and its values; see `HeaderColumns`.

        The index is -1 if the shape is unknown; a header that cannot be known has no values.
        """

    def add(self, header: bytes) -> int:
        """Add the shape of a header, unless it is known.

        Returns:
            Its index; -1 if headers of this shape cannot be known by it.
        """

def split_known(
    chunk: bytes, start: int, shapes: HeaderShapes, limit: int
) -> tuple[
    FrameSlices,
    FrameSlices,
    tuple[FrameSlices, FrameSlices, FrameSlices, FrameSlices, FrameSlices],
    int | Sequence[int],
    int,
]:
    """Split off whole, consecutive frames with headers of known shapes.

    Args:
        chunk: bytes of the stream.
        start: where a frame begins in them.
        shapes: the known shapes.
        limit: the largest frame accepted, in bytes.

    Returns:
        The headers; the bodies; the values, see `HeaderColumns`; the index of the shape of each
        header, or the one that all have; and where the next frame begins, which has an unknown
        header, is incomplete or too large.
    """
