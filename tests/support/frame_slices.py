"""Slices of a stream of frames, as the server splits them off."""

from __future__ import annotations

from collections.abc import Sequence

from amperage.wire.frame_slices import FrameSlices
from amperage.wire.frame_splitter import HeaderShapes, split_known
from amperage.wire.framing import frame


def bodies_in_stream(
    bodies: Sequence[bytes], header: bytes = b"{}", behind: bytes = b""
) -> FrameSlices:
    """Return bodies as slices of a stream of frames with one header, and more bytes behind."""
    stream = b"".join(frame(header, body) for body in bodies)
    shapes = HeaderShapes()
    assert shapes.add(header) == 0
    _, slices, _, keys, end = split_known(stream + behind, 0, shapes, 10_000)
    assert (keys, end) == (0, len(stream))
    return slices
