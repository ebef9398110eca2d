"""Events of a `PostgresProtocol`: the requests of its client.

Each event names the methods of the protocol that answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple

from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.frontend_messages import CancelRequest
from server.sql.postgres.parameters import Value
from server.sql.postgres.portals import CursorT, PlanT, Portal, PreparedStatement


class Reply(NamedTuple):
    """Bytes to write; no answer needed.

    Attributes:
        data: the bytes.
    """

    data: bytes


class ProtocolFailed(NamedTuple):
    """The client broke the protocol: write the bytes and close the connection.

    Attributes:
        diagnostic: the error, for the log.
        data: the bytes.
    """

    diagnostic: Diagnostic
    data: bytes


class TlsRequested(NamedTuple):
    """The client asks for TLS: `accept_tls` or `refuse_tls`."""


class StartupRequested(NamedTuple):
    """The client begins a session: `request_password`, `request_sasl`, `accept` or `end`.

    Attributes:
        user: the name of the user.
        database: that of the database; by default the name of the user.
        parameters: settings, among them those of the parameter "options".
    """

    user: str
    database: str
    parameters: Mapping[str, str]


class PasswordGiven(NamedTuple):
    """The answer to `request_password`: `accept` or `end`.

    Attributes:
        password: the password.
    """

    password: str

    def __repr__(self) -> str:
        """Omit the password: this may end up in a log."""
        return "PasswordGiven()"


class SaslStarted(NamedTuple):
    """The answer to `request_sasl`: `continue_sasl`, `accept` or `end`.

    Attributes:
        mechanism: one of the mechanisms requested.
        data: the client's first message.
    """

    mechanism: str
    data: bytes


class SaslContinued(NamedTuple):
    """The answer to `continue_sasl`: `continue_sasl`, `accept` or `end`.

    Attributes:
        data: the client's message.
    """

    data: bytes


class StatementRequested(NamedTuple):
    """Statements of the simple protocol: results, then `ready`; or `fail`.

    Attributes:
        text: one or more statements.
    """

    text: str


class ParseRequested(NamedTuple):
    """A statement to prepare: `complete_parse` or `fail`.

    Attributes:
        name: its name.
        text: one statement.
        parameter_types: OIDs of the first parameters; 0 for a type that the server determines.
    """

    name: str
    text: str
    parameter_types: tuple[int, ...]


class BindRequested(NamedTuple, Generic[PlanT]):
    """A statement to be made a portal: `complete_bind` or `fail`.

    Attributes:
        portal: the name of the portal.
        statement: the statement.
        parameters: the values of its parameters.
    """

    portal: str
    statement: PreparedStatement[PlanT]
    parameters: tuple[Value | None, ...]


class DescribeStatementRequested(NamedTuple, Generic[PlanT]):
    """The columns of a prepared statement: `complete_describe` or `fail`.

    Attributes:
        statement: the statement.
    """

    statement: PreparedStatement[PlanT]


class DescribePortalRequested(NamedTuple, Generic[PlanT, CursorT]):
    """The columns of a portal: `complete_describe` or `fail`.

    Attributes:
        portal: the portal.
    """

    portal: Portal[PlanT, CursorT]


class ExecuteRequested(NamedTuple, Generic[PlanT, CursorT]):
    """Rows of a portal: the rows, then `complete_execute` or `suspend`; or `fail`.

    Attributes:
        portal: the portal; it may have been executed before, up to a limit.
        row_limit: the number of rows to send; 0 for all.
    """

    portal: Portal[PlanT, CursorT]
    row_limit: int


class CopyReceived(NamedTuple):
    """Data of a COPY, while a statement is unanswered; no answer needed.

    Attributes:
        data: the data; None for their end.
    """

    data: bytes | None


class CopyFailed(NamedTuple):
    """The client ends the data of a COPY by a failure; no answer needed.

    Attributes:
        reason: its message.
    """

    reason: str


class SyncRequested(NamedTuple):
    """The end of a sequence of the extended protocol: `ready`, or `fail` if a commit does."""


class Terminated(NamedTuple):
    """The client ends the session: close the connection."""


Event = (
    Reply
    | ProtocolFailed
    | TlsRequested
    | CancelRequest
    | StartupRequested
    | PasswordGiven
    | SaslStarted
    | SaslContinued
    | StatementRequested
    | ParseRequested
    | BindRequested[PlanT]
    | DescribeStatementRequested[PlanT]
    | DescribePortalRequested[PlanT, CursorT]
    | ExecuteRequested[PlanT, CursorT]
    | SyncRequested
    | Terminated
)

CopyEvent = CopyReceived | CopyFailed | ProtocolFailed | Terminated


def statement_text(event: Event[PlanT, CursorT]) -> str | None:
    """Return the text of the statement that an event executes; None if it executes none."""
    match event:
        case StatementRequested(text):
            return text
        case ExecuteRequested(portal):
            return portal.statement.text
    return None
