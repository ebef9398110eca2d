"""The client's side of one connection of a legacy protocol, without I/O.

Frames of the amps protocol that the client sends are translated to messages of the legacy one, and
the server's answers to such frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from amperage.wire.framing import Frame
from amperage.wire.legacy.translation import (
    LENGTH,
    HeaderFields,
    LegacyMessageReader,
    first_frame,
    open_header,
)

_OF_A_RECORD: Final = ("k", "x", "l")
"""Keys of a single record of a query, not of the batch that contains it."""

_encode_fields: Final = msgspec.json.encode


class LegacyCaller(LegacyMessageReader):
    """Translates between a client of the amps protocol and a server's legacy transport."""

    __slots__ = ()

    def encode(self, frames: bytes) -> bytes:
        """Encode frames of the amps protocol as messages for the server.

        Args:
            frames: one or more whole frames. A field that the legacy protocols do not have, such as
                `orderby`, is left out.
        """
        messages = []
        position, size = 0, len(frames)
        while position < size:
            header, body, position = first_frame(frames, position)
            fields, _, body = open_header(header, body)
            messages.append(self._encode_message(fields, body))
        return b"".join(messages)

    def _encode_message(self, fields: HeaderFields, body: bytes) -> bytes:
        dialect = self._dialect
        if fields["c"] == "p":
            fields["c"] = "publish"
        head = dialect.write((key, str(value)) for key, value in fields.items())
        content = head + dialect.embed(body) + dialect.tail
        return LENGTH.pack(len(content)) + content

    def _translate(self, message: bytes) -> Frame:
        fields, body_start = self._dialect.read(message)
        body = b"" if body_start is None else self._dialect.body(message, body_start)
        if fields.get("c") == "sow":
            fields, body = _batch_of_one(fields, body)
        return _encode_fields(fields), body


def _batch_of_one(fields: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """Return an amps batch of one record: the batch's fields, then the record with its header."""
    record = {key: fields[key] for key in _OF_A_RECORD if key in fields}
    record["l"] = str(len(body))
    batch = {key: value for key, value in fields.items() if key not in _OF_A_RECORD}
    return batch, _encode_fields(record) + body
