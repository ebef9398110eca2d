"""The asyncio client with one connection: `amperage.Client`, with `await`."""

from __future__ import annotations

import ssl

from amperage.client.aio_commands import AsyncCommands
from amperage.client.aio_connection import AioConnection, open_connection
from amperage.client.arguments import client_name, handler
from amperage.client.authentication import (
    Authenticator,
    PasswordAuthenticator,
    check_connection_arguments,
)
from amperage.client.command_shell import not_connected
from amperage.client.errors import CredentialsError
from amperage.client.limits import DEFAULT_TIMEOUT
from amperage.client.logon import LogonDialogue
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStore
from amperage.client.sequence_numbers import AsyncRefusalListener, PublishSequence
from amperage.client.serialization import Decoder, Encoder
from amperage.client.uri import ServerUri, parse_uri
from amperage.wire.header import Header


class AsyncClient(AsyncCommands):
    """A connection to a server, for one event loop.

    The methods and errors are those of `Client`; the methods are awaited.

    Args:
        name: the client name, unique among the server's clients; None generates one.
        timeout: default timeout of a call, in seconds.
        authenticator: provides the credentials; None sends the URI's user and password.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.
        on_refused: a callback for each published message that the server refuses, called with the
            message, a `StoredMessage`, and the error. A coroutine function is awaited, one call
            after the other. With it, messages are numbered, and kept in memory until the server
            acknowledges them; without it, `flush` raises `MessagesRefusedError`.
        encoder: encodes published values that are neither bytes nor text: "json", or a function
            that returns bytes or text. None refuses them.
        decoder: decodes received bodies for `message.value`: "json", a type for JSON bodies, or a
            function of the bytes. None leaves them as they are.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        on_refused: AsyncRefusalListener | None = None,
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        handler("on_refused", on_refused, may_be_async=True)
        check_connection_arguments(authenticator, ssl_context)
        self.name = client_name(name)
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._on_refused = on_refused
        self._uri: ServerUri | None = None
        self._connected_pair: tuple[AioConnection, ClientProtocol] | None = None

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

    async def connect(self, uri: str | ServerUri, *, timeout: float | None = None) -> None:
        """Connect to a server. Call `logon` next."""
        await self.close()
        server_uri = uri if isinstance(uri, ServerUri) else parse_uri(uri)
        numbering = PublishSequence(PublishStore(), self._on_refused) if self._on_refused else None
        protocol = ClientProtocol(numbering, server_uri.protocol)
        protocol.traffic = self._traffic
        connection = await open_connection(
            lambda: AioConnection(protocol, server_uri, self._waiters),
            server_uri,
            self._resolve_timeout(timeout),
            self._ssl_context,
        )
        self._uri = server_uri
        self._connected_pair = connection, protocol

    async def close(self) -> None:
        """Close the connection and end all streams. A closed client can connect again."""
        if self._connected_pair is None:
            return
        self._send_acks()
        (connection, protocol), self._connected_pair = self._connected_pair, None
        connection.end(None)
        await protocol.handler_calls.wait_until_done()

    async def logon(
        self,
        *,
        timeout: float | None = None,
        correlation_id: str | None = None,
        options: str | None = None,
    ) -> Header:
        """Open the session as the user of the URI; return the header of the acknowledgement."""
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
            return await self._connection.log_on(dialogue, self._resolve_timeout(timeout))
        except CredentialsError:
            await self.close()
            raise

    @property
    def _connection(self) -> AioConnection:
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

    async def _wait_until_written(self, position: int) -> None:
        await self._connection.wait_until_written(position, self._timeout)

    def _set_silence_timeout(self, allowed: float) -> None:
        self._connection.set_silence_timeout(allowed)
