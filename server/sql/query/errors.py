"""Errors of SQL statements, with the codes that clients of PostgreSQL expect.

Source: PostgreSQL documentation, Appendix A, PostgreSQL Error Codes.
"""

from __future__ import annotations

from typing import Final

MEMORY_HINT: Final = "Select fewer columns, filter or aggregate more, or raise MaxMemory."


class SqlError(Exception):
    """A statement failed; the client gets all of this.

    Attributes:
        sqlstate: the code, of five characters.
        message: one sentence without a full stop, in lower case, as PostgreSQL's are.
        detail: more about the cause.
        hint: a way out.
        position: offset of the offending token in the text of the query, in characters from 1.
    """

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        """Return the message with its code, for logs."""
        return f"{self.message} ({self.sqlstate})"


class DuckDbError(Exception):
    """An error of DuckDB, as the process of the query reports it.

    Attributes:
        kinds: the names of its class and of the classes above that.
    """

    def __init__(self, kinds: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.kinds = kinds


class NotAtOnceError(Exception):
    """A statement has to wait for something, so that it needs a thread of its own."""
