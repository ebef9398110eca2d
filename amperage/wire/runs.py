"""Frames with one header, or one but for a sequence number: cut and recognised in one go.

Most publishers send one header over and over, or one that differs by its number only. Once such a
header has come, what the stream goes on with is compared with it in C (places.pyx), which costs a
fraction of looking for the end of every header and looking the header up. What has another header
is cut by `FrameReader`, a few frames at a time: then it is looked again whether they go on alike.
"""

from __future__ import annotations

from typing import Final

from amperage.wire.framing import MAXIMUM_FRAME, Frame, FrameReader, Parts
from amperage.wire.numbered import SEQUENCE_KEY, FrameRun, Shape, split_at_sequence
from amperage.wire.places import cut_run

_CUT_BETWEEN_LOOKS: Final = 256
"""Frames that are cut one by one before it is looked whether there is a run."""


class RunReader(FrameReader):
    """Cuts a stream of bytes into frames and runs of frames.

    Args:
        limit: the largest frame accepted, in bytes.
        parts: see `FrameReader`.
    """

    __slots__ = ("_header", "_rest", "_rest_begins", "_run", "_shape")

    def __init__(self, limit: int = MAXIMUM_FRAME, parts: Parts | None = None) -> None:
        super().__init__(limit, parts)
        self._header = b""  # the last one that came with a single frame
        self._shape: Shape | None = None  # its shape
        self._run: FrameRun | None = None
        self._rest = b""  # what has not been cut yet, from a place on
        self._rest_begins = 0

    @property
    def has_more(self) -> bool:
        """Whether bytes that it has taken may give more frames when it is fed nothing."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes from the stream, and give some of the frames completed by them.

        Those of a run come before them (`take_run`), others when it is fed again (`has_more`).
        """
        if not self._rest:
            return super().feed(chunk)
        rest, begin = self._rest, self._rest_begins
        self._rest = b""
        return self._split_from(rest[begin:] + chunk, 0) if chunk else self._split_from(rest, begin)

    def take_run(self) -> FrameRun | None:
        """See `FrameReader.take_run`."""
        run, self._run = self._run, None
        return run

    def drop(self) -> None:
        """See `FrameReader.drop`."""
        super().drop()
        self._run = None
        self._rest = b""

    def _split(self, chunk: bytes) -> list[Frame]:
        return self._split_from(chunk, 0)

    def _split_behind(self, chunk: bytes) -> list[Frame]:
        self._rest, self._rest_begins = chunk, 0  # a run of it must not come first
        return []

    def _split_from(self, chunk: bytes, position: int) -> list[Frame]:
        if self._shape is not None:
            position = self._cut_run(chunk, position, self._shape)
        frames, position = self._cut(chunk, position, _CUT_BETWEEN_LOOKS)
        if frames and frames[-1][0] != self._header:
            self._header = frames[-1][0]
            left, digits, right = split_at_sequence(self._header)
            self._shape = (left, right) if digits else self._header
        if position < len(chunk):
            self._rest, self._rest_begins = chunk, position
        return frames

    def _cut_run(self, chunk: bytes, position: int, shape: Shape) -> int:
        """Cut the frames of a shape that bytes go on with; tells where they end."""
        if isinstance(shape, bytes):
            bodies, digits, end = cut_run(chunk, position, shape, None, self._limit)
        else:
            left, right = shape
            bodies, digits, end = cut_run(chunk, position, left + SEQUENCE_KEY, right, self._limit)
        if len(bodies):
            self._run = FrameRun(shape, digits, bodies)
        return end
