"""Logs for the server's components, for use without a server."""

from __future__ import annotations

import sys


class SilentLog:
    """A log that drops all entries."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Drop an entry."""

    def enabled(self, _message_id: str, /) -> bool:
        """Return False: no entry is logged."""
        return False


class StderrLog:
    """Writes entries to standard error, which Spark keeps for its workers."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Write an entry."""
        text = ", ".join(f"{name} {value}" for name, value in fields.items())
        print(f"{message_id}: {text}", file=sys.stderr)

    def enabled(self, _message_id: str, /) -> bool:
        """Return True: every entry is logged."""
        return True
