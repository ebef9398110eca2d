"""What a peer has sent and its session has not obeyed yet.

    bytes of the socket  ->  chunks  ->  the frames of one chunk  ->  obeyed, a few at a time

Chunks become frames one by one, when all frames before them have been obeyed: what one of these
says may decide how the bytes behind it are read. An inbox holds little, for its session has the
socket read no further while there is anything in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amperage.wire.framing import Frame, FrameSource
    from amperage.wire.numbered import FrameRun
    from server.commands.plain_publish import Obey
    from server.commands.publish_runs import PublishRuns


class Inbox:
    """The unread bytes and frames of one connection.

    Args:
        reader: cuts the bytes into frames.

    Attributes:
        reader: see above.
    """

    __slots__ = ("_chunks", "_frames", "_position", "_run", "reader")

    def __init__(self, reader: FrameSource) -> None:
        self.reader = reader
        self._chunks: deque[bytes] = deque()
        self._run: FrameRun | None = None  # comes before the frames
        self._frames: Sequence[Frame] = ()
        self._position = 0  # of the run, or if there is none of the frames, what comes next

    @property
    def has_frames(self) -> bool:
        """Whether there are frames that have been cut."""
        return self._run is not None or self._position < len(self._frames)

    @property
    def has_something(self) -> bool:
        """Whether there is anything left to be done about what the peer has sent."""
        reader = self.reader
        return self.has_frames or bool(self._chunks) or reader.has_more or reader.error is not None

    def put(self, chunk: bytes) -> None:
        """Take bytes from the peer."""
        self._chunks.append(chunk)

    def cut(self) -> bool:
        """Cut the next bytes into frames, when there are no frames left.

        Returns:
            Whether there was anything to be cut.
        """
        if self.reader.has_more:
            chunk = b""
        elif self._chunks:
            chunk = self._chunks.popleft()
        else:
            return False
        self._frames = self.reader.feed(chunk)
        self._run = self.reader.take_run()
        self._position = 0
        return True

    def drop(self) -> None:
        """Let go of everything: the connection has ended."""
        self._chunks.clear()
        self._run, self._frames = None, ()
        self.reader.drop()

    def obey(self, most: int, runs: PublishRuns, obey: Obey) -> int:
        """Obey what has been cut.

        Args:
            most: how many frames at most.
            runs: takes runs of plain publishes.
            obey: takes all other frames; see `PlainPublishes.gather`.

        Returns:
            How many frames it was.
        """
        begin = self._position
        if self._run is None:
            frames = self._frames
            some = frames if most >= len(frames) and not begin else frames[begin : begin + most]
            done = runs.known.gather(some, runs.publish, obey)
            self._position = begin + done
            if self._position == len(frames):  # the memory is needed for what comes next
                self._frames, self._position = (), 0
            return done
        run = self._run
        done = runs.known.take(run.part(begin, most), runs.publish, obey)
        self._position = begin + done
        if self._position == len(run.bodies):
            self._run, self._position = None, 0
        return done
