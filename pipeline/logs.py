"""Logs for the server's parts where no server runs."""

from __future__ import annotations

import sys


class Silence:
    """A log that nobody reads."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Drop an entry."""

    def enabled(self, _message_id: str, /) -> bool:
        """No entry is wanted."""
        return False


class StandardError:
    """Puts entries where Spark keeps what its workers say."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Write an entry."""
        said = ", ".join(f"{name} {value}" for name, value in fields.items())
        print(f"{message_id}: {said}", file=sys.stderr)

    def enabled(self, _message_id: str, /) -> bool:
        """Every entry is written."""
        return True
