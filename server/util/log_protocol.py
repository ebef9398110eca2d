"""The interface of the log: a log is passed in, so that a test can read it."""

from __future__ import annotations

from typing import Protocol


class ServerLog(Protocol):
    """Writes the entries of the message catalogue."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Write an entry of the catalogue."""

    def enabled(self, message_id: str) -> bool:
        """Return whether an entry with this id would be written to any target."""
