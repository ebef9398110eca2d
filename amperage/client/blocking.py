"""The blocking client with one connection, safe to use from several threads."""

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
from amperage.client.handler_calls import HandlerCalls
from amperage.client.limits import DEFAULT_TIMEOUT
from amperage.client.logon import LogonDialogue
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStore
from amperage.client.sequence_numbers import PublishSequence, RefusalListener
from amperage.client.serialization import Decoder, Encoder
from amperage.client.state_lock import ClientLock
from amperage.client.uri import ServerUri, parse_uri
from amperage.wire.header import Header

_log = logging.getLogger("amperage.client")


class Client(BlockingCommands):
    """A connection to a server.

    A background thread reads the connection and answers heartbeats. Any thread can send commands
    and iterate streams.

    Args:
        name: the client name, unique among the server's clients; None generates one.
        timeout: default timeout of a call, in seconds.
        authenticator: provides the credentials; None sends the URI's user and password.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.
        on_refused: a callback for each published message that the server refuses. It is called with
            the message, a `StoredMessage`, and the error, in the background thread, and must not
            block. With it, messages are numbered, and kept in memory until the server acknowledges
            them; without it, `flush` raises `MessagesRefusedError`.
        encoder: encodes published values that are neither bytes nor text: "json", or a function
            that returns bytes or text. None refuses them.
        decoder: decodes received bodies for `message.value`: "json", a type for JSON bodies, or a
            function of the bytes. None leaves them as they are.

    Every blocking call takes a `timeout` in seconds; None selects the client's. Such calls raise
    `TimedOutError` after the timeout, a `CommandError` when the server refuses the command, and
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
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        handler("on_refused", on_refused)
        check_connection_arguments(authenticator, ssl_context)
        self.name = client_name(name)
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._on_refused = on_refused
        self._uri: ServerUri | None = None
        self._connected_pair: tuple[BlockingConnection, ClientProtocol] | None = None
        self._reader_thread: threading.Thread | None = None
        self._finalizer: weakref.finalize[[], Client] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected and logged on."""
        if self._connected_pair is None:
            return False
        protocol = self._connected_pair[1]
        return protocol.has_logged_on and not protocol.is_closed

    def __repr__(self) -> str:
        state = "not connected" if self._connected_pair is None else f"connected to {self._uri}"
        return f"<{type(self).__name__} {self.name}: {state}>"

    def connect(self, uri: str | ServerUri, *, timeout: float | None = None) -> None:
        """Connect to a server. Call `logon` next.

        Args:
            uri: such as "tcp://user:password@localhost:9007/amps/json".
            timeout: seconds to wait for the connection.

        Raises:
            InvalidUriError: the URI is invalid.
            ConnectError: the connection cannot be established.
        """
        self.close()
        server_uri = uri if isinstance(uri, ServerUri) else parse_uri(uri)
        numbering = PublishSequence(PublishStore(), self._on_refused) if self._on_refused else None
        protocol = ClientProtocol(numbering, server_uri.protocol)
        protocol.traffic = self._traffic
        connection = BlockingConnection(
            protocol, server_uri, self._guard, self._resolve_timeout(timeout), self._ssl_context
        )
        self._guard.on_fork = connection.abandon_after_fork
        self._uri = server_uri
        self._connected_pair = connection, protocol
        self._reader_thread = threading.Thread(
            target=_read,
            args=(connection, protocol.handler_calls, self._guard),
            name=f"amps {self.name}",
            daemon=True,
        )
        self._reader_thread.start()
        self._finalizer = weakref.finalize(self, connection.request_end)
        self._finalizer.atexit = False

    def close(self) -> None:
        """Close the connection and end all streams. A closed client can connect again."""
        if self._connected_pair is None:
            return
        self._send_acks()
        (connection, _), self._connected_pair = self._connected_pair, None
        if self._finalizer is not None:
            self._finalizer.detach()
        with self._guard.exclusive():
            connection.end(None)
        if self._reader_thread is not None and not self._guard.is_reader_thread:
            self._reader_thread.join(_JOIN_TIMEOUT_S)

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
            The header of the acknowledgement, with the server's version and the last sequence
            number.

        Raises:
            LogonError: the server refused the logon; the subclass has the reason.
            CredentialsError: no credentials are available, or the server failed to authenticate
                itself.
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
                dialogue.process_answer(
                    self._execute_command(lambda _: dialogue.send_logon(), timeout)
                )
        except CredentialsError:
            self.close()
            raise
        return dialogue.answer

    @property
    def _connection(self) -> BlockingConnection:
        if self._connected_pair is None:
            raise not_connected()
        return self._connected_pair[0]

    @property
    def _protocol(self) -> ClientProtocol:
        if self._connected_pair is None:
            raise not_connected()
        return self._connected_pair[1]

    def _write(self) -> int:
        return self._connection.write_output()

    def _wait_until_written(self, position: int) -> None:
        self._connection.wait_until_written(position, self._timeout)

    def _set_silence_timeout(self, allowed: float) -> None:
        with self._guard.exclusive():
            self._connection.set_silence_timeout(allowed)


_JOIN_TIMEOUT_S = 1.0
"""Seconds to wait for the reading thread: its handler may wait for the caller of `close`."""


def _read(connection: BlockingConnection, calls: HandlerCalls, guard: ClientLock) -> None:
    """Run the reading thread."""
    guard.register_reader()
    try:
        connection.run_until(lambda: False)
    except ClientError:
        pass  # raised by the waiting calls and by each later command
    except Exception as failure:
        _log.exception("the client's thread has failed")
        error = ConnectionLostError(f"the client's thread has failed: {failure!r}")
        error.__cause__ = failure
        with guard.exclusive_first():
            connection.end(error)
    finally:
        connection.close_sockets()
        calls.call_all()  # reports of messages without an answer
