"""Statements from within the process, through a transport for SQL: those of the console.

    caller (its own event loop) -> socket pair -> PostgresConnection (engine's thread) -> runner

The other end of the pair is an ordinary connection of the transport. So a statement runs as that of
any client: with the same limits, timeouts, entitlement and statistics, and it is suspended while
the caller does not read. It is cancelled when the caller closes its end.

The user has been authenticated by the caller. Where the transport checks credentials, it has to be
one whose users the caller authenticates in the same way (server/app/wiring/sql_transports.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from server.security.authentication import Admission, FixedAuthenticator
from server.sql.connection import PostgresConnection
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.server_messages import (
    CopyInMessage,
    ErrorMessage,
    KeyMessage,
    ReadyMessage,
    ServerMessage,
    ServerMessageReader,
    copy_fail_message,
    query_message,
    startup_message,
)
from server.sql.services import CancelKey
from server.sql.sql_transport import TlsUpgrade

if TYPE_CHECKING:
    from server.sql.sql_transport import SqlTransport
    from server.transports.connection import TransportContext

RunOnEngine = Callable[[Callable[[], Coroutine[None, None, None]]], Awaitable[None]]
"""Runs a coroutine on the engine's thread, and waits for it."""

_READ_SIZE: Final = 64 * 1024
"""Bytes that are read at once; as many wait in the socket, and then the statement waits."""

_NO_USER: Final = "console"
"""The name for a user that is not known: the protocol needs one."""

_AUTH_MODULE: Final = "TrustedAdmin"
"""The name of the module that admits the user, as for websockets that trust the admin interface."""


class LocalLogonError(Exception):
    """The transport does not admit the user, or is disabled. The text says why."""


class LocalConnectionLostError(Exception):
    """The connection has ended: by an administrator, or because the instance stops."""


class _LocalConnection(PostgresConnection):
    """The transport's end of the pair.

    Args:
        transport_context: the context of the transport.
        sql: its properties.
        address: the address of the client that the caller serves.
    """

    def __init__(
        self, transport_context: TransportContext, sql: SqlTransport, address: str
    ) -> None:
        super().__init__(transport_context, sql)
        self._address = address

    def _peer_address(self) -> str:
        return self._address


class LocalSqlTransport:
    """A transport for SQL, as callers within the process use it.

    Args:
        transport_context: the context of the transport.
        sql: its properties.
        trusts_users: whether the caller authenticates users as the transport does; if not, the
            transport checks no credentials, and decides on the name by itself.

    Attributes:
        name: the transport's name.
    """

    def __init__(
        self, transport_context: TransportContext, sql: SqlTransport, *, trusts_users: bool
    ) -> None:
        self.name: Final = transport_context.connection_context.transport
        self._transport_context: Final = transport_context
        self._sql: Final = replace(sql, tls=TlsUpgrade(), asks_for_passwords=False)
        self._trusts_users: Final = trusts_users

    async def accept(self, accepted: socket.socket, user: str, address: str) -> None:
        """Serve a connection; on the engine's thread.

        Args:
            accepted: the transport's end of the pair.
            user: the authenticated user.
            address: the address of the client that the caller serves.
        """
        context = self._transport_context
        if self._trusts_users:
            connection_context = replace(
                context.connection_context,
                authenticator=FixedAuthenticator(
                    Admission(True, user, "logged on to the admin interface")
                ),
                auth_module=_AUTH_MODULE,
            )
            context = replace(context, connection_context=connection_context)
        await asyncio.get_running_loop().create_unix_connection(
            partial(_LocalConnection, context, self._sql, address), sock=accepted
        )

    def cancel(self, key: CancelKey) -> None:
        """Cancel the statement of a connection; on the engine's thread."""
        self._sql.services.cancel(key)


class LocalClient:
    """The caller's end of a connection, on the caller's event loop. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: Final = reader
        self._writer: Final = writer
        self._messages: Final = ServerMessageReader()
        self.cancel_key = CancelKey(0, 0)

    @classmethod
    async def connect(
        cls,
        transport: LocalSqlTransport,
        run_on_engine: RunOnEngine,
        user: str,
        address: str,
        application: str,
    ) -> LocalClient:
        """Log on to a transport.

        Args:
            transport: the transport.
            run_on_engine: runs a coroutine on the engine's thread.
            user: the authenticated user; empty for none.
            address: the address of the client that the caller serves.
            application: the beginning of the client's name.

        Raises:
            LocalLogonError: the user is not admitted.
        """
        own, accepted = socket.socketpair()
        try:
            own.setblocking(False)
            accepted.setblocking(False)
            await run_on_engine(lambda: transport.accept(accepted, user, address))
        except BaseException:
            accepted.close()
            own.close()
            raise
        client = cls(*await asyncio.open_unix_connection(sock=own, limit=_READ_SIZE))
        try:
            await client._log_on({"user": user or _NO_USER, "application_name": application})
        except BaseException:
            client.close()
            raise
        return client

    async def _log_on(self, parameters: dict[str, str]) -> None:
        self._writer.write(startup_message(parameters))
        try:
            while True:
                for message in await self.receive():
                    match message:
                        case KeyMessage(process_id, secret):
                            self.cancel_key = CancelKey(process_id, secret)
                        case ErrorMessage(diagnostic):
                            raise LocalLogonError(_text_of(diagnostic))
                        case ReadyMessage():
                            return
                        case _:
                            pass
        except LocalConnectionLostError:
            raise LocalLogonError("the transport is disabled, or is full") from None

    def send(self, text: str) -> None:
        """Have statements executed, after those before them have been answered."""
        self._writer.write(query_message(text))

    async def receive(self) -> Sequence[ServerMessage]:
        """Wait for bytes of the server, and return the messages that they complete.

        Raises:
            LocalConnectionLostError: the connection has ended.
        """
        try:
            data = await self._reader.read(_READ_SIZE)
        except OSError:
            data = b""
        if not data:
            raise LocalConnectionLostError("the connection was closed")
        messages = list(self._messages.feed(data))
        if any(isinstance(message, CopyInMessage) for message in messages):
            self._writer.write(copy_fail_message("there are no data here; use psql's \\copy"))
        return messages

    def close(self) -> None:
        """End the connection, and cancel its statement."""
        with suppress(RuntimeError):  # the event loop has ended
            self._writer.transport.abort()


def _text_of(diagnostic: Diagnostic) -> str:
    return ": ".join(filter(None, (diagnostic.message, diagnostic.detail)))
