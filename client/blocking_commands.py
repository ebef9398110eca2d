"""The commands of a blocking client, and the streams of what they bring.

How bytes move is left to `client.blocking.Client`, which has one connection, and to
`client.ha.HAClient`, which has as many as it takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, Unpack

from client.commands import (
    AckType,
    DeleteOptions,
    PublishOptions,
    QueryAndSubscribeOptions,
    QueryOptions,
    SubscribeOptions,
    chunks,
)
from client.limits import HEARTBEATS_MISSED
from client.message import Message
from client.pending import Inbox, Request
from client.protocol import ClientProtocol
from server.wire.header import Header


class MessageStream:
    """The messages of one subscription or query, as an iterator.

    Iteration waits for the next message. It ends after the last record of a query, after
    `unsubscribe`, and when the client is closed; it raises `ConnectionLostError` when the
    connection ends otherwise.
    """

    def __init__(self, client: BlockingCommands, inbox: Inbox) -> None:
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


class BlockingCommands(ABC):
    """What every blocking client can do once it has logged on.

    Args:
        timeout: seconds that a call waits for its answer unless it says otherwise.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""

    @abstractmethod
    def wait_until(self, arrived: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Read and write until something has arrived.

        Args:
            arrived: whether it has; it looks at a request or an inbox.
            timeout: seconds; None for as long as it takes.
            what: what is waited for, for the error.

        Raises:
            TimedOutError: it has not arrived in time.
            ConnectionLostError: it cannot arrive any more.
        """

    @property
    @abstractmethod
    def _protocol(self) -> ClientProtocol:
        """What commands are given to."""

    @abstractmethod
    def _write(self) -> None:
        """Write what there is to write."""

    @abstractmethod
    def _notice_silence(self, allowed: float) -> None:
        """From now on, take a server for gone that has been silent for so many seconds."""

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
        self._notice_silence(float(interval * HEARTBEATS_MISSED))

    # Waiting

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

    def _timeout_or(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout
