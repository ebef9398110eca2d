"""The commands of an asyncio client, and the streams of what they bring.

How bytes move is left to `client.aio.AsyncClient`, which has one connection, and to
`client.ha_aio.AsyncHAClient`, which has as many as it takes.

Waiting has no effect on a connection, so it can be cancelled anywhere. A command whose waiting is
cancelled was sent none the less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
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


class AsyncMessageStream:
    """The messages of one subscription or query, as an asynchronous iterator.

    It ends and raises as `client.MessageStream` does.
    """

    def __init__(self, client: AsyncCommands, inbox: Inbox) -> None:
        self._client = client
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
        await self._client.wait_until(
            lambda: bool(inbox.messages) or inbox.ended, timeout, "the next message"
        )
        if not inbox.messages and inbox.error is not None:
            raise inbox.error


class AsyncCommands(ABC):
    """What every asyncio client can do once it has logged on; see `BlockingCommands`."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
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
    async def wait_until(
        self, arrived: Callable[[], bool], timeout: float | None, what: str
    ) -> None:
        """Wait until something has arrived; see `BlockingCommands.wait_until`."""

    @property
    @abstractmethod
    def _protocol(self) -> ClientProtocol:
        """What commands are given to."""

    @abstractmethod
    async def _write(self) -> None:
        """Write what there is to write; wait if there is no room for more."""

    @abstractmethod
    def _notice_silence(self, allowed: float) -> None:
        """From now on, take a server for gone that has been silent for so many seconds."""

    # Publishing

    async def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a message, without asking whether it arrived; `flush` asks that."""
        self._protocol.publish(topic, body, delta=delta, **options)
        await self._write()

    async def delta_publish(
        self, topic: str, body: bytes, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a change: the fields that are new or different, and the key."""
        await self.publish(topic, body, delta=True, **options)

    async def publish_all(
        self, topic: str, bodies: Iterable[bytes], *, delta: bool = False
    ) -> None:
        """Publish many messages, with few writes."""
        for chunk in chunks(bodies):
            self._protocol.publish_all(topic, chunk, delta=delta)
            await self._write()

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
        request = self._protocol.confirmed_publish(topic, body, ack, delta=delta, **options)
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
        request = self._protocol.subscribe(topic, delta=delta, **options)
        return await self._stream(request, timeout)

    async def sow(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[QueryOptions]
    ) -> AsyncMessageStream:
        """Query a SOW topic; the stream ends after the last record."""
        return await self._stream(self._protocol.sow(topic, **options), timeout)

    async def sow_and_subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[QueryAndSubscribeOptions],
    ) -> AsyncMessageStream:
        """Query a SOW topic and follow it; `group_end` marks the end of the query's records."""
        request = self._protocol.sow_and_subscribe(topic, delta=delta, **options)
        return await self._stream(request, timeout)

    async def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id, or all of them."""
        await self._answered(self._protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    async def sow_delete(
        self, topic: str, *, timeout: float | None = None, **options: Unpack[DeleteOptions]
    ) -> int:
        """Delete records from a SOW topic; returns how many."""
        request = self._protocol.sow_delete(topic, **options)
        return (await self._answered(request, timeout)).acks["stats"].records_deleted or 0

    async def acknowledge(
        self, topic: str, bookmarks: Iterable[str], options: str | None = None
    ) -> None:
        """Tell a queue that messages are done with (or "cancel", "expire")."""
        self._protocol.acknowledge(topic, bookmarks, options)
        await self._write()

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the server has processed everything that was sent before."""
        await self._answered(self._protocol.flush(), timeout)

    async def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Exchange signs of life every so many seconds; the event loop answers the server's."""
        await self._answered(self._protocol.heartbeat(interval), timeout)
        self._notice_silence(float(interval * HEARTBEATS_MISSED))

    # Waiting

    async def _answered(self, request: Request, timeout: float | None) -> Request:
        await self._write()
        await self.wait_until(
            lambda: request.done, self._timeout_or(timeout), f"the answer to {request.command}"
        )
        if request.error is not None:
            raise request.error
        return request

    async def _stream(self, request: Request, timeout: float | None) -> AsyncMessageStream:
        await self._answered(request, timeout)
        if request.inbox is None:
            raise ValueError(f"{request.command} has no messages")
        return AsyncMessageStream(self, request.inbox)

    def _timeout_or(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout
