"""The commands of a blocking client.

How bytes move is left to `amperage.client.blocking.Client`, which has one connection, and to
`amperage.client.ha.HAClient`, which has as many as it takes.
"""

# ruff: noqa: A002 - a filter is called filter
from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from amperage.client.arguments import Body, all_bodies
from amperage.client.blocking_stream import MessageStream, StreamOwner
from amperage.client.command_shell import CommandShell, inbox_of
from amperage.client.commands import MESSAGES_A_WRITE, AckType, chunks
from amperage.client.errors import (
    NotConnectedError,
    TimedOutError,
    again,
)
from amperage.client.guard import Guard
from amperage.client.limits import HEARTBEATS_MISSED
from amperage.client.message import Message
from amperage.client.numbering import Numbering
from amperage.client.pending import Inbox, Request
from amperage.client.protocol import ClientProtocol
from amperage.client.queue_acks import DEFAULT_DELAY
from amperage.client.time_limit import TimeLimit
from amperage.wire.header import Header

_T = TypeVar("_T")


class BlockingCommands(CommandShell):
    """What every blocking client can do once it has logged on, in any thread.

    Args:
        timeout: seconds that a call waits for its answer unless it says otherwise.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self._guard = Guard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection; streams end. A closed client can connect again."""

    @abstractmethod
    def _write(self) -> int:
        """Write what can be written at once, with the lock held.

        Returns:
            What `_wait_to_write` is to wait for; 0 for nothing.
        """

    @abstractmethod
    def _wait_to_write(self, mark: int) -> None:
        """Wait until everything is written up to a mark, without the lock."""

    # Publishing

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        delta: bool = False,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish a message, without waiting for an answer; `flush` does that.

        Args:
            topic: where to.
            body: the message, as bytes or text.
            delta: whether it is a change: fields that are new or different, and the key.
            correlation_id: passed on to subscribers; base64 characters only.
            expiration: the record's lifetime in seconds.
            sow_key: the record's key, for topics that let the publisher say it.
            sequence: the message's number from this client name. A server that has it already takes
                the message for a duplicate. Where there is a publish store, that gives the numbers.

        Raises:
            PublishStoreFullError: too many messages wait to be persisted, and none was in time.
        """
        self._make_room()
        with self._guard.turn():
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
            self._wait_to_write(mark)

    def delta_publish(
        self,
        topic: str,
        body: Body,
        *,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish a change: the fields that are new or different, and the key; see `publish`."""
        self.publish(
            topic,
            body,
            delta=True,
            correlation_id=correlation_id,
            expiration=expiration,
            sow_key=sow_key,
            sequence=sequence,
        )

    def publish_all(self, topic: str, bodies: Iterable[Body], *, delta: bool = False) -> None:
        """Publish many messages, with few writes; see `publish`."""
        for chunk in chunks(all_bodies(bodies)):
            self._make_room()
            self._send(
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
        """Publish many messages with headers of their own, with few writes; see `publish`.

        Args:
            topics: where each goes.
            bodies: the messages.
            fields: what else is in each header, by the names of `publish`'s arguments; None for
                what is not.
            delta: whether they are changes.
        """
        for start in range(0, len(bodies), MESSAGES_A_WRITE):
            some = slice(start, start + MESSAGES_A_WRITE)
            chosen = {name: values[some] for name, values in fields.items()}
            part = (topics[some], bodies[some], chosen)
            self._make_room()
            self._send(
                lambda protocol: protocol.publish_columns(*part, delta=delta)  # noqa: B023 - as above
            )

    def confirmed_publish(
        self,
        topic: str,
        body: Body,
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
            topic: where to.
            body: the message.
            ack: what to wait for: "processed", or "persisted" on stable storage.
            delta: whether the message is a change.
            timeout: seconds to wait.
            correlation_id: see `publish`.
            expiration: see `publish`.
            sow_key: see `publish`.
            sequence: see `publish`.

        Returns:
            The header of the acknowledgement.
        """
        self._make_room()
        request = self._ask(
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
        """Wait until everything published before is stored, and other commands are processed.

        Args:
            timeout: seconds to wait.

        Raises:
            MessagesRefusedError: messages were refused since the last `flush`, and there is no
                `on_refused` to call for them.
            CommandError: the server cannot store what was published.
            TimedOutError: that took longer.
        """
        limit, protocol = self._limit(timeout), self._protocol
        if (numbering := protocol.numbering) is not None:
            self._wait_for_store(numbering, limit)
        self._ask(lambda protocol: protocol.flush(), limit)
        protocol.refusals.raise_if_any()

    def _wait_for_store(self, numbering: Numbering, limit: TimeLimit) -> None:
        """Wait until all that has been published is answered, or cannot be any more."""
        settled = self._store_settled(numbering)
        self._wait_until(settled.is_met, limit, settled.what)

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
            delta: whether to be told changes only.
            timeout: seconds to wait for the answer.
            filter: the content filter.
            options: the options field, such as "oof,conflation=1s".
            bookmark: where in the transaction log to start.
            top_n: how many messages to replay at most.
            sub_id: the subscription's id. One is made up where none is given; with the options
                `replace`, `pause` or `resume` it names the subscription to change.
            acks: acknowledgements to hand out between the messages, such as ("completed",).
            max_backlog: how many messages of queues to hold at a time; None for what the server
                takes, which is one. The queue may allow less.
            auto_ack: whether to acknowledge messages of queues once they have been dealt with: when
                the stream is asked for the next one, at the end of a `with` block around it that
                raises nothing, and by `stream.done()`. Otherwise, `message.ack()` does it. For a
                stream that several threads or tasks iterate, use the latter: what one is handed is
                not dealt with because another asks for more.
            ack_batch: how many acknowledgements to send together, if the backlog is at least twice
                as large; None for up to 80.
            ack_delay: seconds that an acknowledgement waits for others while messages come.
        """
        request = self._ask(
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
        return self._stream(request)

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
            bookmark: the moment of a historical query.
            order_by: what to sort by, such as "/price DESC".
            batch_size: how many records the server puts into one frame; 10 if not given.
            top_n: how many records to return at most.
            sow_keys: return the records with these keys.
            acks: acknowledgements to hand out between the records, such as ("stats",).
        """
        request = self._ask(
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
        return self._stream(request)

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
        """Query a SOW topic and follow it; `group_end` marks the end of the query's records.

        The arguments are those of `sow` and of `subscribe`.
        """
        request = self._ask(
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
        return self._stream(request)

    def unsubscribe(self, stream_id: str = "all", *, timeout: float | None = None) -> None:
        """End a subscription or query by its id, or all of them."""
        self._ask(lambda protocol: protocol.unsubscribe(stream_id), timeout)

    # Deleting, and the rest

    def sow_delete(
        self,
        topic: str,
        *,
        timeout: float | None = None,
        filter: str | None = None,
        sow_keys: Iterable[str] | None = None,
        body: Body | None = None,
        options: str | None = None,
        sequence: int | None = None,
        persisted: bool = False,
    ) -> int:
        """Delete records from a SOW topic: by exactly one of filter, sow_keys and body.

        Args:
            topic: the topic.
            timeout: seconds to wait for the answer.
            filter: delete the records that match this content filter.
            sow_keys: delete the records with these keys.
            body: delete the record that a publish of this message would update.
            options: what becomes of messages of a queue: they are done with, unless it is "cancel",
                "expire", or "redrive" for dead letters.
            sequence: the command's number from this client name. A server that has it already takes
                the command for a duplicate.
            persisted: whether to wait until the deletion is on stable storage.

        Returns:
            How many were deleted.
        """
        request = self._ask(
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
        """Tell a queue that messages are done with.

        Args:
            topic: the queue.
            bookmarks: those of the messages.
            options: "cancel" gives them back to the queue, "expire" lets them expire.
        """
        self._send(lambda protocol: protocol.acknowledge(topic, bookmarks, options))

    def confirmed_acknowledge(
        self,
        topic: str,
        bookmarks: Iterable[str],
        options: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Tell a queue that messages are done with, and wait for the server's answer.

        Args:
            topic: the queue.
            bookmarks: those of the messages.
            options: as for `acknowledge`.
            timeout: seconds to wait.
        """
        self._ask(
            lambda protocol: protocol.confirmed_acknowledge(topic, bookmarks, options), timeout
        )

    def flush_acks(self, *, timeout: float | None = None) -> None:
        """Wait until all acknowledgements of queue messages given so far are on stable storage.

        After it, no message that was acknowledged comes again, whatever happens to the server. A
        client that stays connected sends what has not been stored again.

        Args:
            timeout: seconds to wait.
        """
        self._ask(lambda protocol: protocol.flush_acks(), timeout)

    def _settle(self, inbox: Inbox, message: Message, options: str | None) -> None:
        """Tell a queue how a message was processed."""
        self._send(lambda protocol: protocol.settle(inbox, message, options, time.monotonic()))

    def _send_acks(self) -> None:
        """Send the acknowledgements of queue messages that have collected, without waiting."""
        with suppress(NotConnectedError), self._guard.turn():
            if self._protocol.acks_due is not None:
                self._protocol.send_acks()
                self._write()  # the reading thread writes the rest if the socket is full

    def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Exchange signs of life, so that either side notices when the other is gone.

        Args:
            interval: seconds between them.
            timeout: seconds to wait for the answer.
        """
        self._ask(lambda protocol: protocol.heartbeat(interval), timeout)
        with self._guard.turn():
            self._notice_silence(float(interval * HEARTBEATS_MISSED))

    # Waiting

    def _wait_for_news(self, has_news: Callable[[], bool], limit: TimeLimit) -> None:
        """Wait for the next message of a stream, or its end.

        Raises:
            TimedOutError: neither came in time.
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
        """Wait until something has arrived.

        Args:
            arrived: whether it has; it looks at a request or an inbox.
            limit: how long to wait.
            what: what is waited for, for the error.
            is_urgent: whether to read past messages that nobody takes.

        Raises:
            TimedOutError: it has not arrived in time.
        """
        if not arrived():
            self._guard.wait_until(arrived, limit, what, is_urgent=is_urgent)

    def _send(self, command: Callable[[ClientProtocol], _T]) -> _T:
        """Give a command, write it, and return what the protocol returns for it."""
        with self._guard.turn():
            result = command(self._protocol)
            mark = self._write()
        if mark:
            self._wait_to_write(mark)
        return result

    def _ask(
        self, command: Callable[[ClientProtocol], Request], timeout: float | TimeLimit | None
    ) -> Request:
        """Give a command, wait for its answer, and raise its refusal."""
        limit = self._limit(timeout)
        request = self._send(command)
        self._wait_until(lambda: request.done, limit, f"the answer to {request.command_name}")
        if request.error is not None:
            raise again(request.error)
        return request

    def _stream(self, request: Request) -> MessageStream:
        return MessageStream(self._stream_owner, inbox_of(request))

    @property
    def _stream_owner(self) -> StreamOwner:
        return StreamOwner(
            self._wait_for_news,
            self._settle,
            lambda stream_id, timeout: self.unsubscribe(stream_id, timeout=timeout),
        )

    def _make_room(self) -> None:
        """Wait until the publish store has room, if there is one."""
        if (store := self._full_store()) is None:
            return
        has_room = self._store_has_room(store)
        try:
            self._wait_until(has_room.is_met, self._limit(None), has_room.what)
        except TimedOutError:
            raise self._no_room(store) from None
