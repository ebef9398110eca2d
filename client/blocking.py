"""The blocking client: reads and writes in the thread that calls it.

There is no thread behind it. The socket is read while a call waits for something: an answer, the
next message of a stream, or room to write. What arrives meanwhile for other streams is kept for
them. A client belongs to one thread at a time; a program with more makes a client for each.

The same holds for heartbeats: they are answered during calls. A program that asks for them has to
call in (`flush` will do) more often than the interval.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, Unpack

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
from client.errors import ClientError, ConnectionLostError, LogonError, ProtocolError, TimedOutError
from client.limits import DEFAULT_TIMEOUT, HEARTBEATS_MISSED, LOGON_ROUNDS
from client.message import Message
from client.pending import Inbox, Request
from client.protocol import ClientProtocol
from client.sockets import open_socket
from client.uri import ServerUri, parse_uri
from server.wire.header import Header

_READ_SIZE: Final = 256 * 1024


class MessageStream:
    """The messages of one subscription or query, as an iterator.

    Iteration waits for the next message. It ends after the last record of a query, after
    `unsubscribe`, and when the client is closed; it raises `ConnectionLostError` when the
    connection ends otherwise.
    """

    def __init__(self, client: Client, inbox: Inbox) -> None:
        self._client = client
        self._inbox = inbox

    @property
    def id(self) -> str:
        """The subscription or query id."""
        return self._inbox.id

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        messages = self._inbox.messages
        if not messages:
            self._wait(None)
        if not messages:
            raise StopIteration
        return messages.popleft()

    def batch(self, timeout: float | None = None) -> list[Message]:
        """Take everything that has arrived, waiting for one message if there is none.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Returns:
            The messages; none if the stream has ended.

        Raises:
            TimedOutError: nothing came in time.
            ConnectionLostError: the connection ended.
        """
        messages = self._inbox.messages
        if not messages:
            self._wait(timeout)
        batch = list(messages)
        messages.clear()
        return batch

    def unsubscribe(self, timeout: float | None = None) -> None:
        """End the subscription or query; what has arrived can still be taken."""
        if not self._inbox.ended:
            self._client.unsubscribe(self._inbox.id, timeout=timeout)

    def _wait(self, timeout: float | None) -> None:
        inbox = self._inbox
        self._client.wait_until(
            lambda: bool(inbox.messages) or inbox.ended, timeout, "the next message"
        )
        if not inbox.messages and inbox.error is not None:
            raise inbox.error


class Client:
    """A connection to a server, for one thread.

    Args:
        name: the client name; it must be unique among a server's clients. One is made up if None.
        timeout: seconds that a call waits for its answer unless it says otherwise.
        authenticator: makes the credentials; None sends the URI's user and password.
        ssl_context: for tcps; None checks the certificate against the system's authorities.

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
        self.name = name or f"client-{uuid.uuid4().hex[:12]}"
        self._timeout = timeout
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._protocol = ClientProtocol()
        self._uri: ServerUri | None = None
        self._socket: socket.socket | None = None
        self._silence_allowed: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The connection

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
        self._uri = parse_uri(uri) if isinstance(uri, str) else uri
        self._socket = open_socket(self._uri, self._timeout_or(timeout), self._ssl_context)
        self._protocol = ClientProtocol()
        self._silence_allowed = None

    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""
        self._close(None)

    def logon(self, *, timeout: float | None = None, **options: Unpack[LogonOptions]) -> Header:
        """Open the session as the user of the URI.

        Returns:
            The header of the acknowledgement: the server's version, the last sequence number.

        Raises:
            LogonError: the server refused; its types say why.
        """
        if self._uri is None:
            raise ConnectionLostError("not connected")
        uri = self._uri
        given = Credentials(uri.user, uri.password)
        credentials = self._authenticator.authenticate(given)
        for _ in range(LOGON_ROUNDS):
            request = self._protocol.logon(self.name, *credentials, uri.message_type, **options)
            answer = self._answered(request, timeout).acks["processed"]
            if answer.status != "retry":
                return answer
            credentials = self._authenticator.retry(Credentials(answer.user_id, answer.password))
        raise LogonError("logon", f"the server asked for more than {LOGON_ROUNDS} rounds")

    # Publishing

    def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a message, without asking whether it arrived; `flush` asks that."""
        self._protocol.publish(topic, body, delta=delta, **options)
        self._write()

    def delta_publish(self, topic: str, body: bytes, **options: Unpack[PublishOptions]) -> None:
        """Publish a change: the fields that are new or different, and the key."""
        self.publish(topic, body, delta=True, **options)

    def publish_all(self, topic: str, bodies: Iterable[bytes], *, delta: bool = False) -> None:
        """Publish many messages, with few writes."""
        for chunk in chunks(bodies):
            self._protocol.publish_all(topic, chunk, delta=delta)
            self._write()

    def confirmed_publish(
        self,
        topic: str,
        body: bytes,
        ack: AckType = "persisted",
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> Header:
        """Publish a message and wait until the server acknowledges it.

        Args:
            topic: where to.
            body: the message.
            ack: what to wait for: "processed", or "persisted" on stable storage.
            delta: whether the message is a change.
            timeout: seconds to wait.
            options: see `PublishOptions`.

        Returns:
            The header of the acknowledgement.
        """
        request = self._protocol.confirmed_publish(topic, body, ack, delta=delta, **options)
        return self._answered(request, timeout).acks[ack]

    # Subscriptions and queries

    def subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> MessageStream:
        """Subscribe to a topic, or to every topic that a regular expression matches."""
        return self._stream(self._protocol.subscribe(topic, delta=delta, **options), timeout)

    def sow(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[QueryOptions]
    ) -> MessageStream:
        """Query a SOW topic; the stream ends after the last record."""
        return self._stream(self._protocol.sow(topic, **options), timeout)

    def sow_and_subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[QueryAndSubscribeOptions],
    ) -> MessageStream:
        """Query a SOW topic and follow it; `group_end` marks the end of the query's records."""
        request = self._protocol.sow_and_subscribe(topic, delta=delta, **options)
        return self._stream(request, timeout)

    def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id, or all of them."""
        self._answered(self._protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    def sow_delete(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[DeleteOptions]
    ) -> int:
        """Delete records from a SOW topic.

        Returns:
            How many were deleted.
        """
        request = self._protocol.sow_delete(topic, **options)
        return self._answered(request, timeout).acks["stats"].records_deleted or 0

    def acknowledge(self, topic: str, bookmarks: Iterable[str], options: str | None = None) -> None:
        """Tell a queue that messages are done with.

        Args:
            topic: the queue.
            bookmarks: those of the messages.
            options: "cancel" gives them back to the queue, "expire" lets them expire.
        """
        self._protocol.acknowledge(topic, bookmarks, options)
        self._write()

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the server has processed everything that was sent before."""
        self._answered(self._protocol.flush(), timeout)

    def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Exchange signs of life, so that either side notices when the other is gone.

        Args:
            interval: seconds between them.
            timeout: seconds to wait for the answer.
        """
        self._answered(self._protocol.heartbeat(interval), timeout)
        self._silence_allowed = float(interval * HEARTBEATS_MISSED)

    # Reading and writing

    def wait_until(self, arrived: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Read and write until something has arrived.

        Args:
            arrived: whether it has; it looks at a request or an inbox.
            timeout: seconds; None for as long as it takes.
            what: what is waited for, for the error.

        Raises:
            TimedOutError: it has not arrived in time.
            ConnectionLostError: the connection ended and it cannot arrive any more.
        """
        now = time.monotonic()
        deadline = None if timeout is None else now + timeout
        heard = now
        while not arrived():
            progress = self._send_some()
            if self._receive_some():
                heard = time.monotonic()
                continue
            if arrived() or progress:
                continue
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimedOutError(f"{what} did not come within {timeout:g} seconds")
            silent_until = None if self._silence_allowed is None else heard + self._silence_allowed
            if silent_until is not None and now >= silent_until:
                raise self._lost(f"the server was silent for {self._silence_allowed:g} seconds")
            ends = [end for end in (deadline, silent_until) if end is not None]
            self._poll(min(ends) - now if ends else None)

    def _answered(self, request: Request, timeout: float | None) -> Request:
        """Wait for a request's answer, and raise its refusal."""
        if not request.done:
            self.wait_until(
                lambda: request.done, self._timeout_or(timeout), f"the answer to {request.command}"
            )
        if request.error is not None:
            raise request.error
        return request

    def _stream(self, request: Request, timeout: float | None) -> MessageStream:
        self._answered(request, timeout)
        if request.inbox is None:
            raise ValueError(f"{request.command} has no messages")
        return MessageStream(self, request.inbox)

    def _write(self) -> None:
        """Write what there is to write, reading meanwhile if the server waits for that."""
        output = self._protocol.output
        while output:
            if not self._send_some():
                self.wait_until(_shorter_than_now(output), self._timeout, "room to write")

    def _send_some(self) -> bool:
        output = self._protocol.output
        if not output:
            return False
        try:
            sent = self._connection().send(output)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._lost(f"the connection ended: {error.strerror or error}") from None
        del output[:sent]
        return True

    def _receive_some(self) -> bool:
        try:
            data = self._connection().recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._lost(f"the connection ended: {error.strerror or error}") from None
        if not data:
            raise self._lost("the server closed the connection")
        try:
            self._protocol.receive(data)
        except ProtocolError as error:
            self._close(error)
            raise
        return True

    def _poll(self, timeout: float | None) -> None:
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._protocol.output else 0)
        poll.register(self._connection(), events)
        poll.poll(None if timeout is None else max(0, int(timeout * 1000) + 1))

    def _connection(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError("not connected")
        return self._socket

    def _lost(self, message: str) -> ConnectionLostError:
        error = ConnectionLostError(message)
        self._close(error)
        return error

    def _close(self, error: ClientError | None) -> None:
        self._protocol.close(error)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _timeout_or(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout


def _shorter_than_now(output: bytearray) -> Callable[[], bool]:
    length = len(output)
    return lambda: len(output) < length
