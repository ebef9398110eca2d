"""The interface of a legacy protocol: the format of its headers, and the place of bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, Self


class DecodedMessage(NamedTuple):
    """A message with its header decoded.

    Attributes:
        fields: the header's fields, by their keys (fields.py). Empty ones are left out.
        body_start: where the body's part begins; None for a message without a body. Any message
            with the same bytes up to there has the same header.
    """

    fields: Mapping[str, str]
    body_start: int | None


class Dialect(Protocol):
    """The format of the messages of one legacy protocol, without their length."""

    def read(self, message: bytes) -> DecodedMessage:
        """Decode the header of a message.

        Raises:
            FrameError: it has none.
        """

    def body(self, message: bytes, body_start: int) -> bytes:
        """Return the body of a message.

        Raises:
            FrameError: the message is not complete.
        """

    def embed(self, body: bytes) -> bytes:
        """Return a body as embedded in a message."""

    def write(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Return the bytes before the body of a message with these fields, given by their keys."""

    @property
    def tail(self) -> bytes:
        """The bytes after a body."""

    def with_namespaces(self, *, declared: bool) -> Self:
        """Return this dialect with or without namespace declarations, if it has any (UseNS)."""
