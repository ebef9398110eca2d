"""The base of readers that change how another reader splits input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amperage.wire.frame_batches import FrameBatch
    from amperage.wire.framing import Frame, FrameError, FrameSource


class ReaderWrapper:
    """Passes all calls on to another reader; see `FrameSource`.

    Args:
        reader: splits the input.
    """

    def __init__(self, reader: FrameSource) -> None:
        self._reader: Final = reader

    @property
    def error(self) -> FrameError | None:
        """The error in the input; None while the bytes are valid."""
        return self._reader.error

    @property
    def has_partial_frame(self) -> bool:
        """True if the bytes stopped inside a frame."""
        return self._reader.has_partial_frame

    @property
    def partial_size(self) -> int:
        """Bytes that are buffered of an incomplete frame."""
        return self._reader.partial_size

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames when `feed` is called with no bytes."""
        return self._reader.has_more

    def feed(self, chunk: bytes) -> list[Frame]:
        """See `FrameReader.feed`."""
        return self._reader.feed(chunk)

    def take_batch(self) -> FrameBatch | None:
        """See `FrameReader.take_batch`."""
        return self._reader.take_batch()

    def drop_partial(self) -> None:
        """See `FrameReader.drop_partial`."""
        self._reader.drop_partial()
