"""Headers of the protocols fix and nvfix: numeric tags, a separator, and then the body."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from amperage.wire.framing import FrameError
from amperage.wire.legacy.dialect import DecodedMessage
from amperage.wire.legacy.fields import FIELDS, FIELDS_BY_KEY

_KEYS: Final = {field.tag: field.key for field in FIELDS}
_TAGS: Final = {key: field.tag for key, field in FIELDS_BY_KEY.items()}


@dataclass(frozen=True, slots=True)
class FixDialect:
    """Messages of the protocols fix and nvfix, which have the same headers.

    Attributes:
        field_separator: the character after each field.
        header_separator: the character between header and body.
    """

    field_separator: str = "\x01"
    header_separator: str = "\x02"

    def read(self, message: bytes) -> DecodedMessage:
        """Decode the header of a message, see `Dialect.read`."""
        end = message.find(self.header_separator.encode())
        header = message if end < 0 else message[:end]
        try:
            text = header.decode()
        except UnicodeDecodeError as error:
            where = f"{error.reason} (byte {error.start})"
            raise FrameError(f"the header is not in UTF-8: {where}") from None
        fields = {}
        for field in text.split(self.field_separator):
            tag, _, value = field.partition("=")
            if value and tag in _KEYS:
                fields[_KEYS[tag]] = value
        if message.startswith(b"{") and not fields:
            raise FrameError("a header of the protocol amps, expected FIX tags")
        return DecodedMessage(fields, None if end < 0 else end + 1)

    def body(self, message: bytes, body_start: int) -> bytes:
        """Return the body of a message: everything after the header."""
        return message[body_start:]

    def embed(self, body: bytes) -> bytes:
        """Return a body unchanged."""
        return body

    def write(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Return the header of a message, with the separator after it."""
        parts = [
            f"{_TAGS[key]}={self._without_separators(value)}{self.field_separator}"
            for key, value in fields
            if key in _TAGS
        ]
        return ("".join(parts) + self.header_separator).encode()

    @property
    def tail(self) -> bytes:
        """Empty: no bytes follow a body."""
        return b""

    def with_namespaces(self, *, declared: bool) -> Self:  # noqa: ARG002 - FIX has none
        """Return the dialect unchanged."""
        return self

    def _without_separators(self, value: str) -> str:
        """Return a value with blanks for separators; FIX has no way to escape them."""
        return value.replace(self.field_separator, " ").replace(self.header_separator, " ")
