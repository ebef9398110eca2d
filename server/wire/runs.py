"""Frames that differ by a sequence number only: cut out of the stream and recognised in one go.

Most publishers that number their messages send one header over and over, but for the number. Once
such a header has come, what the stream goes on with is compared with what stands around its number,
which costs a fraction of looking for the end of every header and looking the header up. A publisher
whose headers differ in other ways has its frames cut one by one, as `FrameReader` does.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from server.wire.framing import MAXIMUM_FRAME, Frame, FrameReader, Parts
from server.wire.numbered import MOST_DIGITS, SEQUENCE_KEY, NumberedRun, split_at_sequence

_LENGTH: Final = Struct(">I")


class RunReader(FrameReader):
    """Cuts a stream of bytes into frames, and the runs at its beginning.

    Args:
        limit: the largest frame accepted, in bytes.
        parts: see `FrameReader`.
    """

    __slots__ = ("_header", "_run", "_shape")

    def __init__(self, limit: int = MAXIMUM_FRAME, parts: Parts | None = None) -> None:
        super().__init__(limit, parts)
        self._header = b""  # the last one that came with a single frame
        self._shape: tuple[bytes, bytes] | None = None  # its shape, if it has a number
        self._run: NumberedRun | None = None

    def take_run(self) -> NumberedRun | None:
        """See `FrameReader.take_run`."""
        run, self._run = self._run, None
        return run

    def drop(self) -> None:
        """See `FrameReader.drop`."""
        super().drop()
        self._run = None

    def _split(self, chunk: bytes) -> list[Frame]:
        if self._shape is not None:
            run, end = self._cut_run(chunk, self._shape)
            if run.digits:
                self._run = run
                if end == len(chunk):
                    return []
                chunk = chunk[end:]
        frames = super()._split(chunk)
        if frames and frames[-1][0] != self._header:
            self._header = frames[-1][0]
            left, digits, right = split_at_sequence(self._header)
            self._shape = (left, right) if digits else None
        return frames

    def _cut_run(self, chunk: bytes, shape: tuple[bytes, bytes]) -> tuple[NumberedRun, int]:
        """Cut whole frames of a shape off the beginning of some bytes; tells where they end."""
        run = NumberedRun(shape, [], [])
        add_digits, add_body, find = run.digits.append, run.bodies.append, chunk.find
        left, right = shape[0] + SEQUENCE_KEY, shape[1]
        right_size, size = len(right), len(chunk)
        head, head_size = b"", _LENGTH.size + len(left)  # the length, and what stands left
        position = length = width = 0  # width: digits of the number before
        while size - position >= _LENGTH.size:
            start = position + head_size
            if chunk[position:start] != head:
                head = chunk[position:start]
                (length,) = _LENGTH.unpack_from(head)
                if length > self._limit or head[_LENGTH.size :] != left:
                    break
            end = position + _LENGTH.size + length
            behind = start + width
            body = behind + right_size
            if end > size:
                break
            if body > end or chunk[behind:body] != right:
                body = find(b"}", start, end) + 1
                behind = body - right_size
                width = behind - start
                if not (0 < width <= MOST_DIGITS and chunk[behind:body] == right):
                    break
            digits = chunk[start:behind]
            if digits < b"1" or not digits.isdigit():
                break
            add_digits(digits)
            add_body(chunk[body:end])
            position = end
        return run, position
