"""The cursors of a client: results that statements have declared, and read by their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from server.sql.live.rows import LiveRows
from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.row_cursor import RowCursor
from server.sql.sqlstate import CONFIGURATION_LIMIT_EXCEEDED, DUPLICATE_CURSOR, INVALID_CURSOR_NAME

MAX_CURSORS: Final = 100
"""Cursors of a client."""


@dataclass(slots=True)
class OpenCursor:
    """A result that is being read, and the means to cancel it.

    Attributes:
        rows: the result.
        cancellation: cancels it.
        is_held: whether it outlives the transaction.
        tag: the tag of the statement that has written the rows; None for those of a query.
    """

    rows: RowCursor | LiveRows
    cancellation: Cancellation
    is_held: bool = False
    tag: str | None = None


class Cursors:
    """The cursors of one client, by their names."""

    def __init__(self) -> None:
        self._cursors: Final[dict[str, OpenCursor]] = {}

    def check_new(self, name: str) -> None:
        """Check that there may be another cursor.

        Raises:
            SqlError: there is one of this name, or there are too many.
        """
        if name in self._cursors:
            raise SqlError(DUPLICATE_CURSOR, f'cursor "{name}" already exists')
        if len(self._cursors) >= MAX_CURSORS:
            raise SqlError(
                CONFIGURATION_LIMIT_EXCEEDED, f"a session has at most {MAX_CURSORS} cursors"
            )

    def add(self, name: str, cursor: OpenCursor) -> None:
        """Add a cursor."""
        self._cursors[name] = cursor

    def find(self, name: str | None) -> OpenCursor:
        """Return a cursor.

        Raises:
            SqlError: there is none of this name.
        """
        cursor = self._cursors.get(name or "")
        if cursor is None:
            raise SqlError(INVALID_CURSOR_NAME, f'cursor "{name}" does not exist')
        return cursor

    def close(self, name: str | None) -> None:
        """End a cursor; all of them for None.

        Raises:
            SqlError: there is none of this name.
        """
        if name is None:
            self.close_all(held=True)
            return
        self.find(name).rows.close()
        del self._cursors[name]

    def close_all(self, *, held: bool) -> None:
        """End all cursors; cursors that outlive their transaction only if `held`."""
        for name, cursor in list(self._cursors.items()):
            if held or not cursor.is_held:
                cursor.rows.close()
                del self._cursors[name]
