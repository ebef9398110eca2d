"""What a legacy protocol has to know: how its headers are written, and where bodies stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, Self


class Opened(NamedTuple):
    """A message whose header has been read.

    Attributes:
        fields: the header's fields, by their keys (fields.py). Empty ones are left out.
        body_start: where what belongs to the body begins; None for a message without one. Any
            message with the same bytes up to there has the same header.
    """

    fields: Mapping[str, str]
    body_start: int | None


class Dialect(Protocol):
    """The format of the messages of one legacy protocol, without their length."""

    def read(self, message: bytes) -> Opened:
        """Read the header of a message.

        Raises:
            FrameError: it has none.
        """

    def body(self, message: bytes, body_start: int) -> bytes:
        """The body of a message.

        Raises:
            FrameError: the message is not complete.
        """

    def embed(self, body: bytes) -> bytes:
        """A body as it goes into a message."""

    def write(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """What stands before the body of a message with these fields, given by their keys."""

    @property
    def tail(self) -> bytes:
        """What stands behind a body."""

    def with_namespaces(self, *, declared: bool) -> Self:
        """The same dialect with or without declarations of namespaces, if it has any (UseNS)."""
