"""Compression of a connection: one zlib stream in each direction.

What a peer sends is decompressed in pieces of bounded size, so that a few bytes that stand for
gigabytes never exist as such. What it is sent is flushed at the end of each write, so that nothing
that was written waits for more.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from server.wire.framing import FrameError

_LARGEST_PIECE: Final = 256 * 1024


class Compression:
    """The two streams of one connection."""

    __slots__ = ("_compressor", "_decompressor")

    def __init__(self) -> None:
        self._compressor = zlib.compressobj()
        self._decompressor = zlib.decompressobj()

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Decompress what a peer sent, piece by piece.

        Raises:
            FrameError: the bytes are no zlib stream, or there are more behind its end.
        """
        decompressor = self._decompressor
        has_more = True
        while has_more:
            try:
                piece = decompressor.decompress(data, _LARGEST_PIECE)
            except zlib.error as error:
                raise FrameError(f"the compressed stream cannot be read: {error}") from None
            if decompressor.unused_data:
                raise FrameError("bytes behind the end of the compressed stream")
            data = decompressor.unconsumed_tail
            has_more = bool(data) or len(piece) == _LARGEST_PIECE  # zlib may hold back the rest
            if piece:
                yield piece

    def compress(self, data: bytes) -> bytes:
        """Compress what is to be written; the peer can read all of it when it has arrived."""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
