"""Splits off batches: consecutive frames with known headers.

Publishers send a few headers over and over, or headers that differ by the values of a message only.
Those that the owner of a reader makes known are split off in C (frame_splitter.pyx), with their
frames, which costs a fraction of finding the end of every header and looking it up. Frames with
other headers are split off by `FrameReader`, a few at a time: then the stream is checked for a
batch again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from amperage.wire.frame_splitter import HeaderShapes, split_known
from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, Frame, FrameParts, FrameReader

_SEQUENCE_KEY: Final = b',"s":'
_MAX_SINGLE_FRAMES: Final = 256
"""Frames that are split off one by one, at most, before the next check for a batch."""
_MIN_BATCH: Final = 4
"""The fewest frames of a batch for which checking again soon pays."""
_MAX_LEARNED: Final = 16
"""Shapes that `FrameBatchReader.learn` keeps."""


class HeaderColumns(NamedTuple):
    """The values that a publisher gives for each message, as they are in the headers.

    Each is empty bytes where a header has none, and an empty sequence if no header has one.

    Attributes:
        sequences: sequence numbers, in digits.
        correlation_ids: correlation ids.
        sow_keys: SOW keys.
        lifetimes: lifetimes in seconds, in digits.
        command_ids: command ids.
    """

    sequences: Sequence[bytes]
    correlation_ids: Sequence[bytes] = ()
    sow_keys: Sequence[bytes] = ()
    lifetimes: Sequence[bytes] = ()
    command_ids: Sequence[bytes] = ()

    @property
    def has_metadata(self) -> bool:
        """True if there are values of messages besides sequence numbers."""
        return bool(self.correlation_ids or self.sow_keys or self.lifetimes)

    def part(self, start: int, end: int) -> HeaderColumns:
        """Return the values of consecutive messages, `start` to before `end`."""
        sequences, *metadata = (column[start:end] for column in self)
        return HeaderColumns(sequences, *(column if any(column) else () for column in metadata))


class FrameBatch(NamedTuple):
    """Consecutive frames with known headers.

    Attributes:
        generation: the generation of the known shapes.
        keys: the index of the shape of each header, or the one that all have.
        headers: the header of each frame.
        values: its values.
        bodies: the body of each frame.
    """

    generation: int
    keys: int | Sequence[int]
    headers: Sequence[bytes]
    values: HeaderColumns
    bodies: Sequence[bytes]

    def part(self, begin: int, most: int) -> FrameBatch:
        """Return at most `most` of the frames, from the index `begin` on."""
        if not begin and most >= len(self.bodies):
            return self
        end = begin + most
        keys = self.keys if isinstance(self.keys, int) else self.keys[begin:end]
        return FrameBatch(
            self.generation,
            keys,
            self.headers[begin:end],
            self.values.part(begin, end),
            self.bodies[begin:end],
        )

    def frames(self) -> Iterator[Frame]:
        """Iterate over the frames one by one: header and body."""
        return zip(self.headers, self.bodies, strict=True)


class FrameBatchReader(FrameReader):
    """Splits a stream of bytes into frames and batches of frames.

    Args:
        limit: the largest frame accepted, in bytes.
        parts: see `FrameReader`.

    Attributes:
        shapes: the shapes of known headers; the owner adds to them.
    """

    def __init__(self, limit: int = MAX_AMPS_FRAME_SIZE, parts: FrameParts | None = None) -> None:
        super().__init__(limit, parts)
        self.shapes: Final = HeaderShapes()
        self._batch: FrameBatch | None = None
        self._rest = b""  # bytes not split yet, from `_rest_start` on
        self._rest_start = 0
        self._single_frames = _MAX_SINGLE_FRAMES  # to split off before the next check for a batch

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames when `feed` is called with no bytes."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the stream. Return some of the frames that they complete.

        The frames of a batch precede them (`take_batch`), others follow in the next call
        (`has_more`).
        """
        if not self._rest:
            return super().feed(chunk)
        rest, begin = self._rest, self._rest_start
        self._rest = b""
        return self._split_from(rest[begin:] + chunk, 0) if chunk else self._split_from(rest, begin)

    def take_batch(self) -> FrameBatch | None:
        """See `FrameReader.take_batch`."""
        batch, self._batch = self._batch, None
        return batch

    def learn(self, header: bytes, prefix: bytes) -> None:
        """Make a header known that has a sequence number, and the same with other values.

        Args:
            header: the header of a frame.
            prefix: headers that do not begin so are not made known.
        """
        is_numbered = header.startswith(prefix) and _SEQUENCE_KEY in header
        if is_numbered and self.shapes.find(header)[0] < 0:
            if len(self.shapes) >= _MAX_LEARNED:
                self.shapes.clear()
            self.shapes.add(header)

    def drop_partial(self) -> None:
        """See `FrameReader.drop_partial`."""
        super().drop_partial()
        self._batch = None
        self._rest = b""

    def _split(self, chunk: bytes) -> list[Frame]:
        return self._split_from(chunk, 0)

    def _split_after_large(self, chunk: bytes) -> list[Frame]:
        self._rest, self._rest_start = chunk, 0  # a batch in it must not precede the large frame
        return []

    def _split_from(self, chunk: bytes, position: int) -> list[Frame]:
        if len(self.shapes):
            position = self._split_batch(chunk, position)
        frames, position = self._split_frames(chunk, position, self._single_frames)
        if position < len(chunk):
            self._rest, self._rest_start = chunk, position
        return frames

    def _split_batch(self, chunk: bytes, position: int) -> int:
        """Split off the frames with known headers at a position. Return where they end."""
        headers, bodies, values, keys, end = split_known(chunk, position, self.shapes, self._limit)
        count = len(bodies)
        if count:
            columns = HeaderColumns(*values)
            self._batch = FrameBatch(self.shapes.generation, keys, headers, columns, bodies)
        if count >= _MIN_BATCH:
            self._single_frames = 1
        else:
            self._single_frames = min(2 * self._single_frames, _MAX_SINGLE_FRAMES)
        return end
