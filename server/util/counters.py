"""Counters of messages in one direction, for statistics."""

from __future__ import annotations


class TrafficCounter:
    """Counts messages in one direction.

    Attributes:
        messages: the number of messages.
        bytes: the sum of their sizes, in bytes.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages with their total size in bytes."""
        self.messages += messages
        self.bytes += size
