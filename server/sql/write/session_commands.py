"""Executes commands of the amps protocol for a client of SQL, as its session.

So entitlement, transport filters, the transaction log, views, queues, replication and statistics
are those of any client. The session has no message type of its own, or that of its transport; each
command is executed with that of its topic. Called on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header, command_name, encode_header
from server.engine.commands.dispatch import AFTER_LOGON
from server.engine.commands.errors import CommandRefusedError
from server.security.interceptors.base import IncomingCommand, Verdict
from server.sql.client_log import note_input
from server.sql.query.errors import SqlError
from server.sql.sqlstate import ADMIN_SHUTDOWN, INSUFFICIENT_PRIVILEGE, IO_ERROR, SYSTEM_ERROR
from server.storage.sow.store import RecordStoreError

if TYPE_CHECKING:
    from server.engine.session import Session


_SQLSTATES: Final = {
    "not entitled": INSUFFICIENT_PRIVILEGE,
    "invalid topic": "42809",
    "bad regex topic": "42809",
    "invalid message": "22P02",
    "invalid sow key": "23502",
    "not stored": "58030",
    "not readable": "58030",
    "limit exceeded": "54000",
}
"""The reason of a refusal -> the code for it."""


@contextmanager
def with_message_type(session: Session, name: str) -> Iterator[None]:
    """Give a session a message type for the commands that are executed within."""
    previous, session.message_type = session.message_type, name
    try:
        yield
    finally:
        session.message_type = previous


def execute_command(session: Session, type_name: str, header: Header, body: bytes) -> None:
    """Execute a command to its end; the caller makes it one of few records.

    Args:
        session: the client's session.
        type_name: the message type of the topic.
        header: the command.
        body: its message.

    Raises:
        CommandRefusedError: the command is refused.
        SqlError: the session is over, or a transport filter does not let the command pass.
    """
    command = IncomingCommand(header, body)
    for transport_filter in session.connection_context.transport_filters:
        verdict = transport_filter.filter(command)
        if verdict is Verdict.DISCONNECT:
            session.close("transport filter")
        if verdict is not Verdict.PASS:
            raise SqlError(INSUFFICIENT_PRIVILEGE, "a filter of the transport refuses the message")
    if not session.is_open:
        raise SqlError(ADMIN_SHUTDOWN, "the connection is closed")
    note_input(session)
    _trace(session, command.header, command.body)
    with with_message_type(session, type_name):
        steps = AFTER_LOGON[command.header.command](session, command.header, command.body)
        for _ in steps or ():
            pass


def to_sql_error(error: CommandRefusedError | RecordStoreError) -> SqlError:
    """Return the refusal of a command as an error of SQL."""
    if isinstance(error, RecordStoreError):
        return SqlError(IO_ERROR, str(error))
    return SqlError(_SQLSTATES.get(error.reason, SYSTEM_ERROR), str(error))


def _trace(session: Session, header: Header, body: bytes) -> None:
    message_id = "12-0001" if header.command == "publish" else "12-0002"
    if session.log.enabled(message_id):
        session.log.emit(
            message_id,
            client=session.client_name,
            command=command_name(header.command),
            header=encode_header(header),
            body=body,
        )
