"""Compression of a connection: one zlib stream in each direction.

What a peer sends is decompressed in pieces of bounded size, so that a few bytes that stand for
gigabytes never exist as such. What it is sent is flushed at the end of each write, so that nothing
that was written waits for more.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import FrameError

if TYPE_CHECKING:
    from amperage.wire.framing import Frame, FrameSource
    from amperage.wire.numbered import FrameRun

_LARGEST_PIECE: Final = 64 * 1024


class Compression:
    """The two streams of one connection.

    Attributes:
        has_more: whether what the peer has sent gives another piece.
    """

    __slots__ = ("_compressor", "_decompressor", "has_more")

    def __init__(self) -> None:
        self._compressor = zlib.compressobj()
        self._decompressor = zlib.decompressobj()
        self.has_more = False

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Decompress what a peer sent, piece by piece.

        Raises:
            FrameError: see `decompress_piece`.
        """
        yield self.decompress_piece(data)
        while self.has_more:
            yield self.decompress_piece(b"")

    def decompress_piece(self, data: bytes) -> bytes:
        """Decompress what a peer sent, as far as that goes in one piece.

        Args:
            data: what came; nothing to go on with what came before, when `has_more`.

        Returns:
            The piece, perhaps nothing.

        Raises:
            FrameError: the bytes are no zlib stream, or there are more behind its end.
        """
        decompressor = self._decompressor
        try:
            piece = decompressor.decompress(decompressor.unconsumed_tail + data, _LARGEST_PIECE)
        except zlib.error as error:
            raise FrameError(f"the compressed stream cannot be read: {error}") from None
        if decompressor.unused_data:
            raise FrameError("bytes behind the end of the compressed stream")
        # When a piece is full, zlib may hold back the rest.
        self.has_more = bool(decompressor.unconsumed_tail) or len(piece) == _LARGEST_PIECE
        return piece

    def drop(self) -> None:
        """Let go of what has not been decompressed; nothing more is."""
        self._decompressor = zlib.decompressobj()
        self.has_more = False

    def compress(self, data: bytes) -> bytes:
        """Compress what is to be written; the peer can read all of it when it has arrived."""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)


class CompressedReader:
    """Cuts a compressed stream into frames, one piece at a time; see `FrameReader`.

    Args:
        compression: decompresses the stream.
        reader: cuts what that gives.

    Attributes:
        error: what was found instead of a frame; None while the stream is good.
    """

    __slots__ = ("_compression", "_reader", "error")

    def __init__(self, compression: Compression, reader: FrameSource) -> None:
        self._compression = compression
        self._reader = reader
        self.error: FrameError | None = None

    @property
    def has_partial_frame(self) -> bool:
        """Whether the stream stopped inside a frame."""
        return self._reader.has_partial_frame

    @property
    def partial_size(self) -> int:
        """Bytes that are kept of a frame that is not complete."""
        return self._reader.partial_size

    @property
    def has_more(self) -> bool:
        """Whether bytes that it has taken may give more frames when it is fed nothing."""
        has_more = self._reader.has_more or self._compression.has_more
        return has_more and self.error is None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes from the peer, and give the frames completed by a piece of them."""
        if self.error is not None:
            return []
        piece = b""
        if chunk or not self._reader.has_more:
            try:
                piece = self._compression.decompress_piece(chunk)
            except FrameError as error:
                self.error = error
                return []
        frames = self._reader.feed(piece) if piece or self._reader.has_more else []
        self.error = self._reader.error
        return frames

    def take_run(self) -> FrameRun | None:
        """See `FrameReader.take_run`."""
        return self._reader.take_run()

    def drop(self) -> None:
        """See `FrameReader.drop`."""
        self._reader.drop()
        self._compression.drop()
