"""Prepared statements and portals of a connection of PostgreSQL's protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from server.sql.postgres.errors import Diagnostic, FormatError
from server.sql.postgres.frontend_messages import Bind
from server.sql.postgres.messages import TEXT_FORMAT
from server.sql.postgres.parameters import Value, decode_parameters
from server.sql.sqlstate import (
    CONFIGURATION_LIMIT_EXCEEDED,
    DUPLICATE_CURSOR,
    DUPLICATE_PREPARED_STATEMENT,
    INVALID_CURSOR_NAME,
    INVALID_SQL_STATEMENT_NAME,
    NAME_TOO_LONG,
    PROTOCOL_VIOLATION,
)

MAX_PREPARED_STATEMENTS: Final = 1000
MAX_PORTALS: Final = 1000
MAX_NAME_LENGTH: Final = 1000
"""Characters of the name of a prepared statement or a portal."""

PlanT = TypeVar("PlanT")
CursorT = TypeVar("CursorT")


class StatementFailedError(Exception):
    """An error in a statement that the protocol object finds by itself."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(sqlstate, message)


@dataclass(frozen=True, slots=True)
class PreparedStatement(Generic[PlanT]):
    """A statement that a client has prepared.

    Attributes:
        name: its name; empty for the unnamed one.
        text: the statement.
        parameter_types: OIDs of its parameters.
        plan: the caller's own object.
    """

    name: str
    text: str
    parameter_types: tuple[int, ...]
    plan: PlanT


@dataclass(frozen=True, slots=True)
class Portal(Generic[PlanT, CursorT]):
    """A statement with values for its parameters.

    Attributes:
        name: its name; empty for the unnamed one.
        statement: the statement.
        result_formats: as the client sent them, see `formats`.
        size: bytes of the parameters.
        cursor: the caller's own object: results that have not been sent yet.
    """

    name: str
    statement: PreparedStatement[PlanT]
    result_formats: tuple[int, ...]
    size: int
    cursor: CursorT

    def formats(self, column_count: int) -> tuple[int, ...]:
        """Return the format of each column of the result.

        Raises:
            FormatError: the client named another number of formats.
        """
        return _formats_of_all(self.result_formats, column_count, "result formats", "columns")


class NamedStatements(Generic[PlanT, CursorT]):
    """The prepared statements and portals of a connection, by their names, within limits.

    Args:
        release: called for each portal that ends.
        max_size: bytes of the texts of all statements, and of the parameters of all portals.
    """

    def __init__(self, release: Callable[[Portal[PlanT, CursorT]], None], max_size: int) -> None:
        self._release: Final = release
        self._max_size: Final = max_size
        self._statements: Final[dict[str, PreparedStatement[PlanT]]] = {}
        self._statements_size = 0
        self._portals: Final[dict[str, Portal[PlanT, CursorT]]] = {}
        self._portals_size = 0

    # Statements

    def check_new(self, name: str, text: str) -> None:
        """Check that a statement may be prepared; end the unnamed one before it.

        Raises:
            StatementFailedError: there is one of this name, or there are too many.
        """
        _check_name(name)
        if name and name in self._statements:
            raise StatementFailedError(
                DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{name}" already exists'
            )
        if not name:
            self.drop_statement("")
        if (
            len(self._statements) >= MAX_PREPARED_STATEMENTS
            or self._statements_size + len(text) > self._max_size
        ):
            raise StatementFailedError(
                CONFIGURATION_LIMIT_EXCEEDED, "this connection has too many prepared statements"
            )

    def find_statement(self, name: str) -> PreparedStatement[PlanT]:
        """Return a statement.

        Raises:
            StatementFailedError: there is none of this name.
        """
        statement = self._statements.get(name)
        if statement is None:
            shown = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise StatementFailedError(INVALID_SQL_STATEMENT_NAME, f"{shown} does not exist")
        return statement

    def add_statement(self, statement: PreparedStatement[PlanT]) -> None:
        """Add a statement."""
        self._statements[statement.name] = statement
        self._statements_size += len(statement.text)

    def drop_statement(self, name: str) -> bool:
        """End a statement; return whether there was one of this name."""
        statement = self._statements.pop(name, None)
        if statement is not None:
            self._statements_size -= len(statement.text)
        return statement is not None

    def drop_statements(self) -> None:
        """End all statements."""
        self._statements.clear()
        self._statements_size = 0

    # Portals

    def read_bind(
        self, bind: Bind
    ) -> tuple[PreparedStatement[PlanT], tuple[Value | None, ...], int]:
        """Return the statement of a Bind, its parameters, and their bytes.

        Raises:
            StatementFailedError: a name or a parameter is wrong, or there are too many portals.
        """
        statement = self.find_statement(bind.statement)
        types = statement.parameter_types
        if len(bind.parameters) != len(types):
            raise StatementFailedError(
                PROTOCOL_VIOLATION,
                f"bind message supplies {len(bind.parameters)} parameters, but prepared statement"
                f' "{statement.name}" requires {len(types)}',
            )
        _check_name(bind.portal)
        if bind.portal and bind.portal in self._portals:
            raise StatementFailedError(DUPLICATE_CURSOR, f'cursor "{bind.portal}" already exists')
        if not bind.portal:
            self.drop_portal("")
        size = sum(len(one) for one in bind.parameters if one is not None)
        if len(self._portals) >= MAX_PORTALS or self._portals_size + size > self._max_size:
            raise StatementFailedError(
                CONFIGURATION_LIMIT_EXCEEDED, "this connection has too many portals"
            )
        try:
            formats = _formats_of_all(
                bind.parameter_formats, len(types), "parameter formats", "parameters"
            )
            parameters = decode_parameters(bind.parameters, types, formats)
        except FormatError as error:
            raise StatementFailedError(error.sqlstate, str(error)) from None
        return statement, parameters, size

    def find_portal(self, name: str) -> Portal[PlanT, CursorT]:
        """Return a portal.

        Raises:
            StatementFailedError: there is none of this name.
        """
        portal = self._portals.get(name)
        if portal is None:
            raise StatementFailedError(INVALID_CURSOR_NAME, f'portal "{name}" does not exist')
        return portal

    def add_portal(self, portal: Portal[PlanT, CursorT]) -> None:
        """Add a portal, in place of one of the same name."""
        self.drop_portal(portal.name)
        self._portals[portal.name] = portal
        self._portals_size += portal.size

    def drop_portal(self, name: str) -> None:
        """End a portal, if there is one of this name."""
        portal = self._portals.pop(name, None)
        if portal is not None:
            self._portals_size -= portal.size
            self._release(portal)

    def drop_portals(self) -> None:
        """End all portals."""
        for name in list(self._portals):
            self.drop_portal(name)


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise StatementFailedError(NAME_TOO_LONG, "the name is too long")


def _formats_of_all(
    formats: tuple[int, ...], count: int, formats_name: str, items_name: str
) -> tuple[int, ...]:
    """Return the format of each item: none are all text, one is for all of them.

    Raises:
        FormatError: there is another number of formats.
    """
    if len(formats) <= 1:
        return (formats or (TEXT_FORMAT,)) * count
    if len(formats) != count:
        raise FormatError(
            PROTOCOL_VIOLATION,
            f"bind message has {len(formats)} {formats_name} but {count} {items_name}",
        )
    return formats
