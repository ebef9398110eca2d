"""Compression of a connection: one zlib stream in each direction.

Input is decompressed in pieces of bounded size, so that a few bytes that expand to gigabytes are
never in memory as a whole. Output is flushed at the end of each write, so that nothing written
waits in the compressor.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import FrameError
from amperage.wire.reader_wrapper import ReaderWrapper

if TYPE_CHECKING:
    from amperage.wire.framing import Frame, FrameSource

_MAX_PIECE_SIZE: Final = 64 * 1024


class Compression:
    """The two streams of one connection.

    Attributes:
        has_more: whether the input received so far yields another piece.
    """

    __slots__ = ("_compressor", "_decompressor", "has_more")

    def __init__(self) -> None:
        self._compressor = zlib.compressobj()
        self._decompressor = zlib.decompressobj()
        self.has_more = False

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Decompress bytes received from the peer, piece by piece.

        Raises:
            FrameError: see `decompress_piece`.
        """
        yield self.decompress_piece(data)
        while self.has_more:
            yield self.decompress_piece(b"")

    def decompress_piece(self, data: bytes) -> bytes:
        """Decompress bytes received from the peer, up to the size of one piece.

        Args:
            data: the bytes; empty to continue with earlier ones, while `has_more`.

        Returns:
            The piece, perhaps empty.

        Raises:
            FrameError: the bytes are not a zlib stream, or bytes follow its end.
        """
        decompressor = self._decompressor
        try:
            piece = decompressor.decompress(decompressor.unconsumed_tail + data, _MAX_PIECE_SIZE)
        except zlib.error as error:
            raise FrameError(f"the compressed stream cannot be read: {error}") from None
        if decompressor.unused_data:
            raise FrameError("bytes behind the end of the compressed stream")
        # When a piece is full, zlib may buffer the rest.
        self.has_more = bool(decompressor.unconsumed_tail) or len(piece) == _MAX_PIECE_SIZE
        return piece

    def drop_input(self) -> None:
        """Release input that is not decompressed yet; nothing more is fed."""
        self._decompressor = zlib.decompressobj()
        self.has_more = False

    def compress(self, data: bytes) -> bytes:
        """Compress bytes to be written, with a flush: the peer can decompress all of them."""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)


class CompressedReader(ReaderWrapper):
    """Splits a compressed stream into frames, one piece at a time.

    Args:
        compression: decompresses the stream.
        reader: splits the decompressed bytes.
    """

    def __init__(self, compression: Compression, reader: FrameSource) -> None:
        super().__init__(reader)
        self._compression: Final = compression
        self._error: FrameError | None = None

    @property
    def error(self) -> FrameError | None:
        """The error in the stream; None while it is valid."""
        return self._error or self._reader.error

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames when `feed` is called with no bytes."""
        has_more = self._reader.has_more or self._compression.has_more
        return has_more and self.error is None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the peer. Return the frames that one piece of them completes."""
        if self.error is not None:
            return []
        piece = b""
        if chunk or not self._reader.has_more:
            try:
                piece = self._compression.decompress_piece(chunk)
            except FrameError as error:
                self._error = error
                return []
        return self._reader.feed(piece) if piece or self._reader.has_more else []

    def drop_partial(self) -> None:
        """See `FrameReader.drop_partial`."""
        super().drop_partial()
        self._compression.drop_input()
