"""The blocking client with one connection, for any number of threads."""

from __future__ import annotations

import logging
import ssl
import threading
import weakref

from amperage.client.arguments import client_name, handler
from amperage.client.authentication import (
    Authenticator,
    PasswordAuthenticator,
    check_connection_arguments,
)
from amperage.client.blocking_commands import BlockingCommands
from amperage.client.blocking_connection import BlockingConnection
from amperage.client.command_shell import not_connected
from amperage.client.errors import (
    ClientError,
    ConnectionLostError,
    CredentialsError,
)
from amperage.client.guard import Guard
from amperage.client.limits import DEFAULT_TIMEOUT
from amperage.client.logon import LogonDialogue
from amperage.client.numbering import Numbering, RefusalListener
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStore
from amperage.client.uri import ServerUri, parse_uri
from amperage.wire.header import Header

_log = logging.getLogger("amperage.client")


class Client(BlockingCommands):
    """A connection to a server.

    A thread of its own reads the connection and answers heartbeats. Any thread may give commands
    and iterate streams.

    Args:
        name: the client name; it must be unique among a server's clients. One is made up if None.
        timeout: seconds that a call waits for its answer unless it says otherwise.
        authenticator: makes the credentials; None sends the URI's user and password.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.
        on_refused: called with each published message that the server refuses, a `StoredMessage`,
            and the error, in the thread that reads; it must not wait. With it, messages are
            numbered and acknowledged, and kept in memory until then; without it, `flush` raises
            `MessagesRefusedError`.

    Every call that waits takes a `timeout` in seconds; None stands for the client's. They raise
    `TimedOutError` when it has passed, a `CommandError` when the server refuses, and
    `ConnectionLostError` when the connection ends.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        on_refused: RefusalListener | None = None,
    ) -> None:
        super().__init__(timeout)
        handler("on_refused", on_refused)
        check_connection_arguments(authenticator, ssl_context)
        self.name = client_name(name)
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._on_refused = on_refused
        self._uri: ServerUri | None = None
        self._connected: tuple[BlockingConnection, ClientProtocol] | None = None
        self._reader: threading.Thread | None = None
        self._forgetting: weakref.finalize[[], Client] | None = None

    def __repr__(self) -> str:
        state = "not connected" if self._connected is None else f"connected to {self._uri}"
        return f"<{type(self).__name__} {self.name}: {state}>"

    def connect(self, uri: str | ServerUri, *, timeout: float | None = None) -> None:
        """Connect to a server; the next step is `logon`.

        Args:
            uri: such as "tcp://user:password@localhost:9007/amps/json".
            timeout: seconds for the connection.

        Raises:
            InvalidUriError: the text is no URI.
            ConnectError: there is no connection to be had.
        """
        self.close()
        where = uri if isinstance(uri, ServerUri) else parse_uri(uri)
        numbering = Numbering(PublishStore(), self._on_refused) if self._on_refused else None
        protocol = ClientProtocol(numbering, where.protocol)
        connection = BlockingConnection(
            protocol, where, self._guard, self._timeout_or(timeout), self._ssl_context
        )
        self._guard.on_fork = connection.abandon
        self._uri = where
        self._connected = connection, protocol
        self._reader = threading.Thread(
            target=_read, args=(connection, self._guard), name=f"amps {self.name}", daemon=True
        )
        self._reader.start()
        self._forgetting = weakref.finalize(self, connection.forget)
        self._forgetting.atexit = False

    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""
        if self._connected is None:
            return
        self._send_acks()
        (connection, _), self._connected = self._connected, None
        if self._forgetting is not None:
            self._forgetting.detach()
        with self._guard.turn():
            connection.end(None)
        if self._reader is not None and not self._guard.is_read_here:
            self._reader.join(_LONGEST_FAREWELL)

    def logon(
        self,
        *,
        timeout: float | None = None,
        correlation_id: str | None = None,
        options: str | None = None,
    ) -> Header:
        """Open the session as the user of the URI.

        Args:
            timeout: seconds to wait for each answer.
            correlation_id: a text for the server's log and admin pages; base64 characters only.
            options: the options field, such as "ack_conflation=100ms".

        Returns:
            The header of the acknowledgement: the server's version, the last sequence number.

        Raises:
            LogonError: the server refused; its types say why.
            CredentialsError: there is nothing to log on with, or the server is not the right one.
        """
        if self._uri is None:
            raise not_connected()
        dialogue = LogonDialogue(
            self._protocol,
            self.name,
            self._uri,
            self._authenticator,
            {"correlation_id": correlation_id, "options": options},
        )
        try:
            while dialogue.answer is None:
                dialogue.prepare()
                dialogue.take_answer(self._ask(lambda _: dialogue.ask(), timeout))
        except CredentialsError:
            self.close()
            raise
        return dialogue.answer

    @property
    def _connection(self) -> BlockingConnection:
        if self._connected is None:
            raise not_connected()
        return self._connected[0]

    @property
    def _protocol(self) -> ClientProtocol:
        if self._connected is None:
            raise not_connected()
        return self._connected[1]

    def _write(self) -> int:
        return self._connection.send_some()

    def _wait_to_write(self, mark: int) -> None:
        self._connection.wait_for_room(mark, self._timeout)

    def _notice_silence(self, allowed: float) -> None:
        self._connection.notice_silence(allowed)


_LONGEST_FAREWELL = 1.0
"""Seconds to wait for the reading thread, which may be in a handler that waits for the caller."""


def _read(connection: BlockingConnection, guard: Guard) -> None:
    """Run the thread that reads."""
    guard.read_here()
    try:
        connection.pump(lambda: False)
    except ClientError:
        pass  # waiting calls raise it, and so does each later command
    except Exception as failure:
        _log.exception("the client's thread has failed")
        error = ConnectionLostError(f"the client's thread has failed: {failure!r}")
        error.__cause__ = failure
        with guard.first_turn():
            connection.end(error)
    finally:
        connection.release()
