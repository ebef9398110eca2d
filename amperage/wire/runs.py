"""Splits off runs: frames with one header, or one but for a sequence number.

Most publishers send one header over and over, or one that differs by its number only. Once such a
header has come, the rest of the stream is compared with it in C (frame_slices.pyx), which costs a
fraction of searching the end of every header and looking the header up. Frames with other headers
are split off by `FrameReader`, a few at a time: then the stream is checked for a run again.
"""

from __future__ import annotations

from typing import Final

from amperage.wire.frame_slices import cut_run
from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, Frame, FrameParts, FrameReader
from amperage.wire.header_template import SEQUENCE_KEY, FrameBatch, HeaderShape, split_at_sequence

_CUT_BETWEEN_LOOKS: Final = 256
"""Frames that are split off one by one before the next check for a run."""


class FrameBatchReader(FrameReader):
    """Splits a stream of bytes into frames and runs of frames.

    Args:
        limit: the largest frame accepted, in bytes.
        parts: see `FrameReader`.
    """

    __slots__ = ("_batch", "_header_shape", "_last_header", "_rest", "_rest_start")

    def __init__(self, limit: int = MAX_AMPS_FRAME_SIZE, parts: FrameParts | None = None) -> None:
        super().__init__(limit, parts)
        self._last_header = b""  # the header of the last single frame
        self._header_shape: HeaderShape | None = None  # its shape
        self._batch: FrameBatch | None = None
        self._rest = b""  # bytes not split yet, from `_rest_start` on
        self._rest_start = 0

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames when `feed` is called with no bytes."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the stream. Return some of the frames that they complete.

        The frames of a run precede them (`take_batch`), others follow in the next call
        (`has_more`).
        """
        if not self._rest:
            return super().feed(chunk)
        rest, begin = self._rest, self._rest_start
        self._rest = b""
        return self._split_from(rest[begin:] + chunk, 0) if chunk else self._split_from(rest, begin)

    def take_batch(self) -> FrameBatch | None:
        """See `FrameReader.take_batch`."""
        batch, self._batch = self._batch, None
        return batch

    def drop_partial(self) -> None:
        """See `FrameReader.drop_partial`."""
        super().drop_partial()
        self._batch = None
        self._rest = b""

    def _split(self, chunk: bytes) -> list[Frame]:
        return self._split_from(chunk, 0)

    def _split_after_large(self, chunk: bytes) -> list[Frame]:
        self._rest, self._rest_start = chunk, 0  # a run in it must not precede the large frame
        return []

    def _split_from(self, chunk: bytes, position: int) -> list[Frame]:
        if self._header_shape is not None:
            position = self._split_batch(chunk, position, self._header_shape)
        frames, position = self._split_frames(chunk, position, _CUT_BETWEEN_LOOKS)
        if frames and frames[-1][0] != self._last_header:
            self._last_header = frames[-1][0]
            left, digits, right = split_at_sequence(self._last_header)
            self._header_shape = (left, right) if digits else self._last_header
        if position < len(chunk):
            self._rest, self._rest_start = chunk, position
        return frames

    def _split_batch(self, chunk: bytes, position: int, shape: HeaderShape) -> int:
        """Split off the run of frames of a shape at a position. Return where it ends."""
        if isinstance(shape, bytes):
            bodies, digits, end = cut_run(chunk, position, shape, None, self._limit)
        else:
            left, right = shape
            bodies, digits, end = cut_run(chunk, position, left + SEQUENCE_KEY, right, self._limit)
        if len(bodies):
            self._batch = FrameBatch(shape, digits, bodies)
        return end
