"""The commands of a blocking client.

Subclasses own the connections: `amperage.client.blocking.Client` has one, and
`amperage.client.ha.HAClient` reconnects as often as necessary.

Made from `aio_commands` (scripts/make_blocking_client.py).
"""

# ruff: noqa: A002 - a filter is called filter
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amperage.client.arguments import MessageBody, number
from amperage.client.blocking_shell import BlockingShell
from amperage.client.blocking_stream import MessageStream, StreamOwner
from amperage.client.command_shell import inbox_of
from amperage.client.commands import AckType, chunks
from amperage.client.deliveries import DeliveryListener
from amperage.client.errors import NotConnectedError
from amperage.client.limits import MAX_MISSED_HEARTBEATS
from amperage.client.message import MessageListener
from amperage.client.pending_requests import PendingRequest
from amperage.client.queue_acks import DEFAULT_DELAY
from amperage.client.serialization import Decoder, Encoder
from amperage.client.time_limit import TimeLimit
from amperage.wire.header import Header


class BlockingCommands(BlockingShell):
    """The commands of a blocking client after its logon. They can be called in any thread."""

    # Publishing

    def delta_publish(
        self,
        topic: str,
        body: MessageBody | Any,
        *,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
        on_delivery: DeliveryListener | None = None,
        encoder: Encoder | None = None,
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
            on_delivery=on_delivery,
            encoder=encoder,
        )

    def publish_all(
        self,
        topic: str,
        bodies: Iterable[MessageBody | Any],
        *,
        delta: bool = False,
        on_delivery: DeliveryListener | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        """Publish many messages with few writes; see `publish`.

        `on_delivery` is called once for each message.
        """
        self._check_handler("on_delivery", on_delivery)
        for chunk in chunks(self._encoded_all(topic, bodies, encoder)):
            self._wait_for_store_room()
            self._send_command(
                lambda protocol: protocol.publish_all(
                    topic,
                    chunk,  # noqa: B023 - called at once
                    delta=delta,
                    on_delivery=on_delivery,
                )
            )

    def confirmed_publish(
        self,
        topic: str,
        body: MessageBody | Any,
        ack: AckType = "persisted",
        *,
        delta: bool = False,
        timeout: float | None = None,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
        encoder: Encoder | None = None,
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
            encoder: see `publish`.

        Returns:
            The header of the acknowledgement.
        """
        self._wait_for_store_room()
        data = self._encoded(topic, body, encoder)
        request = self._execute_command(
            lambda protocol: protocol.confirmed_publish(
                topic,
                data,
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
        reported = self._reported_condition()
        if (numbering := protocol.numbering) is not None:
            self._wait_for_store(numbering, limit)
        self._execute_command(lambda protocol: protocol.flush(), limit)
        self._wait_until(reported.is_met, limit, reported.description)
        protocol.refusals.raise_if_any()

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
        decoder: Decoder | None = None,
        on_message: MessageListener | None = None,
        max_waiting: int | None = None,
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
            decoder: decodes the bodies for `message.value`: "json", a type for JSON bodies, or a
                function of the bytes. None selects the client's.
            on_message: a handler, called with each message, one after the other, in a thread or
                task of the subscription. Do not iterate the stream then. The message is processed
                when the handler returns. An exception in it is logged and ends the subscription;
                `stream.join()` raises it.
            max_waiting: the number of messages that may wait in the stream. When more arrive, the
                subscription ends: the stream returns them, and raises `SlowStreamError`. Other
                streams go on. None: a stream that is not read makes the client stop reading, and
                holds up the others, when 50,000 messages or 64 MB wait in all streams.
        """
        self._check_subscribable(on_message, max_waiting)
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
        return self._make_stream(request, decoder, on_message, max_waiting)

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
        decoder: Decoder | None = None,
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
            decoder: see `subscribe`.
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
        return self._make_stream(request, decoder)

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
        decoder: Decoder | None = None,
        on_message: MessageListener | None = None,
        max_waiting: int | None = None,
    ) -> MessageStream:
        """Query a SOW topic and subscribe to it; `group_end` marks the end of the query's records.

        The arguments are those of `sow` and of `subscribe`.
        """
        self._check_subscribable(on_message, max_waiting)
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
        return self._make_stream(request, decoder, on_message, max_waiting)

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
        body: MessageBody | Any | None = None,
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
        data = None if body is None else self._encoded(topic, body)
        request = self._execute_command(
            lambda protocol: protocol.sow_delete(
                topic,
                filter=filter,
                sow_keys=sow_keys,
                body=data,
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

    def heartbeat(self, interval: int, *, timeout: float | None = None) -> None:
        """Start to exchange heartbeats, so that either peer detects when the other is gone.

        Args:
            interval: seconds between heartbeats.
            timeout: seconds to wait for the answer.
        """
        self._execute_command(lambda protocol: protocol.heartbeat(interval), timeout)
        self._set_silence_timeout(float(interval * MAX_MISSED_HEARTBEATS))

    def drain(self, *, timeout: float | None = None) -> None:
        """Finish the work of the client, then close it.

        New subscriptions are refused. Handlers (`on_message`) finish: those of queues the message
        in progress, while the queue delivers the others to other consumers; those of other topics
        all messages that have arrived. Their subscriptions end, everything published is stored, as
        by `flush`, and so are acknowledgements. Iterated streams end, and can still return the
        messages that have arrived.

        Args:
            timeout: seconds to wait for everything together.

        Raises:
            TimedOutError: the timeout has passed. The client is closed nevertheless.
            MessagesRefusedError: as for `flush`.
            Exception: the exception that a handler raised meanwhile.
        """
        limit = self._time_limit(timeout)
        self._is_draining = True
        try:
            failure = self._finish_handlers(limit)
            self.flush(timeout=limit.remaining_s)
            self.flush_acks(timeout=limit.remaining_s)
        finally:
            self._is_draining = False
            self.close()
        if failure is not None:
            raise failure

    def _finish_handlers(self, limit: TimeLimit) -> Exception | None:
        """End all subscriptions, and wait for their handlers; return the first failure of one."""
        workers = list(self._workers)
        for worker in workers:
            if worker.is_of_queue:
                worker.stop(limit)
        if self._protocol.has_inboxes:
            self._execute_command(lambda protocol: protocol.unsubscribe("all"), limit)
        failures: list[Exception] = []
        for worker in workers:
            worker.wait(limit)
            if worker.error is not None:
                failures.append(worker.error)
        return failures[0] if failures else None

    # Streams

    def _check_subscribable(
        self, on_message: MessageListener | None, max_waiting: int | None
    ) -> None:
        if number("max_waiting", max_waiting) == 0:
            raise ValueError("max_waiting: expected 1 or more, not 0")
        if on_message is not None:
            self._check_handler("on_message", on_message)
        if self._is_draining:
            raise NotConnectedError("the client drains: it takes no new subscriptions")

    def _make_stream(
        self,
        request: PendingRequest,
        decoder: Decoder | None,
        on_message: MessageListener | None = None,
        max_waiting: int | None = None,
    ) -> MessageStream:
        inbox = inbox_of(request)
        if max_waiting is not None or request.opens_inbox:
            inbox.max_waiting = max_waiting
        return MessageStream(self._stream_owner, inbox, self._decode_for(decoder), on_message)

    @property
    def _stream_owner(self) -> StreamOwner:
        return StreamOwner(
            self._wait_for_message,
            self._settle_message,
            lambda stream_id, timeout: self.unsubscribe(stream_id, timeout=timeout),
            self._workers,
        )
