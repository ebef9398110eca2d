"""The content of websocket messages: one of three forms, chosen by the peer's first message.

    whole    {"c":"p","t":"orders"}{"id":1}               a header and its body
    split    text                                         once; or: binary
             02 00 00 00                                  how many messages follow, little-endian
             {"c":"p","t":"orders"}
             {"id":1}                                     bodies may come in any number of parts
    stream   00 00 00 1e {"c":"p","t":"orders"}{"id":1}   frames, as connections without HTTP have

Browsers use the split form: they process output message by message, so headers are texts for
JSON.parse, and bodies are texts or buffers, whichever the browser named. The first byte
distinguishes the other two: a frame within the limit begins with a byte of at most 0x0c.

A form converts between messages and the length-prefixed frames that the rest of the server uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, Protocol

import msgspec

from amperage.wire.framing import (
    MAX_AMPS_FRAME_SIZE,
    AmpsFrameParts,
    Frame,
    FrameError,
    FrameReader,
    contents,
    describe_header_error,
    header_end,
)

_LENGTH: Final = Struct(">I")
_COUNT: Final = Struct("<I")
_OPENING_BRACE: Final = ord("{")
_MAX_FIRST_BYTE: Final = MAX_AMPS_FRAME_SIZE >> 24
_MODES: Final = {b"text": True, b"binary": False}
_WITH_BODY: Final = (b'{"c":"p"', b'{"c":"oof"')
_BATCH: Final = b'{"c":"sow"'

WebsocketMessage = tuple[bytes, bool]
"""The content of a websocket message, and whether it is a text message."""


class WebsocketForm(Protocol):
    """Converts between the messages of one connection and frames."""

    @property
    def has_partial_command(self) -> bool:
        """True if the messages stopped inside a command."""

    @property
    def partial_size(self) -> int:
        """Bytes that are buffered of an incomplete command."""

    def drop_partial(self) -> None:
        """Release an incomplete command; nothing more is read."""

    def read(self, message: WebsocketMessage, frames: list[Frame]) -> None:
        """Process a message from the peer.

        Args:
            message: the message.
            frames: the commands that the message completes are appended to it.

        Raises:
            FrameError: it is not the expected message. Commands before it are among the frames.
        """

    def write(self, frames: bytes, *, as_text: bool) -> Iterator[WebsocketMessage]:
        """Yield the messages for frames.

        Args:
            frames: one or more whole frames.
            as_text: whether the connection's message type is a text; ignored by forms in which the
                peer chooses.
        """


class WholeForm:
    """The form in which a message is one header with its body."""

    has_partial_command: Final = False
    partial_size: Final = 0

    def drop_partial(self) -> None:
        """Do nothing: no command is ever incomplete."""

    def read(self, message: WebsocketMessage, frames: list[Frame]) -> None:
        """Process a command. See `WebsocketForm.read`."""
        content, _ = message
        header_end = content.find(b"}") + 1
        if header_end == 0 or content[0] != _OPENING_BRACE:
            raise FrameError(f"a message without a header: {describe_header_error(content)}")
        frames.append((content[:header_end], content[header_end:]))

    def write(self, frames: bytes, *, as_text: bool) -> Iterator[WebsocketMessage]:
        """Yield a message for each frame. See `WebsocketForm.write`."""
        for start, end in contents(frames):
            content = frames[start:end]
            yield content, as_text and is_utf8(content)


class SplitForm:
    """The form in which headers and bodies are separate messages.

    Args:
        text_bodies: whether the peer wants bodies as text messages. One that is not UTF-8 is sent
            as binary all the same, because peers must otherwise fail the connection.
    """

    __slots__ = ("_body", "_header", "_missing_messages", "_text_bodies")

    def __init__(self, *, text_bodies: bool) -> None:
        self._text_bodies = text_bodies
        self._missing_messages = 0  # messages of the current command that have not arrived yet
        self._header: bytes | None = None
        self._body: bytes | bytearray = b""

    @property
    def has_partial_command(self) -> bool:
        """True if the messages stopped inside a command."""
        return self._missing_messages > 0

    @property
    def partial_size(self) -> int:
        """See `WebsocketForm.partial_size`."""
        return len(self._header or b"") + len(self._body)

    def drop_partial(self) -> None:
        """See `WebsocketForm.drop_partial`."""
        self._header, self._body = None, b""

    def read(self, message: WebsocketMessage, frames: list[Frame]) -> None:
        """Process a count, a header or a part of a body, as expected. See `WebsocketForm.read`."""
        content, is_text = message
        if self._missing_messages == 0:
            self._missing_messages = _read_count(content, is_text=is_text)
            return
        if self._header is None:
            self._header = content
        else:
            self._add_part(content)
        self._missing_messages -= 1
        if self._missing_messages == 0:
            frames.append((self._header, bytes(self._body)))
            self._header, self._body = None, b""

    def write(self, frames: bytes, *, as_text: bool) -> Iterator[WebsocketMessage]:  # noqa: ARG002 - the peer chooses
        """Yield header and body of each frame or record of a batch. See `WebsocketForm.write`."""
        for start, end in contents(frames):
            body_start = header_end(frames, start, end)
            yield frames[start:body_start], True
            if frames.startswith(_BATCH, start):
                yield from self._records(frames, body_start, end)
            elif body_start < end or frames.startswith(_WITH_BODY, start):
                yield self._body_message(frames[body_start:end])

    def _add_part(self, part: bytes) -> None:
        """Append a part to the body; the first one, usually the only one, is kept uncopied."""
        if len(self._body) + len(part) > MAX_AMPS_FRAME_SIZE:
            raise FrameError(f"a body over the limit of {MAX_AMPS_FRAME_SIZE} bytes")
        if not self._body:
            self._body = part
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += part

    def _records(self, frames: bytes, position: int, end: int) -> Iterator[WebsocketMessage]:
        while position < end:
            body_start = header_end(frames, position, end)
            header = frames[position:body_start]
            yield header, True
            position = body_start + _decode_record(header).length
            yield self._body_message(frames[body_start:position])

    def _body_message(self, body: bytes) -> WebsocketMessage:
        return body, self._text_bodies and is_utf8(body)


class StreamForm:
    """The form of binary messages with parts of a stream: frames with lengths, split anywhere."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = FrameReader(parts=AmpsFrameParts())

    @property
    def has_partial_command(self) -> bool:
        """True if the messages stopped inside a frame."""
        return self._reader.has_partial_frame

    @property
    def partial_size(self) -> int:
        """See `WebsocketForm.partial_size`."""
        return self._reader.partial_size

    def drop_partial(self) -> None:
        """See `WebsocketForm.drop_partial`."""
        self._reader.drop_partial()

    def read(self, message: WebsocketMessage, frames: list[Frame]) -> None:
        """Process the next bytes of the stream. See `WebsocketForm.read`."""
        frames += self._reader.feed(message[0])
        if self._reader.error is not None:
            raise self._reader.error

    def write(self, frames: bytes, *, as_text: bool) -> Iterator[WebsocketMessage]:  # noqa: ARG002 - lengths are no text
        """Yield a message for each frame, with its length. See `WebsocketForm.write`."""
        for start, end in contents(frames):
            yield frames[start - _LENGTH.size : end], False


def choose_form(message: WebsocketMessage) -> tuple[WebsocketForm, bool]:
    """Detect the form of a peer's first message.

    Returns:
        The form, and whether the message only chooses it: then it is not to be read.
    """
    content, is_text = message
    if content in _MODES:
        return SplitForm(text_bodies=_MODES[content]), True
    if not is_text and content and content[0] <= _MAX_FIRST_BYTE:
        return StreamForm(), False
    return WholeForm(), False


class _RecordHeader(msgspec.Struct):
    """The one key needed of a record's header in a batch: the length of its body."""

    length: int = msgspec.field(name="l")


_decode_record: Final = msgspec.json.Decoder(_RecordHeader).decode


def _read_count(content: bytes, *, is_text: bool) -> int:
    """Return the number of messages of a command after the message with this count."""
    count: int = 0
    if len(content) == _COUNT.size and not is_text:
        (count,) = _COUNT.unpack(content)
    if count == 0:
        raise FrameError(
            "expected a binary message of 4 bytes with the number of messages that follow,"
            f" not {'a text' if is_text else 'one'} of {len(content)} bytes"
        )
    return count


def is_utf8(message: bytes) -> bool:
    """Return whether a message is text in UTF-8."""
    if message.isascii():
        return True
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True
