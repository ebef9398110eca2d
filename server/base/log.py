"""The log as everybody sees it: passed in, so that a test can read it."""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """Where is written what happens."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Write an entry of the catalogue."""

    def enabled(self, message_id: str) -> bool:
        """Whether an entry with this id would be written anywhere."""
