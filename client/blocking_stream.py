"""The messages that a blocking client's subscription or query brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, Self

from client.arguments import seconds
from client.errors import ClientError, ConnectionLostError
from client.message import Message
from client.pending import Inbox
from client.streams import Stream


class Owner(Protocol):
    """The client that a stream belongs to."""

    def wait_for_news(self, has_news: Callable[[], bool], timeout: float | None) -> None:
        """Wait for the next message of a stream, or its end.

        Args:
            has_news: whether either is there.
            timeout: seconds; None for as long as it takes.

        Raises:
            TimedOutError: neither came in time.
        """

    def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id."""

    def settle(self, inbox: Inbox, message: Message, options: str | None) -> None:
        """Tell a queue what became of a message."""


class MessageStream(Stream):
    """The messages of one subscription or query, as an iterator.

    Iteration waits for the next message. It ends after the last record of a query, after
    `unsubscribe`, and when the client is closed; it raises `ConnectionLostError` when the
    connection ends otherwise. Several threads may iterate: each message goes to one of them.

    As a context manager, it ends the subscription or query on the way out.
    """

    def __init__(self, client: Owner, inbox: Inbox) -> None:
        super().__init__(inbox)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        if kind is None:
            self.done()
        # A lost connection has ended the stream as well; an error on the way out comes first.
        with suppress(ConnectionLostError if kind is None else ClientError):
            self.unsubscribe()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._handed_out:
            self.done()
        message = self._take() or self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> Message | None:
        """Wait for the next message.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Returns:
            The message; None if the stream has ended.

        Raises:
            TimedOutError: nothing came in time.
            ConnectionLostError: the connection ended.
        """
        self.done()
        deadline = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        while (message := self._take()) is None and not self._is_over():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._client.wait_for_news(self._has_news, left)
        return message

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
        first = self.next(timeout)
        if first is None:
            return []
        others = (self._take() for _ in range(len(self._inbox.messages)))
        return [first, *(message for message in others if message is not None)]

    def unsubscribe(self, timeout: float | None = None) -> None:
        """End the subscription or query; what has arrived can still be taken."""
        if not self._inbox.ended:
            self._client.unsubscribe(self._inbox.id, timeout=timeout)

    def _settle(self, message: Message, options: str | None) -> None:
        self._client.settle(self._inbox, message, options)
