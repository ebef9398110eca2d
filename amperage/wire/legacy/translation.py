"""The common part of both ends of a connection of a legacy protocol.

Messages are split off the stream by their lengths, and frames of the amps protocol are decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from typing import Final

import msgspec

from amperage.wire.framing import (
    MAX_AMPS_FRAME_SIZE,
    Frame,
    FrameError,
    FrameReader,
    split_at_header_end,
)
from amperage.wire.legacy.dialect import Dialect

LENGTH: Final = Struct(">I")
"""The length before each message, and before each frame."""

HeaderFields = dict[str, object]
"""The fields of a header of the amps protocol, by their keys."""

_decode_fields: Final = msgspec.json.Decoder(HeaderFields).decode


class LegacyMessageReader(FrameReader, ABC):
    """Splits messages of a legacy protocol off a stream, and translates them to amps frames.

    Args:
        dialect: the format of the messages.
        limit: the maximum size of a message, in bytes.
    """

    __slots__ = ("_dialect",)

    def __init__(self, dialect: Dialect, limit: int = MAX_AMPS_FRAME_SIZE) -> None:
        super().__init__(limit)
        self._dialect = dialect

    @abstractmethod
    def _translate(self, message: bytes) -> Frame:
        """Translate a message to a frame.

        Raises:
            FrameError: it is not a message of the protocol.
        """

    def _split(self, chunk: bytes) -> list[Frame]:
        """Split messages off the stream, and translate them."""
        frames: list[Frame] = []
        position, size = 0, len(chunk)
        while size - position >= LENGTH.size:
            start = position + LENGTH.size
            end = start + LENGTH.unpack_from(chunk, position)[0]
            if end - start > self._limit:
                self.error = FrameError(
                    f"a message of {end - start} bytes is over the limit of {self._limit}"
                )
                return frames
            if end > size:
                self._buffer_partial(end - size, chunk, position)
                return frames
            try:
                frames.append(self._translate(chunk[start:end]))
            except FrameError as error:
                self.error = error
                return frames
            position = end
        if position < size:
            self._buffer_partial(LENGTH.size - (size - position), chunk, position)
        return frames


def first_frame(frames: bytes, position: int) -> tuple[bytes, bytes, int]:
    """Split the frame at a position off consecutive whole frames.

    Args:
        frames: the frames.
        position: where the frame begins.

    Returns:
        The bytes up to the first closing brace, which nearly always are the header, the rest of the
        frame, and where the next one begins.
    """
    start = position + LENGTH.size
    end = start + LENGTH.unpack_from(frames, position)[0]
    header_end = frames.index(b"}", start) + 1
    return frames[start:header_end], frames[header_end:end], end


def open_header(header: bytes, body: bytes) -> tuple[HeaderFields, bytes, bytes]:
    """Decode a header of our own that may have been split at a brace inside a text.

    Returns:
        The fields of the header, the whole header, and the body.
    """
    try:
        return _decode_fields(header), header, body
    except msgspec.DecodeError:
        header, body = split_at_header_end(header, body)
        return _decode_fields(header), header, body
