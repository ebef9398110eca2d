"""One connection to a directory: requests, one after the other, and the answers to each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from server.security.ldap import messages
from server.security.ldap.ber import BerError
from server.security.ldap.messages import LdapEntry, LdapMessage, LdapResult

_MAX_BYTES: Final = 2 * messages.MAX_LDAP_MESSAGE_SIZE
"""Limit of the input buffer. A directory that sends more unasked misbehaves."""
_MAX_ANSWERS: Final = 32
"""Limit of the messages in the answer to a search; two entries are too many already."""
_MAX_ENTRIES: Final = 2
_SEARCH_SECONDS: Final = 10


class LdapConnection(asyncio.Protocol):
    """Sends requests to a directory. Made by `connected`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._problem: Exception | None = None
        self._data_future: asyncio.Future[None] | None = None
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it is a stream's
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        if len(self._received) > _MAX_BYTES:
            self._problem = BerError(f"more than {_MAX_BYTES} bytes that were not requested")
            self.close()
        self._notify()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._problem = self._problem or exc or EOFError("it has closed the connection")
        self._notify()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> LdapResult:
        """Start TLS on the connection, if the directory agrees.

        Raises:
            BerError: the answer is not the expected one.
            EOFError, OSError: the connection has ended, or the certificate is not accepted.
        """
        self._send(messages.start_tls(self._next_number()))
        result = messages.read_result(await self._receive_answer(messages.EXTENDED_RESPONSE))
        if result.code == messages.SUCCESS:
            if self._received:  # injected by a man in the middle, as if encrypted
                raise BerError("bytes behind the answer to StartTLS")
            assert self._transport is not None  # noqa: S101 - it has just answered
            loop = asyncio.get_running_loop()
            tls_transport = await loop.start_tls(
                self._transport, self, context, server_hostname=host
            )
            if tls_transport is None:
                raise EOFError("it has closed the connection")
            self._transport = tls_transport
        return result

    async def bind(self, version: int, name: str, password: str) -> LdapResult:
        """Log on.

        Raises:
            BerError: the answer is not the expected one.
            EOFError, OSError: the connection has ended.
        """
        self._send(messages.bind(self._next_number(), version, name, password))
        return messages.read_result(await self._receive_answer(messages.BIND_RESPONSE))

    async def search(
        self, base: str, attributes: tuple[str, ...], value: str
    ) -> tuple[list[LdapEntry], LdapResult]:
        """Search for entries with a value in one of several attributes.

        Referrals to other directories are not followed.

        Raises:
            BerError: the answer is not the expected one.
            EOFError, OSError: the connection has ended.
        """
        request = messages.search(
            self._next_number(), base, attributes, value, _MAX_ENTRIES, _SEARCH_SECONDS
        )
        self._send(request)
        entries = []
        for _ in range(_MAX_ANSWERS):
            message = await self._receive_answer(
                messages.SEARCH_ENTRY, messages.SEARCH_REFERENCE, messages.SEARCH_DONE
            )
            if message.tag == messages.SEARCH_ENTRY:
                entries.append(messages.read_entry(message))
            elif message.tag == messages.SEARCH_DONE:
                return entries, messages.read_result(message)
        raise BerError(f"more than {_MAX_ANSWERS} answers to a search for {_MAX_ENTRIES} entries")

    def unbind(self) -> None:
        """Send the end of the session (unbind)."""
        self._send(messages.unbind(self._next_number()))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _send(self, request: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - it is connected
        self._transport.write(request)

    async def _receive_answer(self, *expected: int) -> LdapMessage:
        """Receive the next message, which must answer the last request."""
        message = messages.read_message(await self._receive_message())
        if message.number == 0:
            raise EOFError(f"it closes the connection, {messages.read_result(message)}")
        if message.number != self._number:
            raise BerError(f"message {message.number} where {self._number} was expected")
        if message.tag not in expected:
            raise BerError(f"tag {message.tag:#04x}, which does not match the request")
        return message

    async def _receive_message(self) -> bytes:
        """Receive the bytes of the next message."""
        while True:
            size = messages.size_of_message(bytes(self._received[:6]))
            if size is not None and size <= len(self._received):
                octets = bytes(self._received[:size])
                del self._received[:size]
                return octets
            if self._problem is not None:
                raise self._problem
            self._data_future = asyncio.get_running_loop().create_future()
            await self._data_future

    def _notify(self) -> None:
        if self._data_future is not None and not self._data_future.done():
            self._data_future.set_result(None)


@asynccontextmanager
async def connected(
    host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[LdapConnection]:
    """Connect to a directory, and close the connection at the end.

    Args:
        host: its host.
        port: its port.
        tls: encrypts the connection from the start; None for no encryption.

    Raises:
        OSError: the connection failed.
    """
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(LdapConnection, host, port, ssl=tls)
    try:
        yield connection
        connection.unbind()
    finally:
        connection.close()
