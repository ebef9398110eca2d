"""The commands of a blocking client.

Subclasses own the connections: `amperage.client.blocking.Client` has one, and
`amperage.client.ha.HAClient` reconnects as often as necessary.
"""

# ruff: noqa: A002 - a filter is called filter
from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from amperage.client.arguments import MessageBody, all_bodies
from amperage.client.blocking_stream import MessageStream, StreamOwner
from amperage.client.command_shell import CommandShell, inbox_of
from amperage.client.commands import MESSAGES_PER_WRITE, AckType, chunks
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
from amperage.client.state_lock import ClientLock
from amperage.client.time_limit import TimeLimit
from amperage.wire.header import Header

_T = TypeVar("_T")


class BlockingCommands(CommandShell):
    """The commands of a blocking client after its logon. They can be called in any thread.

    Args:
        timeout: default timeout of a call, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
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
            The mark to pass to `_wait_until_written`; 0 if everything was written.
        """

    @abstractmethod
    def _wait_until_written(self, mark: int) -> None:
        """Wait until all output up to a mark is written. The caller does not hold the lock."""

    # Publishing

    def publish(
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
        """Publish a message, without waiting for an answer; `flush` waits for the answers.

        Args:
            topic: the topic.
            body: the message, as bytes or text.
            delta: whether the body is a delta: only the fields that changed, and the key.
            correlation_id: passed on to subscribers; base64 characters only.
            expiration: the record's lifetime in seconds.
            sow_key: the record's key, for topics with keys set by publishers.
            sequence: the message's sequence number for this client name. A server that has received
                the number before drops the message as a duplicate. With a publish store, the store
                assigns the numbers.

        Raises:
            PublishStoreFullError: the publish store is full, and had no room within the timeout.
        """
        self._wait_for_store_room()
        with self._guard.exclusive():
            self._protocol.publish(
                topic,
                body,
                delta=delta,
                correlation_id=correlation_id,
                expiration=expiration,
                sow_key=sow_key,
                sequence=sequence,
            )
            mark = self._write()
        if mark:
            self._wait_until_written(mark)

    def delta_publish(
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
        self.publish(
            topic,
            body,
            delta=True,
            correlation_id=correlation_id,
            expiration=expiration,
            sow_key=sow_key,
            sequence=sequence,
        )

    def publish_all(
        self, topic: str, bodies: Iterable[MessageBody], *, delta: bool = False
    ) -> None:
        """Publish many messages with few writes; see `publish`."""
        for chunk in chunks(all_bodies(bodies)):
            self._wait_for_store_room()
            self._send_command(
                lambda protocol: protocol.publish_all(topic, chunk, delta=delta)  # noqa: B023 - called at once
            )

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
            some = slice(start, start + MESSAGES_PER_WRITE)
            chosen = {name: values[some] for name, values in fields.items()}
            part = (topics[some], bodies[some], chosen)
            self._wait_for_store_room()
            self._send_command(
                lambda protocol: protocol.publish_columns(*part, delta=delta)  # noqa: B023 - as above
            )

    def confirmed_publish(
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
        """Publish a message and wait until the server acknowledges it.

        Args:
            topic: the topic.
            body: the message.
            ack: the acknowledgement to wait for: "processed", or "persisted" (on stable storage).
            delta: whether the body is a delta.
            timeout: seconds to wait.
            correlation_id: see `publish`.
            expiration: see `publish`.
            sow_key: see `publish`.
            sequence: see `publish`.

        Returns:
            The header of the acknowledgement.
        """
        self._wait_for_store_room()
        request = self._execute_command(
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

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until all published messages are stored and all earlier commands are processed.

        Args:
            timeout: seconds to wait.

        Raises:
            MessagesRefusedError: the server refused messages since the last `flush`, and there is
                no `on_refused` callback.
            CommandError: the server cannot store the published messages.
            TimedOutError: the timeout has passed.
        """
        limit, protocol = self._time_limit(timeout), self._protocol
        if (numbering := protocol.numbering) is not None:
            self._wait_for_store(numbering, limit)
        self._execute_command(lambda protocol: protocol.flush(), limit)
        protocol.refusals.raise_if_any()

    def _wait_for_store(self, numbering: PublishSequence, limit: TimeLimit) -> None:
        """Wait until all published messages are answered, or can no longer be answered."""
        settled = self._store_settled_condition(numbering)
        self._wait_until(settled.is_met, limit, settled.description)

    # Subscriptions and queries

    def subscribe(
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
    ) -> MessageStream:
        """Subscribe to a topic, or to every topic that a regular expression matches.

        Args:
            topic: the name, or the expression.
            delta: whether to receive deltas instead of whole messages.
            timeout: seconds to wait for the answer.
            filter: the content filter.
            options: the options field, such as "oof,conflation=1s".
            bookmark: the bookmark from which to replay the transaction log.
            top_n: the maximum number of messages to replay.
            sub_id: the subscription's id; None generates one. With the options `replace`, `pause`
                or `resume`, the id of the subscription to change.
            acks: acknowledgements to return from the stream between the messages, such as
                ("completed",).
            max_backlog: the maximum number of unacknowledged queue messages; None selects the
                server's default, which is one. The queue may allow fewer.
            auto_ack: whether to acknowledge queue messages automatically: when the next message is
                requested from the stream, when a `with` block of the stream ends without an
                exception, and by `stream.done()`. If False, call `message.ack()`. Call it also if
                several threads or tasks iterate one stream: a request by one of them does not mean
                that another has processed its message.
            ack_batch: the number of acknowledgements to send together, if the backlog is at least
                twice as large; None for up to 80.
            ack_delay: seconds that an acknowledgement waits for a batch while messages arrive.
        """
        request = self._execute_command(
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

    def sow(
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
    ) -> MessageStream:
        """Query a SOW topic; the stream ends after the last record.

        Args:
            topic: the topic.
            timeout: seconds to wait for the answer.
            filter: the content filter.
            options: the options field, such as "select=[-/,+/id]" or "top_n=10,skip_n=20".
            bookmark: the bookmark or timestamp of a historical query.
            order_by: the sort order, such as "/price DESC".
            batch_size: the number of records that the server sends in one frame; the default is 10.
            top_n: the maximum number of records to return.
            sow_keys: return the records with these keys.
            acks: acknowledgements to return from the stream between the records, such as
                ("stats",).
        """
        request = self._execute_command(
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

    def sow_and_subscribe(
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
    ) -> MessageStream:
        """Query a SOW topic and subscribe to it; `group_end` marks the end of the query's records.

        The arguments are those of `sow` and of `subscribe`.
        """
        request = self._execute_command(
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

    def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End the subscription or query with an id, or all of them."""
        self._execute_command(lambda protocol: protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    def sow_delete(
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
        """Delete records from a SOW topic, selected by exactly one of filter, sow_keys and body.

        Args:
            topic: the topic.
            timeout: seconds to wait for the answer.
            filter: delete the records that match this content filter.
            sow_keys: delete the records with these keys.
            body: delete the record that a publish of this message would update.
            options: for queue messages, their outcome: None acknowledges them, "cancel" returns
                them to the queue, "expire" lets them expire, and "redrive" returns dead letters to
                their original topic.
            sequence: the command's sequence number for this client name. A server that has received
                the number before drops the command as a duplicate.
            persisted: whether to wait until the deletion is on stable storage.

        Returns:
            The number of deleted records.
        """
        request = self._execute_command(
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

    def acknowledge(self, topic: str, bookmarks: Iterable[str], options: str | None = None) -> None:
        """Acknowledge messages of a queue, without waiting for an answer.

        Args:
            topic: the queue.
            bookmarks: the bookmarks of the messages.
            options: "cancel" returns the messages to the queue, "expire" lets them expire.
        """
        self._send_command(lambda protocol: protocol.acknowledge(topic, bookmarks, options))

    def confirmed_acknowledge(
        self,
        topic: str,
        bookmarks: Iterable[str],
        options: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Acknowledge messages of a queue, and wait for the server's answer.

        Args:
            topic: the queue.
            bookmarks: the bookmarks of the messages.
            options: as for `acknowledge`.
            timeout: seconds to wait.
        """
        self._execute_command(
            lambda protocol: protocol.confirmed_acknowledge(topic, bookmarks, options), timeout
        )

    def flush_acks(self, *, timeout: float | None = None) -> None:
        """Wait until all acknowledgements of queue messages given so far are on stable storage.

        After that, no acknowledged message is delivered again, even if the server fails. A client
        that reconnects automatically sends the acknowledgements again that were not stored.

        Args:
            timeout: seconds to wait.
        """
        self._execute_command(lambda protocol: protocol.flush_acks(), timeout)

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

    def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Start to exchange heartbeats, so that either peer detects when the other is gone.

        Args:
            interval: seconds between heartbeats.
            timeout: seconds to wait for the answer.
        """
        self._execute_command(lambda protocol: protocol.heartbeat(interval), timeout)
        with self._guard.exclusive():
            self._set_silence_timeout(float(interval * MAX_MISSED_HEARTBEATS))

    # Waiting

    def _wait_for_message(self, has_news: Callable[[], bool], limit: TimeLimit) -> None:
        """Wait for the next message of a stream, or its end.

        Raises:
            TimedOutError: neither arrived in time.
        """
        self._send_acks()
        self._wait_until(has_news, limit, "the next message", is_urgent=False)

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
            mark = self._write()
        if mark:
            self._wait_until_written(mark)
        return result

    def _execute_command(
        self, command: Callable[[ClientProtocol], PendingRequest], timeout: float | TimeLimit | None
    ) -> PendingRequest:
        """Send a command and wait for its answer; raise the error if the server refuses it."""
        limit = self._time_limit(timeout)
        request = self._send_command(command)
        self._wait_until(lambda: request.is_done, limit, f"the answer to {request.command_name}")
        if request.error is not None:
            raise again(request.error)
        return request

    def _make_stream(self, request: PendingRequest) -> MessageStream:
        return MessageStream(self._stream_owner, inbox_of(request))

    @property
    def _stream_owner(self) -> StreamOwner:
        return StreamOwner(
            self._wait_for_message,
            self._settle_message,
            lambda stream_id, timeout: self.unsubscribe(stream_id, timeout=timeout),
        )

    def _wait_for_store_room(self) -> None:
        """Wait until the publish store, if there is one, has room."""
        if (store := self._find_full_store()) is None:
            return
        has_room = self._store_room_condition(store)
        try:
            self._wait_until(has_room.is_met, self._time_limit(None), has_room.description)
        except TimedOutError:
            raise self._store_full_error(store) from None
