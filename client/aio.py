"""The asyncio client: `client.Client`, with `await`.

No thread and no task stands behind it; the event loop calls `_Connection` when bytes come. The
shell owns three hard things:

- Back-pressure. A stream that nobody reads must not fill the memory: when more than
  `QUEUED_AT_MOST` messages wait in all streams together, the socket is not read until a reader
  waits again and at most half of them are left. While a command waits for its answer, reading
  goes on regardless, because the answer stands behind those messages. In the other direction,
  `publish` waits while the transport's write buffer is full.
- Cancellation. Waiting has no effect on the connection, so it can be cancelled anywhere. A command
  whose waiting is cancelled was sent none the less.
- Closing. However the connection ends, whoever waits is woken, with the reason.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from client.authentication import Authenticator, Credentials, PasswordAuthenticator
from client.commands import (
    AckType,
    DeleteOptions,
    LogonOptions,
    PublishOptions,
    QueryAndSubscribeOptions,
    QueryOptions,
    SubscribeOptions,
    chunks,
)
from client.errors import (
    ClientError,
    ConnectionLostError,
    LogonError,
    ProtocolError,
    TimedOutError,
)
from client.limits import DEFAULT_TIMEOUT, HEARTBEATS_MISSED, LOGON_ROUNDS, QUEUED_AT_MOST
from client.message import Message
from client.pending import Inbox, Request
from client.protocol import ClientProtocol
from client.sockets import apply_options, connect_error
from client.uri import ServerUri, parse_uri
from server.wire.header import Header


class _Connection(asyncio.Protocol):
    """Joins one ClientProtocol to the event loop."""

    def __init__(self) -> None:
        self.protocol = ClientProtocol()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._is_held_back = False
        self._heard = 0.0
        self._watch: asyncio.TimerHandle | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"expected a stream transport, got {transport!r}")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self.protocol.receive(data)
        except ProtocolError as error:
            self.end(error)
            return
        self._write_output()
        self._wake()
        self._adjust_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        cause = f"the connection ended: {exc}" if exc else "the server closed the connection"
        self.end(ConnectionLostError(cause))

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    # Called by the client

    async def wait_until(
        self, arrived: Callable[[], bool], timeout: float | None, what: str
    ) -> None:
        """Wait until something has arrived, or the connection has ended."""
        self._adjust_reading()
        if arrived():
            return
        future = self._loop.create_future()
        self._waiting[future] = arrived
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            raise TimedOutError(f"{what} did not come within {timeout:g} seconds") from None
        finally:
            del self._waiting[future]

    async def write(self, timeout: float) -> None:
        """Write what there is to write; wait if there is no room for more."""
        self._write_output()
        if self._room.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._room.wait()
        except TimeoutError:
            raise TimedOutError(f"room to write did not come within {timeout:g} seconds") from None

    def end(self, error: ClientError | None) -> None:
        """Close the connection and wake whoever waits."""
        self.protocol.close(error)
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.close()
        self._room.set()
        self._wake()

    def watch(self, silence_allowed: float) -> None:
        """End the connection when the server falls silent."""
        if self._watch is not None:
            self._watch.cancel()
        self._heard = self._loop.time()
        self._watch_again(silence_allowed, silence_allowed)

    def _watch_again(self, delay: float, silence_allowed: float) -> None:
        self._watch = self._loop.call_later(delay, self._look_for_silence, silence_allowed)

    def _look_for_silence(self, allowed: float) -> None:
        left = self._heard + allowed - self._loop.time()
        if self._is_held_back:  # it is us who do not listen
            self._watch_again(allowed, allowed)
        elif left > 0:
            self._watch_again(left, allowed)
        else:
            self.end(ConnectionLostError(f"the server was silent for {allowed:g} seconds"))

    def _write_output(self) -> None:
        output = self.protocol.output
        if output and self._transport is not None:
            self._transport.write(bytes(output))
            output.clear()

    def _wake(self) -> None:
        for future, arrived in self._waiting.items():
            if not future.done() and arrived():
                future.set_result(None)

    def _adjust_reading(self) -> None:
        if self._transport is None:
            return
        queued, is_waiting = self.protocol.queued, self.protocol.is_waiting
        if self._is_held_back and (is_waiting or queued <= QUEUED_AT_MOST // 2):
            self._is_held_back = False
            self._transport.resume_reading()
        elif not self._is_held_back and queued > QUEUED_AT_MOST and not is_waiting:
            self._is_held_back = True
            self._transport.pause_reading()


class AsyncMessageStream:
    """The messages of one subscription or query, as an asynchronous iterator.

    It ends and raises as `client.MessageStream` does.
    """

    def __init__(self, client: AsyncClient, connection: _Connection, inbox: Inbox) -> None:
        self._client = client
        self._connection = connection
        self._inbox = inbox

    @property
    def id(self) -> str:
        """The subscription or query id."""
        return self._inbox.id

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        messages = self._inbox.messages
        if not messages:
            await self._wait(None)
        if not messages:
            raise StopAsyncIteration
        return messages.popleft()

    async def batch(self, timeout: float | None = None) -> list[Message]:
        """Take everything that has arrived; see `client.MessageStream.batch`."""
        messages = self._inbox.messages
        if not messages:
            await self._wait(timeout)
        batch = list(messages)
        messages.clear()
        return batch

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """End the subscription or query; what has arrived can still be taken."""
        if not self._inbox.ended:
            await self._client.unsubscribe(self._inbox.id, timeout=timeout)

    async def _wait(self, timeout: float | None) -> None:
        inbox = self._inbox
        await self._connection.wait_until(
            lambda: bool(inbox.messages) or inbox.ended, timeout, "the next message"
        )
        if not inbox.messages and inbox.error is not None:
            raise inbox.error


class AsyncClient:
    """A connection to a server, for one event loop.

    Arguments, methods and errors are those of `client.Client`.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name or f"client-{uuid.uuid4().hex[:12]}"
        self._timeout = timeout
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._uri: ServerUri | None = None
        self._open_connection: _Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The connection

    async def connect(self, uri: str | ServerUri, *, timeout: float | None = None) -> None:
        """Connect to a server; the next step is `logon`."""
        self.close()
        self._uri = where = parse_uri(uri) if isinstance(uri, str) else uri
        try:
            async with asyncio.timeout(self._timeout_or(timeout)):
                transport, connection = await self._reach(where)
        except OSError as error:
            raise connect_error(where, error) from None
        raw_socket = transport.get_extra_info("socket")
        if isinstance(raw_socket, socket.socket):
            apply_options(raw_socket, where)
        self._open_connection = connection

    async def _reach(self, where: ServerUri) -> tuple[asyncio.Transport, _Connection]:
        """Try the host's addresses one by one, so that the last failure is told as it was."""
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if where.scheme == "tcps":
            tls["ssl"] = self._ssl_context or ssl.create_default_context()
            tls["server_hostname"] = where.host
        found = await loop.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        failure = OSError(f"{where.host} has no address")
        for *_, address in found:
            try:
                return await loop.create_connection(_Connection, str(address[0]), where.port, **tls)
            except OSError as error:
                failure = error
        raise failure

    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""
        if self._open_connection is not None:
            self._open_connection.end(None)
            self._open_connection = None

    async def logon(
        self, *, timeout: float | None = None, **options: Unpack[LogonOptions]
    ) -> Header:
        """Open the session as the user of the URI; returns the acknowledgement's header."""
        protocol = self._connection.protocol
        if self._uri is None:
            raise ConnectionLostError("not connected")
        uri = self._uri
        credentials = self._authenticator.authenticate(Credentials(uri.user, uri.password))
        for _ in range(LOGON_ROUNDS):
            request = protocol.logon(self.name, *credentials, uri.message_type, **options)
            answer = (await self._answered(request, timeout)).acks["processed"]
            if answer.status != "retry":
                return answer
            credentials = self._authenticator.retry(Credentials(answer.user_id, answer.password))
        raise LogonError("logon", f"the server asked for more than {LOGON_ROUNDS} rounds")

    # Publishing

    async def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a message, without asking whether it arrived; `flush` asks that."""
        connection = self._connection
        connection.protocol.publish(topic, body, delta=delta, **options)
        await connection.write(self._timeout)

    async def delta_publish(
        self, topic: str, body: bytes, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a change: the fields that are new or different, and the key."""
        await self.publish(topic, body, delta=True, **options)

    async def publish_all(
        self, topic: str, bodies: Iterable[bytes], *, delta: bool = False
    ) -> None:
        """Publish many messages, with few writes."""
        connection = self._connection
        for chunk in chunks(bodies):
            connection.protocol.publish_all(topic, chunk, delta=delta)
            await connection.write(self._timeout)

    async def confirmed_publish(
        self,
        topic: str,
        body: bytes,
        ack: AckType = "persisted",
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> Header:
        """Publish a message and wait until the server acknowledges it."""
        request = self._connection.protocol.confirmed_publish(
            topic, body, ack, delta=delta, **options
        )
        return (await self._answered(request, timeout)).acks[ack]

    # Subscriptions and queries

    async def subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> AsyncMessageStream:
        """Subscribe to a topic, or to every topic that a regular expression matches."""
        request = self._connection.protocol.subscribe(topic, delta=delta, **options)
        return await self._stream(request, timeout)

    async def sow(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[QueryOptions]
    ) -> AsyncMessageStream:
        """Query a SOW topic; the stream ends after the last record."""
        return await self._stream(self._connection.protocol.sow(topic, **options), timeout)

    async def sow_and_subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[QueryAndSubscribeOptions],
    ) -> AsyncMessageStream:
        """Query a SOW topic and follow it; `group_end` marks the end of the query's records."""
        request = self._connection.protocol.sow_and_subscribe(topic, delta=delta, **options)
        return await self._stream(request, timeout)

    async def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id, or all of them."""
        await self._answered(self._connection.protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    async def sow_delete(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[DeleteOptions]
    ) -> int:
        """Delete records from a SOW topic; returns how many."""
        request = self._connection.protocol.sow_delete(topic, **options)
        return (await self._answered(request, timeout)).acks["stats"].records_deleted or 0

    async def acknowledge(
        self, topic: str, bookmarks: Iterable[str], options: str | None = None
    ) -> None:
        """Tell a queue that messages are done with (or "cancel", "expire")."""
        connection = self._connection
        connection.protocol.acknowledge(topic, bookmarks, options)
        await connection.write(self._timeout)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the server has processed everything that was sent before."""
        await self._answered(self._connection.protocol.flush(), timeout)

    async def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Exchange signs of life every so many seconds; the event loop answers the server's."""
        connection = self._connection
        await self._answered(connection.protocol.heartbeat(interval), timeout)
        connection.watch(float(interval * HEARTBEATS_MISSED))

    # Waiting

    @property
    def _connection(self) -> _Connection:
        if self._open_connection is None:
            raise ConnectionLostError("not connected")
        return self._open_connection

    async def _answered(self, request: Request, timeout: float | None) -> Request:
        connection = self._connection
        await connection.write(self._timeout)
        await connection.wait_until(
            lambda: request.done, self._timeout_or(timeout), f"the answer to {request.command}"
        )
        if request.error is not None:
            raise request.error
        return request

    async def _stream(self, request: Request, timeout: float | None) -> AsyncMessageStream:
        connection = self._connection
        await self._answered(request, timeout)
        if request.inbox is None:
            raise ValueError(f"{request.command} has no messages")
        return AsyncMessageStream(self, connection, request.inbox)

    def _timeout_or(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout
