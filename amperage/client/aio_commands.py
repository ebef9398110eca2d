"""The commands of an asyncio client.

Subclasses own the connections: `amperage.client.aio.AsyncClient` has one, and
`amperage.client.ha_aio.AsyncHAClient` reconnects as often as necessary.

A wait has no effect on a connection, so it can be cancelled at any point. The command whose wait is
cancelled has been sent nevertheless.
"""

# ruff: noqa: A002 - a filter is called filter
from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from amperage.client.aio_stream import AsyncMessageStream, AsyncStreamOwner
from amperage.client.arguments import MessageBody, all_bodies
from amperage.client.command_shell import CommandShell, inbox_of
from amperage.client.commands import AckType, chunks
from amperage.client.errors import (
    NotConnectedError,
    TimedOutError,
    again,
)
from amperage.client.limits import MAX_MISSED_HEARTBEATS
from amperage.client.message import Message
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.client.queue_acks import DEFAULT_DELAY
from amperage.client.sequence_numbers import PublishSequence
from amperage.client.time_limit import TimeLimit
from amperage.wire.header import Header


class AsyncCommands(CommandShell):
    """The commands of an asyncio client after its logon; see `BlockingCommands`."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self._ack_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and end all streams. A closed client can connect again."""

    @abstractmethod
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

    @abstractmethod
    async def _write(self) -> None:
        """Write the output; wait while the transport's write buffer is full."""

    @abstractmethod
    def _write_soon(self) -> None:
        """Write the output, without waiting if the transport's write buffer is full."""

    # Publishing

    async def publish(
        self,
        topic: str,
        body: MessageBody,
        *,
        delta: bool = False,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish a message, without waiting for an answer; `flush` waits for the answers."""
        await self._wait_for_store_room()
        self._protocol.publish(
            topic,
            body,
            delta=delta,
            correlation_id=correlation_id,
            expiration=expiration,
            sow_key=sow_key,
            sequence=sequence,
        )
        await self._write()

    async def delta_publish(
        self,
        topic: str,
        body: MessageBody,
        *,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish a delta: only the fields that changed, and the key; see `publish`."""
        await self.publish(
            topic,
            body,
            delta=True,
            correlation_id=correlation_id,
            expiration=expiration,
            sow_key=sow_key,
            sequence=sequence,
        )

    async def publish_all(
        self, topic: str, bodies: Iterable[MessageBody], *, delta: bool = False
    ) -> None:
        """Publish many messages with few writes; see `publish`."""
        for chunk in chunks(all_bodies(bodies)):
            await self._wait_for_store_room()
            self._protocol.publish_all(topic, chunk, delta=delta)
            await self._write()

    async def confirmed_publish(
        self,
        topic: str,
        body: MessageBody,
        ack: AckType = "persisted",
        *,
        delta: bool = False,
        timeout: float | None = None,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
    ) -> Header:
        """Publish a message and wait until the server acknowledges it."""
        await self._wait_for_store_room()
        request = await self._execute_command(
            lambda protocol: protocol.confirmed_publish(
                topic,
                body,
                ack,
                delta=delta,
                correlation_id=correlation_id,
                expiration=expiration,
                sow_key=sow_key,
                sequence=sequence,
            ),
            timeout,
        )
        return request.acks[ack]

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until all published messages are stored; see `Client.flush`."""
        limit, protocol = self._time_limit(timeout), self._protocol
        if (numbering := protocol.numbering) is not None:
            await self._wait_for_store(numbering, limit)
        await self._execute_command(lambda protocol: protocol.flush(), limit)
        protocol.refusals.raise_if_any()

    async def _wait_for_store(self, numbering: PublishSequence, limit: TimeLimit) -> None:
        """Wait until all published messages are answered, or can no longer be answered."""
        settled = self._store_settled_condition(numbering)
        await self._wait_until(settled.is_met, limit, settled.description)

    # Subscriptions and queries

    async def subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        filter: str | None = None,
        options: str | None = None,
        bookmark: str | None = None,
        top_n: int | None = None,
        sub_id: str | None = None,
        acks: Iterable[AckType] | None = None,
        max_backlog: int | None = None,
        auto_ack: bool = False,
        ack_batch: int | None = None,
        ack_delay: float = DEFAULT_DELAY,
    ) -> AsyncMessageStream:
        """Subscribe to a topic, or to every topic that a regular expression matches."""
        request = await self._execute_command(
            lambda protocol: protocol.subscribe(
                topic,
                delta=delta,
                filter=filter,
                options=options,
                bookmark=bookmark,
                top_n=top_n,
                sub_id=sub_id,
                acks=acks,
                max_backlog=max_backlog,
                auto_ack=auto_ack,
                ack_batch=ack_batch,
                ack_delay=ack_delay,
            ),
            timeout,
        )
        return self._make_stream(request)

    async def sow(
        self,
        topic: str,
        *,
        timeout: float | None = None,
        filter: str | None = None,
        options: str | None = None,
        bookmark: str | None = None,
        order_by: str | None = None,
        batch_size: int | None = None,
        top_n: int | None = None,
        sow_keys: Iterable[str] | None = None,
        acks: Iterable[AckType] | None = None,
    ) -> AsyncMessageStream:
        """Query a SOW topic; the stream ends after the last record."""
        request = await self._execute_command(
            lambda protocol: protocol.sow(
                topic,
                filter=filter,
                options=options,
                bookmark=bookmark,
                order_by=order_by,
                batch_size=batch_size,
                top_n=top_n,
                sow_keys=sow_keys,
                acks=acks,
            ),
            timeout,
        )
        return self._make_stream(request)

    async def sow_and_subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        timeout: float | None = None,
        filter: str | None = None,
        options: str | None = None,
        bookmark: str | None = None,
        order_by: str | None = None,
        batch_size: int | None = None,
        top_n: int | None = None,
        sow_keys: Iterable[str] | None = None,
        sub_id: str | None = None,
        acks: Iterable[AckType] | None = None,
    ) -> AsyncMessageStream:
        """Query a SOW topic and subscribe to it; `group_end` marks the end of the records."""
        request = await self._execute_command(
            lambda protocol: protocol.sow_and_subscribe(
                topic,
                delta=delta,
                filter=filter,
                options=options,
                bookmark=bookmark,
                order_by=order_by,
                batch_size=batch_size,
                top_n=top_n,
                sow_keys=sow_keys,
                sub_id=sub_id,
                acks=acks,
            ),
            timeout,
        )
        return self._make_stream(request)

    async def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End the subscription or query with an id, or all of them."""
        await self._execute_command(lambda protocol: protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    async def sow_delete(
        self,
        topic: str,
        *,
        timeout: float | None = None,
        filter: str | None = None,
        sow_keys: Iterable[str] | None = None,
        body: MessageBody | None = None,
        options: str | None = None,
        sequence: int | None = None,
        persisted: bool = False,
    ) -> int:
        """Delete records from a SOW topic, selected by exactly one of filter, sow_keys and body."""
        request = await self._execute_command(
            lambda protocol: protocol.sow_delete(
                topic,
                filter=filter,
                sow_keys=sow_keys,
                body=body,
                options=options,
                sequence=sequence,
                persisted=persisted,
            ),
            timeout,
        )
        return request.acks["stats"].records_deleted or 0

    async def acknowledge(
        self, topic: str, bookmarks: Iterable[str], options: str | None = None
    ) -> None:
        """Acknowledge messages of a queue, without waiting for an answer."""
        self._protocol.acknowledge(topic, bookmarks, options)
        await self._write()

    async def confirmed_acknowledge(
        self,
        topic: str,
        bookmarks: Iterable[str],
        options: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Acknowledge messages of a queue, and wait for the server's answer."""
        await self._execute_command(
            lambda protocol: protocol.confirmed_acknowledge(topic, bookmarks, options), timeout
        )

    async def flush_acks(self, *, timeout: float | None = None) -> None:
        """Wait until all acknowledgements of queue messages given so far are on stable storage."""
        await self._execute_command(lambda protocol: protocol.flush_acks(), timeout)

    def _settle_message(self, inbox: StreamInbox, message: Message, options: str | None) -> None:
        """Report the outcome of a queue message; see `Commands.settle_message`."""
        loop = asyncio.get_running_loop()
        self._protocol.settle_message(inbox, message, options, loop.time())
        self._write_soon()
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
                self._write_soon()

    async def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Start to exchange heartbeats, so that either peer detects when the other is gone."""
        await self._execute_command(lambda protocol: protocol.heartbeat(interval), timeout)
        self._set_silence_timeout(float(interval * MAX_MISSED_HEARTBEATS))

    # Waiting

    async def _execute_command(
        self, command: Callable[[ClientProtocol], PendingRequest], timeout: float | TimeLimit | None
    ) -> PendingRequest:
        """Send a command and wait for its answer; raise the error if the server refuses it."""
        limit = self._time_limit(timeout)
        request = command(self._protocol)
        await self._write()
        await self._wait_until(
            lambda: request.is_done, limit, f"the answer to {request.command_name}"
        )
        if request.error is not None:
            raise again(request.error)
        return request

    def _make_stream(self, request: PendingRequest) -> AsyncMessageStream:
        owner = AsyncStreamOwner(
            self._wait_until,
            self._settle_message,
            self._send_acks,
            lambda stream_id, timeout: self.unsubscribe(stream_id, timeout=timeout),
        )
        return AsyncMessageStream(owner, inbox_of(request))

    async def _wait_for_store_room(self) -> None:
        """Wait until the publish store, if there is one, has room."""
        if (store := self._find_full_store()) is None:
            return
        has_room = self._store_room_condition(store)
        try:
            await self._wait_until(has_room.is_met, self._time_limit(None), has_room.description)
        except TimedOutError:
            raise self._store_full_error(store) from None
