"""The message stream of a blocking client's subscription or query.

Made from `aio_stream` (scripts/make_blocking_client.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, Self

from amperage.client.arguments import seconds
from amperage.client.blocking_worker import MessageWorker
from amperage.client.errors import ClientError, ConnectionLostError
from amperage.client.message import Message, MessageListener
from amperage.client.pending_requests import StreamInbox
from amperage.client.serialization import Decode
from amperage.client.streams import BaseStream
from amperage.client.time_limit import TimeLimit


class StreamOwner(NamedTuple):
    """The functions of a client that its streams call.

    Attributes:
        wait_for_message: waits for the next message of a stream, or its end; raises `TimedOutError`
            if neither arrives in time.
        settle_message: reports the outcome of a queue message to the queue; see
            `Commands.settle_message`.
        unsubscribe: ends the subscription or query with an id; the second argument is a timeout in
            seconds.
        workers: the workers that call the handlers of streams; each adds and removes itself.
    """

    wait_for_message: Callable[[Callable[[], bool], TimeLimit], None]
    settle_message: Callable[[StreamInbox, Message, str | None], None]
    unsubscribe: Callable[[str, float | None], None]
    workers: set[MessageWorker]


class MessageStream(BaseStream):
    """The messages of one subscription or query, as an iterator.

    Iteration waits for the next message. It ends after the last record of a query, after
    `unsubscribe`, and when the client is closed; it raises `ConnectionLostError` when the
    connection ends otherwise. Several threads can iterate: each message goes to one of them.

    As a context manager, it ends the subscription or query on exit.
    """

    def __init__(
        self,
        owner: StreamOwner,
        inbox: StreamInbox,
        decode: Decode | None = None,
        on_message: MessageListener | None = None,
    ) -> None:
        super().__init__(inbox, decode)
        self._owner = owner
        self._worker = (
            None if on_message is None else MessageWorker(self, on_message, owner.workers)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        if kind is None:
            self._mark_processed()
        # A lost connection has ended the stream anyway; an exception in the block takes precedence.
        with suppress(ConnectionLostError if kind is None else ClientError):
            self.unsubscribe()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._unprocessed_messages:
            self._mark_processed()
        message = self._take_message() or self.next()
        if message is None:
            raise StopIteration
        return message

    def done(self) -> None:
        """Mark all messages returned so far as processed.

        A bookmark store in a file records that: a subscription that resumes in another run begins
        after them. With `auto_ack`, queue messages are acknowledged. Requesting the next message
        does the same.
        """
        self._mark_processed()

    def next(self, timeout: float | None = None) -> Message | None:
        """Wait for the next message.

        Args:
            timeout: seconds to wait; None waits without a limit.

        Returns:
            The message; None if the stream has ended.

        Raises:
            TimedOutError: no message arrived in time.
            ConnectionLostError: the connection ended.
        """
        self._mark_processed()
        limit = TimeLimit(None if timeout is None else seconds("timeout", timeout))
        while (message := self._take_message()) is None and not self._is_exhausted():
            self._owner.wait_for_message(self._has_message_or_ended, limit)
        return message

    def batch(self, timeout: float | None = None) -> list[Message]:
        """Take all messages that have arrived; if there are none, wait for the first.

        Args:
            timeout: seconds to wait; None waits without a limit.

        Returns:
            The messages; an empty list if the stream has ended.

        Raises:
            TimedOutError: no message arrived in time.
            ConnectionLostError: the connection ended.
        """
        first = self.next(timeout)
        if first is None:
            return []
        others = (self._take_message() for _ in range(len(self._inbox.messages)))
        return [first, *(message for message in others if message is not None)]

    def join(self, timeout: float | None = None) -> None:
        """Wait until a stream with `on_message` has ended, and its last message is handled.

        Args:
            timeout: seconds to wait; None waits without a limit.

        Raises:
            TimedOutError: that did not happen in time.
            RuntimeError: there is no handler, or the handler itself waits.
            Exception: the exception that the handler raised, or that ended the stream.
        """
        if self._worker is None:
            raise RuntimeError("the stream has no on_message handler to wait for")
        self._worker.wait(TimeLimit(None if timeout is None else seconds("timeout", timeout)))
        if self._worker.error is not None:
            raise self._worker.error

    def unsubscribe(self, timeout: float | None = None) -> None:
        """End the subscription or query; messages that have arrived can still be taken."""
        if not self._inbox.is_ended:
            self._owner.unsubscribe(self._inbox.id, timeout)

    def _settle_message(self, message: Message, options: str | None) -> None:
        self._owner.settle_message(self._inbox, message, options)
