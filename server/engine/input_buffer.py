"""The input buffer of a session: bytes received from its peer and not executed yet.

    bytes of the socket  ->  chunks  ->  the frames of one chunk  ->  executed, a few at a time

Chunks are split into frames one by one, when all frames before them have been executed: one of
these may decide how the bytes behind it are read. The buffer stays small, since the socket is not
read while there is anything in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amperage.wire.frame_batches import FrameBatch
    from amperage.wire.framing import Frame, FrameSource
    from server.engine.commands.publish_batches import PublishBatcher
    from server.engine.commands.publish_fast_path import ExecuteCallback


class InputBuffer:
    """Buffers the bytes and frames of one connection that are not executed yet.

    Args:
        reader: splits the bytes into frames.

    Attributes:
        reader: splits the bytes into frames.
    """

    def __init__(self, reader: FrameSource) -> None:
        self.reader = reader
        self._chunks: deque[bytes] = deque()
        self._batch: FrameBatch | None = None  # comes before the frames
        self._frames: Sequence[Frame] = ()
        self._position = 0  # of the next message: in the batch, or else in the frames

    @property
    def has_frames(self) -> bool:
        """True if there are frames to execute."""
        return self._batch is not None or self._position < len(self._frames)

    @property
    def has_input(self) -> bool:
        """True if there is input, or an error in it, that has not been handled."""
        reader = self.reader
        return self.has_frames or bool(self._chunks) or reader.has_more or reader.error is not None

    def append_chunk(self, chunk: bytes) -> None:
        """Take bytes from the peer."""
        self._chunks.append(chunk)

    def split_next_chunk(self) -> bool:
        """Split the next bytes into frames, when there are no frames left.

        Returns:
            Whether there were any bytes.
        """
        if self.reader.has_more:
            chunk = b""
        elif self._chunks:
            chunk = self._chunks.popleft()
        else:
            return False
        self._frames = self.reader.feed(chunk)
        self._batch = self.reader.take_batch()
        self._position = 0
        return True

    def clear(self) -> None:
        """Release everything: the connection has ended."""
        self._chunks.clear()
        self._batch, self._frames = None, ()
        self.reader.drop_partial()

    def execute_frames(
        self, max_frames: int, batcher: PublishBatcher, execute: ExecuteCallback
    ) -> int:
        """Execute frames.

        Args:
            max_frames: the maximum number of frames.
            batcher: executes batches of plain publishes.
            execute: executes all other frames; see `PublishHeaderCache.dispatch_frames`.

        Returns:
            The number of frames executed.
        """
        begin = self._position
        if self._batch is None:
            frames = self._frames
            selected = (
                frames
                if max_frames >= len(frames) and not begin
                else frames[begin : begin + max_frames]
            )
            executed = batcher.header_cache.dispatch_frames(selected, batcher.publish, execute)
            self._position = begin + executed
            if self._position == len(frames):  # free the memory for the next frames
                self._frames, self._position = (), 0
            return executed
        batch = self._batch
        executed = batcher.header_cache.dispatch_batch(
            batch.part(begin, max_frames), batcher.publish, execute
        )
        self._position = begin + executed
        if self._position == len(batch.bodies):
            self._batch, self._position = None, 0
        return executed
