"""What cuts the bytes of a connection into frames, whatever the connection's framing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.wire.framing import Frame, FrameError
    from server.wire.runs import NumberedRun


class FrameSource(Protocol):
    """Cuts what a peer sends into frames: `FrameReader` for streams, or one of another framing."""

    @property
    def error(self) -> FrameError | None:
        """What was found instead of a frame; None while the bytes are good."""

    @property
    def has_partial_frame(self) -> bool:
        """Whether the bytes stopped inside a frame."""

    @property
    def partial_size(self) -> int:
        """Bytes that are kept of a frame that is not complete."""

    @property
    def has_more(self) -> bool:
        """Whether bytes that it has taken may give more frames when it is fed nothing."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes from the peer, and give the frames completed by them."""

    def take_run(self) -> NumberedRun | None:
        """See `FrameReader.take_run`."""

    def drop(self) -> None:
        """Let go of what has come of a frame that is not complete; nothing more is fed."""
