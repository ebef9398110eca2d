"""The blocking client with one connection. A client belongs to one thread at a time."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable
from typing import Unpack

from client.authentication import Authenticator, PasswordAuthenticator
from client.blocking_commands import BlockingCommands
from client.blocking_connection import BlockingConnection
from client.commands import LogonOptions
from client.errors import ConnectionLostError
from client.limits import DEFAULT_TIMEOUT
from client.logon import LogonDialogue
from client.protocol import ClientProtocol
from client.uri import ServerUri, parse_uri
from server.wire.header import Header


class Client(BlockingCommands):
    """A connection to a server, for one thread.

    Args:
        name: the client name; it must be unique among a server's clients. One is made up if None.
        timeout: seconds that a call waits for its answer unless it says otherwise.
        authenticator: makes the credentials; None sends the URI's user and password.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.

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
    ) -> None:
        super().__init__(timeout)
        self.name = name or f"client-{uuid.uuid4().hex[:12]}"
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._uri: ServerUri | None = None
        self._connected: tuple[BlockingConnection, ClientProtocol] | None = None

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
        where = parse_uri(uri) if isinstance(uri, str) else uri
        protocol = ClientProtocol()
        connection = BlockingConnection(
            protocol, where, self._timeout_or(timeout), self._ssl_context
        )
        self._uri = where
        self._connected = connection, protocol

    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""
        if self._connected is not None:
            self._connection.close()
            self._connected = None

    def logon(self, *, timeout: float | None = None, **options: Unpack[LogonOptions]) -> Header:
        """Open the session as the user of the URI.

        Returns:
            The header of the acknowledgement: the server's version, the last sequence number.

        Raises:
            LogonError: the server refused; its types say why.
        """
        if self._uri is None:
            raise ConnectionLostError("not connected")
        dialogue = LogonDialogue(self._protocol, self.name, self._uri, self._authenticator, options)
        return self._connection.log_on(dialogue, self._timeout_or(timeout))

    def wait_until(self, arrived: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Read and write until something has arrived, or the connection has ended."""
        if not arrived():  # what came before the end of a connection can still be taken
            self._connection.wait_until(arrived, timeout, what)

    @property
    def _connection(self) -> BlockingConnection:
        if self._connected is None:
            raise ConnectionLostError("not connected")
        return self._connected[0]

    @property
    def _protocol(self) -> ClientProtocol:
        if self._connected is None:
            raise ConnectionLostError("not connected")
        return self._connected[1]

    def _write(self) -> None:
        self._connection.write(self._timeout)

    def _notice_silence(self, allowed: float) -> None:
        self._connection.notice_silence(allowed)
