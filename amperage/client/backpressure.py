"""When to stop reading, because the application does not take what has been read."""

from __future__ import annotations

from amperage.client.limits import QUEUED_AT_MOST, QUEUED_BYTES_AT_MOST


class Backlog:
    """How much waits to be taken, in all streams of a client together.

    Messages are counted, bytes are estimated: those that were read, less the share of the messages
    that has been taken since.

    Attributes:
        is_over: whether to stop reading. It is so from above the limits down to half of them.
    """

    __slots__ = ("_bytes", "_messages", "is_over")

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0.0
        self.is_over = False

    def adjust(self, messages: int, read: int = 0) -> None:
        """Take note of how things stand.

        Args:
            messages: how many wait now.
            read: how many bytes have been read since the last time.
        """
        self._bytes += read
        if messages < self._messages:
            self._bytes *= messages / self._messages
        elif not messages:
            self._bytes = 0.0
        self._messages = messages
        share = 2 if self.is_over else 1
        self.is_over = (
            messages > QUEUED_AT_MOST // share or self._bytes > QUEUED_BYTES_AT_MOST // share
        )
