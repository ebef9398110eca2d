"""Prepared statements of a client."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.sql.query.errors import SqlError
from server.sql.sqlstate import CONFIGURATION_LIMIT_EXCEEDED, INVALID_SQL_STATEMENT_NAME

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.query.statement import Statement

MAX_PREPARED_STATEMENTS: Final = 1_000
"""Prepared statements of a client."""

_HANDLE_BYTES: Final = 16


@dataclass(slots=True)
class PreparedFlightStatement:
    """A prepared statement.

    Attributes:
        text: its text.
        statement: the text as it was parsed.
        columns: the columns of its result; none if it has none.
        parameters: the types of its parameters.
        rows: the values that are bound to them; one row for queries.
        is_outdated: whether an execution has found other columns.
    """

    text: str
    statement: Statement
    columns: pa.Schema
    parameters: pa.Schema
    rows: Sequence[tuple[object, ...]] = field(default_factory=tuple)
    is_outdated: bool = False


class PreparedStatements:
    """The prepared statements of a client, by their handles. On gRPC's thread."""

    def __init__(self) -> None:
        self._statements: dict[bytes, PreparedFlightStatement] = {}

    def check_room(self) -> None:
        """Raise an error if there are too many."""
        if len(self._statements) >= MAX_PREPARED_STATEMENTS:
            raise SqlError(
                CONFIGURATION_LIMIT_EXCEEDED,
                f"a session has at most {MAX_PREPARED_STATEMENTS} prepared statements",
            )

    def add(self, statement: PreparedFlightStatement) -> bytes:
        """Add a statement; return its handle."""
        self.check_room()
        handle = secrets.token_bytes(_HANDLE_BYTES)
        self._statements[handle] = statement
        return handle

    def find(self, handle: bytes) -> PreparedFlightStatement:
        """Return a statement.

        Raises:
            SqlError: there is none with this handle.
        """
        statement = self._statements.get(handle)
        if statement is None:
            raise SqlError(INVALID_SQL_STATEMENT_NAME, "the prepared statement does not exist")
        return statement

    def remove(self, handle: bytes) -> None:
        """Remove a statement, if there is one with this handle."""
        self._statements.pop(handle, None)
