"""The interface of a link to its connection, and constants that the parts of a link share."""

from __future__ import annotations

from typing import Final, Protocol

RETRY_INTERVAL_S: Final = 0.25
"""Delay before the log is tried again after it could not be read, or accepted nothing."""

NEVER: Final = float("-inf")
"""A time before all others."""


class LinkConnection(Protocol):
    """The connection of a link."""

    @property
    def address(self) -> str:
        """Address of the peer, for operators."""

    @property
    def is_ready(self) -> bool:
        """True if nearly all data passed to it have been sent."""

    def send(self, *data: bytes) -> None:
        """Send bytes, now or when the peer is ready for them."""

    def pause(self) -> None:
        """Pause reading, until `resume`."""

    def resume(self) -> None:
        """Resume reading."""

    def close(self) -> None:
        """Close the connection when the data passed to it have been sent, or soon."""
