"""Messages that have gone one way, counted for statistics."""

from __future__ import annotations


class Tally:
    """Messages that have gone one way.

    Attributes:
        messages: how many.
        bytes: how many bytes that was.
    """

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages, which have a size in bytes together."""
        self.messages += messages
        self.bytes += size
