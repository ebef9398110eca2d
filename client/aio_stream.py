"""The messages that an asyncio client's subscription or query brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol, Self

from client.arguments import seconds
from client.errors import ClientError, ConnectionLostError
from client.message import Message
from client.pending import Inbox
from client.streams import Stream


class Owner(Protocol):
    """The client that a stream belongs to."""

    async def wait_until(
        self,
        arrived: Callable[[], bool],
        timeout: float | None,
        what: str,
        *,
        is_urgent: bool = True,
    ) -> None:
        """Wait until something has arrived; see `AsyncCommands.wait_until`."""

    async def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id."""

    def settle(self, inbox: Inbox, message: Message, options: str | None) -> None:
        """Tell a queue what became of a message."""

    def send_acks(self) -> None:
        """Send the acknowledgements of queue messages that have collected, without waiting."""


class AsyncMessageStream(Stream):
    """The messages of one subscription or query, as an asynchronous iterator.

    It ends and raises as `client.MessageStream` does; it is an asynchronous context manager, too.
    """

    def __init__(self, client: Owner, inbox: Inbox) -> None:
        super().__init__(inbox)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        if kind is None:
            self.done()
        # A lost connection has ended the stream as well; an error on the way out comes first.
        with suppress(ConnectionLostError if kind is None else ClientError):
            await self.unsubscribe()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        if self._handed_out:
            self.done()
        message = self._take() or await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self, timeout: float | None = None) -> Message | None:
        """Wait for the next message; see `client.MessageStream.next`."""
        self.done()
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + seconds("timeout", timeout)
        while (message := self._take()) is None and not self._is_over():
            self._client.send_acks()
            left = None if deadline is None else max(0.0, deadline - loop.time())
            await self._client.wait_until(self._has_news, left, "the next message", is_urgent=False)
        return message

    async def batch(self, timeout: float | None = None) -> list[Message]:
        """Take everything that has arrived; see `client.MessageStream.batch`."""
        first = await self.next(timeout)
        if first is None:
            return []
        others = (self._take() for _ in range(len(self._inbox.messages)))
        return [first, *(message for message in others if message is not None)]

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """End the subscription or query; what has arrived can still be taken."""
        if not self._inbox.ended:
            await self._client.unsubscribe(self._inbox.id, timeout=timeout)

    def _settle(self, message: Message, options: str | None) -> None:
        self._client.settle(self._inbox, message, options)
