"""The server's side of one connection of a legacy protocol, without I/O.

Input from the peer is translated to frames of the amps protocol, and such frames to output.
Publishers send one header over and over, and so does the server: translated headers are cached in
both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, Frame
from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.fields import as_amps, is_true
from amperage.wire.legacy.translation import (
    LENGTH,
    HeaderFields,
    LegacyMessageReader,
    first_frame,
    open_header,
)

_PUBLISHES: Final = ("publish", "p", "delta_publish")
_SUBSCRIBES: Final = (
    "subscribe",
    "delta_subscribe",
    "sow_and_subscribe",
    "sow_and_delta_subscribe",
)
_MAX_WRAPPINGS_KEPT: Final = 1024
_MAX_HEADER_KEPT_LENGTH: Final = 512
_MAX_DATA_ONLY: Final = 10_000

_Wrapping = tuple[bytes, bytes]
_encode_fields: Final = msgspec.json.encode


class LegacyPeer(LegacyMessageReader):
    """Translates between a peer of a legacy protocol and the amps protocol.

    Args:
        dialect: the format of the peer's messages.
        limit: the maximum size of a message, in bytes.
    """

    __slots__ = ("_data_only", "_generated_id_count", "_last_header", "_last_start", "_wrappings")

    def __init__(self, dialect: Dialect, limit: int = MAX_AMPS_FRAME_SIZE) -> None:
        super().__init__(dialect, limit)
        self._last_start: bytes | None = None  # a publish up to its body, and its translation
        self._last_header = b""
        self._wrappings: dict[tuple[bytes, int], _Wrapping] = {}
        self._data_only: set[str] = set()  # subscriptions to bodies without headers
        self._generated_id_count = 0

    def encode(self, frames: bytes) -> bytes:
        """Encode frames of the amps protocol as messages for the peer.

        Args:
            frames: one or more whole frames.
        """
        messages = []
        position, size = 0, len(frames)
        while position < size:
            header, body, position = first_frame(frames, position)
            messages += self._encode_frame(header, body)
        return b"".join(messages)

    def _translate(self, message: bytes) -> Frame:
        dialect = self._dialect
        last_start = self._last_start
        if last_start is not None and message.startswith(last_start):
            return self._last_header, dialect.body(message, len(last_start))
        fields, body_start = dialect.read(message)
        header = as_amps(fields)
        self._apply_form_settings(header)
        encoded = _encode_fields(header)
        if body_start is None:
            return encoded, b""
        if header.get("c") in _PUBLISHES and body_start <= _MAX_HEADER_KEPT_LENGTH:
            self._last_start, self._last_header = message[:body_start], encoded
        return encoded, dialect.body(message, body_start)

    def _apply_form_settings(self, header: dict[str, str]) -> None:
        """Remove the settings for the form of messages from a command's header, and apply them."""
        use_namespaces = header.pop("use_ns", None)
        if use_namespaces is not None:
            self._dialect = self._dialect.with_namespaces(declared=is_true(use_namespaces))
            self._wrappings.clear()
        data_only = is_true(header.pop("data_only", ""))
        command = header.get("c")
        if command in _SUBSCRIBES:
            self._record_data_only(header, data_only=data_only)
        elif command == "unsubscribe":
            ended = {sub_id.strip() for sub_id in header.get("sub_id", "").split(",")}
            self._data_only = set() if ended == {"all"} else self._data_only - ended

    def _record_data_only(self, header: dict[str, str], *, data_only: bool) -> None:
        self._wrappings.clear()
        if data_only and len(self._data_only) < _MAX_DATA_ONLY:
            self._data_only.add(header.setdefault("sub_id", header.get("cid") or self._make_id()))
        else:
            self._data_only.discard(header.get("sub_id") or header.get("cid", ""))

    def _make_id(self) -> str:
        self._generated_id_count += 1
        return f"data-only-{self._generated_id_count}"

    def _encode_frame(self, header: bytes, body: bytes) -> list[bytes]:
        """Return the messages for a frame: one, or one for each record of a batch."""
        embedded = self._dialect.embed(body)
        wrapping = self._wrappings.get((header, len(embedded)))
        if wrapping is not None:
            return [_framed(wrapping, embedded)]
        fields, whole_header, body = open_header(header, body)
        if fields.get("c") == "sow":
            return [
                self._encode_message({**fields, **record, "bs": 1}, record_body)
                for record, record_body in _records(body)
            ]
        message = self._encode_message(fields, body)
        if whole_header == header:
            self._cache_wrapping(header, fields, len(embedded))
        return [message]

    def _encode_message(self, fields: HeaderFields, body: bytes) -> bytes:
        embedded = self._dialect.embed(body)
        return _framed(self._make_wrapping(fields, len(embedded)), embedded)

    def _cache_wrapping(self, header: bytes, fields: HeaderFields, body_length: int) -> None:
        if len(self._wrappings) >= _MAX_WRAPPINGS_KEPT:
            self._wrappings.clear()
        self._wrappings[header, body_length] = self._make_wrapping(fields, body_length)

    def _make_wrapping(self, fields: HeaderFields, body_length: int) -> _Wrapping:
        """Return the bytes before and after a body of a message with these fields."""
        if fields.get("c") == "p":
            if self._data_only.issuperset(str(fields.get("sids", "")).split(",")):
                return b"", b""
            fields = {**fields, "c": "publish"}
        if "l" in fields:
            fields = {**fields, "l": body_length}
        head = self._dialect.write((key, str(value)) for key, value in fields.items())
        return head, self._dialect.tail


def _framed(wrapping: _Wrapping, body: bytes) -> bytes:
    head, tail = wrapping
    return LENGTH.pack(len(head) + len(body) + len(tail)) + head + body + tail


def _records(batch: bytes) -> Iterator[tuple[HeaderFields, bytes]]:
    """Yield the records of a batch: the fields of each, and its body."""
    while batch:
        header_end = batch.index(b"}") + 1
        fields, _, rest = open_header(batch[:header_end], batch[header_end:])
        length = int(str(fields["l"]))
        yield fields, rest[:length]
        batch = rest[length:]
