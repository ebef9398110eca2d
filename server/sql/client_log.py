"""Log entries and audit of SQL clients, for all protocols. Called on the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.sql.sqlstate import CRASH_SHUTDOWN, OUT_OF_MEMORY, QUERY_CANCELED
from server.util.rate_limited_log import host_of

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.security.authentication import Admission
    from server.sql.statement_meter import SlowStatement, StatementMeter
    from server.util.rate_limited_log import RateLimitedLog

MAX_NAME_LENGTH: Final = 200
"""Characters of an application's name that become part of the client's name."""

MAX_LOGGED: Final = 200
"""Characters of a client's text in an entry of the log."""

_MAX_LOGGED_STATEMENT: Final = 1_000
"""Characters of the text of a slow statement in the log."""


def client_name_of(session: Session, application: str) -> str:
    """Return the name of a client of an application: several clients are no copies of one."""
    name = printable(application, MAX_NAME_LENGTH)
    return f"{name}-{session.number}" if name else session.connection_name


def complete_logon(
    session: Session, admission: Admission, client_name: str, message_type: str
) -> None:
    """Record the identity of a client that is admitted, in its session, the log and the audit."""
    engine = session.engine
    session.log_on(client_name, message_type)
    engine.log.emit(
        "1F-0004",
        connection=session.connection_name,
        client=client_name,
        user=session.user,
        name_hash=session.client_hash,
        version="",
        last_acked=0,
        last_logged=0,
        correlation_id="",
    )
    engine.audit.report_logon(session.audit_actor, admission.reason)
    engine.client_status.publish("logon", session, client_address=session.address)


def log_limited(log: RateLimitedLog, message_id: str, session: Session, **fields: object) -> None:
    """Write an entry about a request of a client, unless there are too many.

    They are counted by host, since each connection of an application has a name of its own.
    """
    log.emit(message_id, host_of(session.address), client=session.client_name, **fields)


def note_input(session: Session) -> None:
    """Note that the client has sent something now."""
    clock = session.engine.clock
    session.last_input_s = clock.now()
    session.last_input_steady_s = clock.steady_unpaused()


def end_statement(
    session: Session,
    meter: StatementMeter,
    sqlstate: str | None = None,
    message: str = "",
    defect: Exception | None = None,
) -> None:
    """End the measurement of a statement, and log it if it was slow or operators need to know.

    Args:
        session: the client's session.
        meter: measures it.
        sqlstate: that of its error; None if it succeeded.
        message: the text of the error.
        defect: the exception, if it is one of the server's own.
    """
    duration_s, slow = meter.end(sqlstate)
    session.query_seconds += duration_s
    if slow is not None:
        _log_slow_statement(session, slow, sqlstate)
    if sqlstate is not None:
        _log_failure(session, sqlstate, message, defect)


def _log_failure(session: Session, sqlstate: str, message: str, defect: Exception | None) -> None:
    """Log the failure of a statement, if operators need to know of it.

    Args:
        session: the client's session.
        sqlstate: that of the error.
        message: its text.
        defect: the exception, if it is one of the server's own.
    """
    if defect is not None:
        session.log.emit("16-0034", client=session.client_name, error=f"{defect!r}")
    elif sqlstate == QUERY_CANCELED:
        session.log.emit("16-0035", client=session.client_name, reason=message)
    elif sqlstate in (OUT_OF_MEMORY, CRASH_SHUTDOWN):
        session.log.emit("16-0037", client=session.client_name, reason=message)


def _log_slow_statement(session: Session, slow: SlowStatement, sqlstate: str | None) -> None:
    """Log a statement that took long.

    Args:
        session: the client's session.
        slow: the statement.
        sqlstate: that of its error; None if it succeeded.
    """
    text = " ".join(slow.text[: 2 * _MAX_LOGGED_STATEMENT].split())
    session.log.emit(
        "16-0036",
        client=session.client_name,
        milliseconds=round(slow.duration_s * 1000),
        outcome="ok" if sqlstate is None else f"error {sqlstate}",
        rows=slow.rows,
        user=printable(session.user, MAX_NAME_LENGTH),
        connection=session.connection_name,
        query=printable(text, _MAX_LOGGED_STATEMENT),
    )


def printable(text: str, length: int) -> str:
    """Return the beginning of a client's text, with ? for characters that are not printable."""
    return "".join(c if c.isprintable() else "?" for c in text[:length])
