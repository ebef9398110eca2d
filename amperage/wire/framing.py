"""Frames of the amps protocol: a 4-byte big-endian length, a flat JSON header, then the body.

    00 00 00 25 {"c":"p","t":"orders"}{"id":1,"qty":5}
    length      header                body

`FrameReader` receives the bytes read from a socket and returns complete frames in batches. It finds
the end of a header by its first closing brace, which is right for every header without a brace in a
string; the few others fail to decode, and then `split_at_header_end` divides them exactly. Most
publishers repeat one header: once it has come twice, a frame that begins with it needs no search,
and shares the header object with its cached hash.

A frame that arrives in many parts is joined when it is complete. The body of a large one is
assembled part by part instead: to copy 190 MB at once would delay all other clients. If a header
exceeds the length of any valid command, it is refused in the end, and its middle is dropped as it
arrives (`AmpsFrameParts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import chain
from operator import add
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, cast

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from amperage.wire.frame_batches import FrameBatch

_LENGTH: Final = Struct(">I")
_OPENING_BRACE: Final = ord("{")
_SMALL_PART: Final = 4096
_LARGE_FRAME: Final = 1024 * 1024
"""Bytes of a frame from which on its body is assembled part by part."""
MAX_AMPS_FRAME_SIZE: Final = 200 * 1024 * 1024
MAX_BUFFERED_HEADER_SIZE: Final = 5 * 256 * 1024
"""Bytes of a header up to which it is kept whole: more than the server accepts in any command."""

# A flat JSON object: strings with escapes, and anything else that is neither quote nor brace. The
# quantifiers are possessive, so that a hostile header costs linear time.
_FLAT_OBJECT: Final = re.compile(rb'\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}', re.DOTALL)

Frame = tuple[bytes, bytes]
"""Header and body of one frame."""


class FrameError(ValueError):
    """Invalid bytes in place of a frame. The rest of the stream cannot be trusted.

    The text goes to the log and to the peer. It names the problem and its position, and quotes
    nothing: the bytes may be a logon, with the password among the first of them.
    """


class LongHeaderError(ValueError):
    """A header that does not end within the length that is searched."""


class FrameSource(Protocol):
    """Splits input from a peer into frames: `FrameReader` for streams, or another framing."""

    @property
    def error(self) -> FrameError | None:
        """The error in the input; None while the bytes are valid."""

    @property
    def has_partial_frame(self) -> bool:
        """True if the bytes stopped inside a frame."""

    @property
    def partial_size(self) -> int:
        """Bytes that are buffered of an incomplete frame."""

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames when `feed` is called with no bytes."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the peer. Return the frames that they complete."""

    def take_batch(self) -> FrameBatch | None:
        """See `FrameReader.take_batch`."""

    def drop_partial(self) -> None:
        """Release the buffered part of an incomplete frame; nothing more is fed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameParts:
    """The parts of an incomplete frame.

    Attributes:
        size: bytes that are buffered.
    """

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: bytes) -> None:
        """Append a part; small ones are joined, because a frame may arrive in a million parts."""
        self.size += len(part)
        if len(part) > _SMALL_PART:
            self._parts.append(part)
        elif self._parts and isinstance(last := self._parts[-1], bytearray):
            last += part
        else:
            self._parts.append(bytearray(part))

    def join(self) -> bytes:
        """Return all parts as one."""
        return b"".join(self._parts)

    def clear(self) -> None:
        """Start again for another frame."""
        self._parts.clear()
        self.size = 0


class AmpsFrameParts(FrameParts):
    """Parts of a frame of the amps protocol; of an overlong header, only both ends are kept.

    The ends contain the keys needed for an answer. A header cannot end before its first closing
    brace.
    """

    def __init__(self) -> None:
        super().__init__()
        self._may_be_whole = False  # True once the header may have ended
        self._end = b""  # the latest bytes of an overlong header
        self._removed_bytes = 0  # bytes dropped from such a header

    def add(self, part: bytes) -> None:
        """Add a part. See `FrameParts.add`."""
        if not self._may_be_whole:
            self._may_be_whole = b"}" in part
            if not self._may_be_whole and self.size >= MAX_BUFFERED_HEADER_SIZE:
                rest = self._end + part
                self._end = rest[-_SMALL_PART:]
                self._removed_bytes += len(rest) - len(self._end)
                return
        if self._end:
            super().add(self._end)
            self._end = b""
        super().add(part)

    def join(self) -> bytes:
        """Return the bytes kept, with the frame's length reduced accordingly."""
        whole = super().join()
        if self._end or self._removed_bytes:
            (length,) = _LENGTH.unpack_from(whole)
            whole = _LENGTH.pack(length - self._removed_bytes) + whole[_LENGTH.size :] + self._end
        return whole

    def clear(self) -> None:
        """Start again for another frame."""
        super().clear()
        self._may_be_whole, self._end, self._removed_bytes = False, b"", 0


class LargeFrame:
    """A large frame that is not complete.

    Args:
        header: its header.
        body: the received part of its body.
        missing_bytes: bytes of the body that have not arrived.

    Attributes:
        header: see above.
        missing_bytes: see above.
    """

    def __init__(self, header: bytes, body: bytes, missing_bytes: int) -> None:
        self.header = header
        self.missing_bytes = missing_bytes
        self._body = BytesIO()  # grows without copies, and getvalue() returns its memory uncopied
        self._body.write(body)

    @property
    def size(self) -> int:
        """Bytes that are buffered."""
        return len(self.header) + self._body.tell()

    def add(self, chunk: bytes) -> bytes:
        """Append the bytes that belong to the body. Return the bytes after them."""
        if len(chunk) <= self.missing_bytes:
            self._body.write(chunk)
            self.missing_bytes -= len(chunk)
            return b""
        self._body.write(memoryview(chunk)[: self.missing_bytes])
        rest = chunk[self.missing_bytes :]
        self.missing_bytes = 0
        return rest

    def to_frame(self) -> Frame:
        """Return the complete frame."""
        return self.header, self._body.getvalue()


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameReader:
    """Splits a stream of bytes into frames.

    Args:
        limit: the largest frame accepted, in bytes (AMPS User Guide, Message Size Limits).
        parts: buffers the parts of an incomplete frame.

    Attributes:
        error: the error in the stream; None while it is valid. Frames before the error are
            returned, bytes after it are ignored.
    """

    def __init__(self, limit: int = MAX_AMPS_FRAME_SIZE, parts: FrameParts | None = None) -> None:
        self._limit = limit
        self._partial = FrameParts() if parts is None else parts
        self._missing_bytes = 0  # bytes to wait for before the parts are examined again
        self._large: LargeFrame | None = None
        self.error: FrameError | None = None

    @property
    def has_partial_frame(self) -> bool:
        """True if the stream stopped inside a frame."""
        return bool(self._partial) or self._large is not None

    @property
    def partial_size(self) -> int:
        """Bytes that are buffered of an incomplete frame."""
        return self._partial.size if self._large is None else self._large.size

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the stream.

        Args:
            chunk: any number of bytes, split anywhere.

        Returns:
            The frames that they complete, in order.
        """
        if self.error is not None:
            return []
        if self._large is not None:
            return self._feed_large(self._large, chunk)
        if self._partial:
            self._partial.add(chunk)
            self._missing_bytes -= len(chunk)
            if self._missing_bytes > 0:
                return []
            chunk = self._partial.join()
            self.drop_partial()
        return self._split(chunk)

    @property
    def has_more(self) -> bool:
        """True if buffered bytes may yield more frames; never here, `feed` returns all of them."""
        return False

    def drop_partial(self) -> None:
        """Release an incomplete frame; nothing more is fed."""
        self._partial.clear()
        self._large = None

    def take_batch(self) -> FrameBatch | None:
        """Return frames that precede those of `feed`; only a `FrameBatchReader` has any."""
        return None

    def _split(self, chunk: bytes) -> list[Frame]:
        """Split bytes that begin at the start of a frame."""
        frames, _ = self._split_frames(chunk, 0, len(chunk))
        return frames

    def _split_after_large(self, chunk: bytes) -> list[Frame]:
        """Split bytes that follow a frame; that frame is returned before theirs."""
        return self._split(chunk)

    def _feed_large(self, large: LargeFrame, chunk: bytes) -> list[Frame]:
        rest = large.add(chunk)
        if large.missing_bytes:
            return []
        self._large = None
        frames = [large.to_frame()]
        if rest:
            frames += self._split_after_large(rest)
        return frames

    def _split_frames(self, chunk: bytes, position: int, most: int) -> tuple[list[Frame], int]:
        """Split off frames one by one.

        Args:
            chunk: bytes of the stream.
            position: the start of a frame.
            most: the maximum number of frames.

        Returns:
            The frames, and the start of the next one. After an error, or if the next one is
            incomplete and buffered, the end of the bytes.
        """
        frames: list[Frame] = []
        append, find, length_at, limit = frames.append, chunk.find, _LENGTH.unpack_from, self._limit
        begins = chunk.startswith
        header, header_length, repeats = b"", 0, False  # of the previous frame
        size = len(chunk)
        while size - position >= 4:
            if len(frames) == most:
                return frames, position
            start = position + 4
            (length,) = length_at(chunk, position)
            end = start + length
            if length > limit:
                self.error = FrameError(f"a frame of {length} bytes is over the limit of {limit}")
                return frames, size
            if end > size:
                if length < _LARGE_FRAME or not self._begin_large(chunk, start, end):
                    self._buffer_partial(end - size, chunk, position)
                return frames, size
            if repeats and begins(header, start, end):
                body_start = start + header_length
            else:
                body_start = find(b"}", start, end) + 1
                if body_start == 0 or chunk[start] != _OPENING_BRACE:
                    problem = describe_header_error(chunk[start : min(end, start + 1)])
                    self.error = FrameError(f"a frame without a header: {problem}")
                    return frames, size
                found = chunk[start:body_start]
                repeats = found == header
                header, header_length = found, len(found)
            append((header, chunk[body_start:end]))
            position = end
        if position < size:
            self._buffer_partial(4 - (size - position), chunk, position)
        return frames, size

    def _begin_large(self, chunk: bytes, start: int, end: int) -> bool:
        """Begin to buffer a large frame of which a part has arrived.

        Args:
            chunk: its first part, from `start` on.
            start: where its header begins.
            end: where it will end.

        Returns:
            False if it has to be joined when it is complete, because its header is wrong or does
            not end within the limit.
        """
        size = len(chunk)
        if size > start and chunk[start] != _OPENING_BRACE:
            return False
        body_start = chunk.find(b"}", start) + 1
        if body_start:
            self._large = LargeFrame(chunk[start:body_start], chunk[body_start:], end - size)
            return True
        come = size - start
        if come >= MAX_BUFFERED_HEADER_SIZE:
            return False
        # Double the amount each time, so that the searches take time linear in the header's length.
        self._buffer_partial(min(end - size, max(come, _SMALL_PART)), chunk, start - _LENGTH.size)
        return True

    def _buffer_partial(self, missing: int, chunk: bytes, position: int) -> None:
        self._missing_bytes = missing
        self._partial.add(chunk[position:] if position else chunk)


def frame(header: bytes, body: bytes = b"") -> bytes:
    """Encode a header and a body as one frame."""
    return _LENGTH.pack(len(header) + len(body)) + header + body


def frame_all(headers: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Encode headers and bodies as consecutive frames."""
    lengths = map(_LENGTH.pack, map(add, map(len, headers), map(len, bodies)))
    return b"".join(chain.from_iterable(zip(lengths, headers, bodies, strict=True)))


def frame_batch(
    template: bytes, bodies: Sequence[bytes], columns: Sequence[Sequence[int | bytes]]
) -> bytes:
    """Encode bodies as consecutive frames with headers made from a template.

    Numbers of one publisher nearly always have as many digits as the one before. Then the length of
    a frame follows from the length of its body, and all frames are formatted in one operation.

    Args:
        template: a header with a % in place of the body's length, and then one for each column.
        bodies: the bodies.
        columns: the values for the template, one column per %.
    """
    if len(bodies) == 1:
        (body,) = bodies
        size = len(body)
        return frame_head(template % (size, *[column[0] for column in columns]), size) + body
    sizes = list(map(len, bodies))
    if max(sizes) > _SMALL_PART or not all(map(_is_of_one_width, columns)):
        headers = [template % values for values in zip(sizes, *columns, strict=True)]
        return frame_all(headers, bodies)
    rest = len(template % (0, *[column[0] for column in columns])) - 1
    frames = {}
    for size in set(sizes):
        head = _LENGTH.pack(rest + len(b"%d" % size) + size)
        frames[size] = head.replace(b"%", b"%%") + template + b"%b"
    values = chain.from_iterable(zip(sizes, *columns, bodies, strict=True))
    return b"".join(map(frames.__getitem__, sizes)) % tuple(values)


def _is_of_one_width(column: Sequence[int | bytes]) -> bool:
    if isinstance(column[0], int):
        numbers = cast("Sequence[int]", column)
        return len(b"%d" % min(numbers)) == len(b"%d" % max(numbers))
    return len(set(map(len, cast("Sequence[bytes]", column)))) == 1


def describe_header_error(content: bytes) -> str:
    """Return why bytes do not begin with a header, without quoting them (see `FrameError`)."""
    if not content:
        return "it is empty"
    if content[0] != _OPENING_BRACE:
        return f"it begins with the byte 0x{content[0]:02x}, expected 0x{_OPENING_BRACE:02x}"
    return "it is nested, or does not end"


def frame_head(header: bytes, body_length: int) -> bytes:
    """Return the bytes before a body of `body_length` bytes: the length and the header."""
    return _LENGTH.pack(len(header) + body_length) + header


def contents(frames: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each frame's content: header and body, without the length."""
    position, size = 0, len(frames)
    while position < size:
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(frames, position)[0]
        yield start, position


def header_end(content: bytes, start: int, end: int) -> int:
    """Return the end of a header written by this server: its first brace outside a string.

    Args:
        content: holds the header.
        start: where it begins.
        end: the limit of the search.
    """
    brace = content.index(b"}", start, end) + 1
    if content.count(b'"', start, brace) % 2 == 0 and content.find(b"\\", start, brace) < 0:
        return brace
    header, _ = split_at_header_end(b"", content[start:end])
    return start + len(header)


def split_at_header_end(header: bytes, body: bytes, most: int = MAX_AMPS_FRAME_SIZE) -> Frame:
    """Divide a frame again whose header was split at a brace inside a string.

    Args:
        header: the header as the reader split it.
        body: the rest of the frame, which the reader took for the body.
        most: the number of bytes to search.

    Returns:
        The whole header, and the body after it.

    Raises:
        FrameError: the frame does not begin with a flat JSON object.
        LongHeaderError: the object does not end within the bytes searched.
    """
    size = len(header)
    content = header + body[: max(most - size, 0)]
    match = _FLAT_OBJECT.match(content)
    if match is None and len(content) < size + len(body):
        raise LongHeaderError
    if match is None:
        raise FrameError(f"the header is not a flat JSON object: {describe_header_error(content)}")
    return content[: match.end()], body[match.end() - size :]
