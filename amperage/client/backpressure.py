"""Backpressure: decides when to stop reading because the application does not take messages."""

from __future__ import annotations

from amperage.client.limits import MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES


class StreamBacklog:
    """The amount of data waiting in all streams of a client together.

    Messages are counted. Bytes are estimated: the bytes read, reduced by the share of the messages
    taken since.

    Attributes:
        is_over_limit: whether to stop reading: from above the limits until at most half of them is
            left.
    """

    __slots__ = ("_bytes", "_messages", "is_over_limit")

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0.0
        self.is_over_limit = False

    def adjust(self, messages: int, read: int = 0) -> None:
        """Update the counts and `is_over_limit`.

        Args:
            messages: the number of messages waiting now.
            read: the number of bytes read since the last call.
        """
        self._bytes += read
        if messages < self._messages:
            self._bytes *= messages / self._messages
        elif not messages:
            self._bytes = 0.0
        self._messages = messages
        share = 2 if self.is_over_limit else 1
        self.is_over_limit = (
            messages > MAX_QUEUED_MESSAGES // share or self._bytes > MAX_QUEUED_BYTES // share
        )
