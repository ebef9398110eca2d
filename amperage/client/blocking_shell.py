"""The waits and writes of a blocking client, which its commands are built on.

`amperage.client.aio_shell` has the same members for asyncio, except `publish_columns`. `publish` is
here and not with the other commands, because it takes the lock itself: it is called per message.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from amperage.client.arguments import MessageBody, handler
from amperage.client.blocking_worker import MessageWorker
from amperage.client.command_shell import CommandShell
from amperage.client.commands import MESSAGES_PER_WRITE
from amperage.client.deliveries import DeliveryListener
from amperage.client.errors import (
    NotConnectedError,
    TimedOutError,
    copy_error,
)
from amperage.client.message import Message
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.client.sequence_numbers import PublishSequence
from amperage.client.serialization import Decoder, Encoder
from amperage.client.state_lock import ClientLock
from amperage.client.statistics import ClientStatistics
from amperage.client.time_limit import TimeLimit

_T = TypeVar("_T")


class BlockingShell(CommandShell):
    """Sends commands and waits for their answers, in any thread.

    Args:
        timeout: default timeout of a call, in seconds.
        encoder: the default encoder of published values; None for none.
        decoder: the default decoder of received bodies; None for none.
    """

    def __init__(
        self, timeout: float, encoder: Encoder | None = None, decoder: Decoder | None = None
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        self._workers: set[MessageWorker] = set()
        self._guard = ClientLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection and end all streams. A closed client can connect again."""

    @abstractmethod
    def _write(self) -> int:
        """Write as much output as the socket accepts. The caller holds the lock.

        Returns:
            The output position to pass to `_wait_until_written`; 0 if everything was written.
        """

    @abstractmethod
    def _wait_until_written(self, position: int) -> None:
        """Wait until all output up to a position is written. The caller does not hold the lock."""

    @property
    def statistics(self) -> ClientStatistics:
        """The client's traffic so far, and its buffers now."""
        with self._guard.exclusive():
            return self._read_statistics()

    def publish(
        self,
        topic: str,
        body: MessageBody | Any,
        *,
        delta: bool = False,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
        on_delivery: DeliveryListener | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        """Publish a message, without waiting for an answer; `flush` waits for the answers.

        Args:
            topic: the topic.
            body: the message, as bytes or text, or a value for the encoder.
            delta: whether the body is a delta: only the fields that changed, and the key.
            correlation_id: passed on to subscribers; base64 characters only.
            expiration: the record's lifetime in seconds.
            sow_key: the record's key, for topics with keys set by publishers.
            sequence: the message's sequence number for this client name. A server that has received
                the number before drops the message as a duplicate. With a publish store, the store
                assigns the numbers.
            on_delivery: a callback for the outcome of the message, called once with a
                `DeliveryReport` in the client's thread; it must not block.
            encoder: encodes a body that is neither bytes nor text: "json", or a function that
                returns bytes or text. None selects the client's.

        Raises:
            EncodeError: the encoder failed.
            PublishStoreFullError: the publish store is full, and had no room within the timeout.
        """
        if on_delivery is not None:
            self._check_handler("on_delivery", on_delivery)
        self._wait_for_store_room()
        data = body if type(body) is bytes else self._encoded(topic, body, encoder)
        with self._guard.exclusive():
            self._protocol.publish(
                topic,
                data,
                delta=delta,
                correlation_id=correlation_id,
                expiration=expiration,
                sow_key=sow_key,
                sequence=sequence,
                on_delivery=on_delivery,
            )
            position = self._write()
        if position:
            self._wait_until_written(position)

    def publish_columns(
        self,
        topics: Sequence[str],
        bodies: Sequence[bytes],
        fields: Mapping[str, Sequence[str | int | None]],
        *,
        delta: bool = False,
    ) -> None:
        """Publish many messages with individual headers and few writes; see `publish`.

        Args:
            topics: the topic of each message.
            bodies: the messages.
            fields: the other header fields of each message, by the names of `publish`'s arguments;
                None omits a field.
            delta: whether the bodies are deltas.
        """
        for start in range(0, len(bodies), MESSAGES_PER_WRITE):
            portion = slice(start, start + MESSAGES_PER_WRITE)
            portion_fields = {name: values[portion] for name, values in fields.items()}
            columns = (topics[portion], bodies[portion], portion_fields)
            self._wait_for_store_room()
            self._send_command(
                lambda protocol: protocol.publish_columns(*columns, delta=delta)  # noqa: B023 - called at once
            )

    @staticmethod
    def _check_handler(name: str, value: object) -> None:
        """Check a callback, or None; raise TypeError if it is not a plain function."""
        handler(name, value)

    # Waiting

    def _wait_until(
        self,
        arrived: Callable[[], bool],
        limit: TimeLimit,
        what: str,
        *,
        is_urgent: bool = True,
    ) -> None:
        """Wait until a condition is met.

        Args:
            arrived: the condition: it tests a request or an inbox.
            limit: the timeout.
            what: the name of the expected event, for the error.
            is_urgent: whether to read on even if too many messages wait in streams.

        Raises:
            TimedOutError: the condition was not met in time.
        """
        if not arrived():
            self._guard.wait_until(arrived, limit, what, is_urgent=is_urgent)

    def _send_command(self, command: Callable[[ClientProtocol], _T]) -> _T:
        """Pass a command to the protocol, write it, and return the protocol's result."""
        with self._guard.exclusive():
            result = command(self._protocol)
            position = self._write()
        if position:
            self._wait_until_written(position)
        return result

    def _execute_command(
        self, command: Callable[[ClientProtocol], PendingRequest], timeout: float | TimeLimit | None
    ) -> PendingRequest:
        """Send a command and wait for its answer; raise the error if the server refuses it."""
        limit = self._time_limit(timeout)
        request = self._send_command(command)
        self._wait_until(lambda: request.is_done, limit, f"the answer to {request.command_name}")
        if request.error is not None:
            raise copy_error(request.error)
        return request

    def _wait_for_message(self, has_news: Callable[[], bool], limit: TimeLimit) -> None:
        """Wait for the next message of a stream, or its end.

        Raises:
            TimedOutError: neither arrived in time.
        """
        self._send_acks()
        self._wait_until(has_news, limit, "the next message", is_urgent=False)

    def _wait_for_store_room(self) -> None:
        """Wait until the publish store, if there is one, has room."""
        if (store := self._find_full_store()) is None:
            return
        has_room = self._store_room_condition(store)
        try:
            self._wait_until(has_room.is_met, self._time_limit(None), has_room.description)
        except TimedOutError:
            raise self._store_full_error(store) from None

    def _wait_for_store(self, numbering: PublishSequence, limit: TimeLimit) -> None:
        """Wait until all published messages are answered, or can no longer be answered."""
        answered = self._store_answered_condition(numbering)
        self._wait_until(answered.is_met, limit, answered.description)

    # Acknowledgements of queue messages

    def _settle_message(self, inbox: StreamInbox, message: Message, options: str | None) -> None:
        """Report the outcome of a queue message; see `Commands.settle_message`."""
        self._send_command(
            lambda protocol: protocol.settle_message(inbox, message, options, time.monotonic())
        )

    def _send_acks(self) -> None:
        """Send the batched acknowledgements of queue messages, without waiting."""
        with suppress(NotConnectedError), self._guard.exclusive():
            if self._protocol.acks_due is not None:
                self._protocol.send_acks()
                self._write()  # the reading thread writes the rest if the socket is full
