"""The waits and writes of an asyncio client, which its commands are built on.

`amperage.client.blocking_shell` has the same members for threads. `publish` is here and not with
the other commands, because it calls the protocol itself: it is called per message.

A wait has no effect on a connection, so it can be cancelled at any point. The command whose wait is
cancelled has been sent nevertheless.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

from amperage.client.aio_worker import AsyncMessageWorker
from amperage.client.arguments import MessageBody, handler
from amperage.client.command_shell import CommandShell
from amperage.client.deliveries import AsyncDeliveryListener
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
from amperage.client.statistics import ClientStatistics
from amperage.client.time_limit import TimeLimit
from amperage.client.waiters import Waiters

_T = TypeVar("_T")


class AsyncShell(CommandShell):
    """Sends commands and waits for their answers, in one event loop.

    Args:
        timeout: default timeout of a call, in seconds.
        encoder: the default encoder of published values; None for none.
        decoder: the default decoder of received bodies; None for none.
    """

    def __init__(
        self, timeout: float, encoder: Encoder | None = None, decoder: Decoder | None = None
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        self._workers: set[AsyncMessageWorker] = set()
        self._waiters = Waiters()
        self._ack_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and end all streams. A closed client can connect again."""

    @abstractmethod
    def _write(self) -> int:
        """Write the output, without waiting.

        Returns:
            The output position to pass to `_wait_until_written`; 0 if the transport's write buffer
            has room.
        """

    @abstractmethod
    async def _wait_until_written(self, position: int) -> None:
        """Wait until the transport's write buffer has room."""

    @property
    def statistics(self) -> ClientStatistics:
        """The client's traffic so far, and its buffers now."""
        return self._read_statistics()

    async def publish(
        self,
        topic: str,
        body: MessageBody | Any,
        *,
        delta: bool = False,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
        on_delivery: AsyncDeliveryListener | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        """Publish a message, without waiting for an answer; `flush` waits for the answers.

        The arguments are those of `Client.publish`. `on_delivery` may be a coroutine function,
        which is awaited, one call after the other.
        """
        if on_delivery is not None:
            self._check_handler("on_delivery", on_delivery)
        await self._wait_for_store_room()
        data = body if type(body) is bytes else self._encoded(topic, body, encoder)
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
            await self._wait_until_written(position)

    @staticmethod
    def _check_handler(name: str, value: object) -> None:
        """Check a callback, or None; raise TypeError if it is not callable."""
        handler(name, value, may_be_async=True)

    # Waiting

    async def _wait_until(
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
            await self._waiters.wait_until(arrived, limit, what, is_urgent=is_urgent)

    async def _send_command(self, command: Callable[[ClientProtocol], _T]) -> _T:
        """Pass a command to the protocol, write it, and return the protocol's result."""
        result = command(self._protocol)
        position = self._write()
        if position:
            await self._wait_until_written(position)
        return result

    async def _execute_command(
        self, command: Callable[[ClientProtocol], PendingRequest], timeout: float | TimeLimit | None
    ) -> PendingRequest:
        """Send a command and wait for its answer; raise the error if the server refuses it."""
        limit = self._time_limit(timeout)
        request = await self._send_command(command)
        await self._wait_until(
            lambda: request.is_done, limit, f"the answer to {request.command_name}"
        )
        if request.error is not None:
            raise copy_error(request.error)
        return request

    async def _wait_for_message(self, has_news: Callable[[], bool], limit: TimeLimit) -> None:
        """Wait for the next message of a stream, or its end.

        Raises:
            TimedOutError: neither arrived in time.
        """
        self._send_acks()
        await self._wait_until(has_news, limit, "the next message", is_urgent=False)

    async def _wait_for_store_room(self) -> None:
        """Wait until the publish store, if there is one, has room."""
        if (store := self._find_full_store()) is None:
            return
        has_room = self._store_room_condition(store)
        try:
            await self._wait_until(has_room.is_met, self._time_limit(None), has_room.description)
        except TimedOutError:
            raise self._store_full_error(store) from None

    async def _wait_for_store(self, numbering: PublishSequence, limit: TimeLimit) -> None:
        """Wait until all published messages are answered, or can no longer be answered."""
        answered = self._store_answered_condition(numbering)
        await self._wait_until(answered.is_met, limit, answered.description)

    # Acknowledgements of queue messages

    def _settle_message(self, inbox: StreamInbox, message: Message, options: str | None) -> None:
        """Report the outcome of a queue message; see `Commands.settle_message`."""
        loop = asyncio.get_running_loop()
        self._protocol.settle_message(inbox, message, options, loop.time())
        self._write()
        due = self._protocol.acks_due
        if due is not None and self._ack_timer is None:
            self._ack_timer = loop.call_at(due, self._send_acks)

    def _send_acks(self) -> None:
        """Send the batched acknowledgements of queue messages, without waiting."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        with suppress(NotConnectedError):
            if self._protocol.acks_due is not None:
                self._protocol.send_acks()
                self._write()
