"""Batches of plain publishes: one call of a topic for many messages of a connection.

Plain publishes are recognized by their remembered headers
(server/engine/commands/publish_fast_path.py). The acks of a batch are the same as those of its
messages one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, cast

from amperage.wire.frame_batches import HeaderColumns
from amperage.wire.header import Header
from amperage.wire.sequences import numbers_of
from server.engine.commands.acks import SequencedAcks, fail_sequences
from server.engine.commands.failure_acks import refuse
from server.engine.commands.publish import lifetime
from server.engine.commands.publish_fast_path import (
    PublishHeader,
    PublishHeaderCache,
    make_publish_header,
)
from server.queues.topic.queue_topic import QueueTopic
from server.topics.interleaved_delivery import InterleavedDelivery
from server.topics.interleaved_publishes import InterleavedPublishes
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.message_refusal import MessageRefusal
from server.topics.topic_journal import uniform_ranges

if TYPE_CHECKING:
    from amperage.wire.frame_splitter import HeaderShapes
    from server.engine.commands.publish_target import PublishTarget
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError
    from server.topics.interleaved_publishes import PlainTarget
    from server.topics.sow_registry import DurabilityWait
    from server.topics.topic import Topic


class PublishBatcher:
    """Publishes the plain publishes of one connection in batches.

    Args:
        session: the connection.
        shapes: gets the shapes of the headers of such publishes.

    Attributes:
        header_cache: the headers of such publishes.
        has_journaled: whether any of them went into the transaction log.
    """

    __slots__ = (
        "_delivery",
        "_envelope",
        "_session",
        "_topics_generation",
        "has_journaled",
        "header_cache",
    )

    def __init__(self, session: Session, shapes: HeaderShapes) -> None:
        self.header_cache = PublishHeaderCache(shapes)
        self.has_journaled = False
        self._session = session
        self._topics_generation = 0
        self._envelope: Envelope | None = None  # of batches without metadata that are not recorded
        self._delivery = InterleavedDelivery()

    def refresh(self) -> None:
        """Prepare for the next batches; called after any change to the remembered state."""
        self._drop_stale_headers()
        self._envelope = None

    def cache_header(
        self, data: bytes, header: Header, topic: PublishTarget, acks: Sequence[str]
    ) -> None:
        """Remember a header, so that frames with it are messages to a topic.

        Args:
            data: the bytes of a header that requests nothing but the delivery of its body, with
                its metadata, and acks with its sequence number.
            header: the decoded header.
            topic: the target of the bodies.
            acks: the types of ack that it requests; none without a sequence number.
        """
        self._drop_stale_headers()
        if isinstance(topic, QueueTopic):
            topic = topic.publish_target
        publish = make_publish_header(
            topic,
            header.command,
            acks,
            is_numbered=header.sequence is not None,
            has_log=self._session.engine.transaction_log is not None,
        )
        values = (header.sequence, header.correlation_id, header.sow_key, header.expiration)
        self.header_cache.add_header(data, values, publish)

    def publish(
        self,
        header: PublishHeader,
        keys: Sequence[int] | None,
        bodies: Sequence[bytes],
        values: HeaderColumns,
    ) -> None:
        """Publish a batch, and send its acks. See `PublishBatchCallback`."""
        session = self._session
        session.ack_header_cache.acknowledge_collected()  # those of commands before these
        session.command = header.command
        if keys is not None:
            self._publish_interleaved(header, keys, bodies, values)
            return
        topic, sequences = header.topic, values.sequences
        if topic.is_journaled:
            self.has_journaled = True
        else:
            sequences = list(sequences)  # some may wait, and must not retain the read buffer
        if values.has_metadata and not (topic.accepts_metadata and len(bodies) > 1):
            refusals = self._publish_one_by_one(header, bodies, values)
        else:
            if not topic.accepts_slices:
                bodies = list(bodies)  # the topic reads each by itself, and retains some
            envelope = self._make_envelope(
                values, is_recorded=topic.is_journaled, is_delta=header.is_delta
            )
            refusals = topic.publish(bodies, envelope)
        self._send_acks((header,), sequences, refusals, topic.when_settled, topic.is_journaled)

    def _make_envelope(
        self, values: HeaderColumns, *, is_recorded: bool, is_delta: bool = False
    ) -> Envelope:
        """Return the envelope of a batch.

        Args:
            values: the values of its headers.
            is_recorded: whether any of its messages goes into the transaction log.
            is_delta: whether its messages have only the fields that change.
        """
        session = self._session
        if not (is_recorded or is_delta or values.has_metadata):  # the same within a slice
            if self._envelope is None:
                self._envelope = Envelope(session, session.last_input_s)
            return self._envelope
        envelope = Envelope(session, session.last_input_s, is_delta=is_delta)
        if is_recorded:
            envelope.sequences = numbers_of(values.sequences)
        if values.correlation_ids:
            envelope.correlation_ids = [text.decode() for text in values.correlation_ids]
        if values.sow_keys:
            envelope.sow_keys = [text.decode() for text in values.sow_keys]
        if values.lifetimes:
            envelope.lifetimes = [
                lifetime(int(digits)) if digits else None for digits in values.lifetimes
            ]
        return envelope

    def _publish_interleaved(
        self,
        header: PublishHeader,
        keys: Sequence[int],
        bodies: Sequence[bytes],
        values: HeaderColumns,
    ) -> None:
        """Publish messages to several topics; see `PublishHeader.interleave_key`."""
        cache, sequences = self.header_cache, values.sequences
        distinct_keys = [*dict.fromkeys(keys)]
        if cache.only_deliver and not values.has_metadata:  # a delta is a message like any other
            topics = cast("Sequence[Topic]", cache.topics)
            envelope = self._make_envelope(values, is_recorded=False)
            self._delivery.deliver(topics, distinct_keys, keys, bodies, envelope)
            self._send_acks((header,), sequences, (), header.topic.when_settled, True)
            return
        targets = cast("Sequence[PlainTarget]", cache.topics)
        publishes = InterleavedPublishes(targets, distinct_keys, keys, bodies)
        if not publishes.is_logged:
            sequences = list(sequences)  # as in `publish`
        envelope = self._make_envelope(values, is_recorded=publishes.is_logged)
        delta_keys = {key for key in distinct_keys if cache.headers[key].is_delta}
        if delta_keys:
            envelope = copy(envelope)  # others of the slice have none
            envelope.deltas = [key in delta_keys for key in keys]
        if publishes.prepare(self._delivery, envelope):
            self.has_journaled |= publishes.is_logged
            refusals = publishes.publish(self._delivery)
            headers = [cache.headers[key] for key in keys] if refusals else (header,)
            self._send_acks(
                headers,
                sequences,
                refusals,
                publishes.settled(),
                not publishes.has_unlogged_records,
            )
            return
        for start, end, key in uniform_ranges(keys, 0, len(keys)):
            self.publish(cache.headers[key], None, bodies[start:end], values.part(start, end))

    def _publish_one_by_one(
        self, header: PublishHeader, bodies: Sequence[bytes], values: HeaderColumns
    ) -> Sequence[MessageRefusal]:
        """Publish messages with metadata to a topic that needs each in an envelope of its own."""
        topic = header.topic
        batch = self._make_envelope(
            values, is_recorded=topic.is_journaled, is_delta=header.is_delta
        )
        refusals: list[MessageRefusal] = []
        for position, body in enumerate(bodies):
            envelope = batch.for_message(position)
            envelope.sequences = ()
            refusals += (one._replace(position=position) for one in topic.publish([body], envelope))
        return refusals

    def _send_acks(
        self,
        headers: Sequence[PublishHeader],
        sequences: Sequence[bytes],
        refusals: Sequence[MessageRefusal],
        when_settled: DurabilityWait,
        is_certain: bool,
    ) -> None:
        """Acknowledge the messages of a batch, and refuse those that have been refused.

        Args:
            headers: the meaning of each header, or the one that all have.
            sequences: the numbers of the messages, if these are used.
            refusals: the refused messages.
            when_settled: calls back when the others are stored.
            is_certain: whether it never reports a problem.
        """
        session, header = self._session, headers[0]
        trailing = sequences
        if refusals:
            sequences, trailing = self._refuse_messages(headers, refusals, sequences, when_settled)
        if header.immediate_acks is not None:
            header.immediate_acks.send(session.outbox, sequences)
        if header.conflates_acks and trailing:
            session.persisted_acks.acknowledge_sequences(
                trailing, when_settled, is_certain=is_certain
            )
        elif header.deferred_acks is not None and sequences:
            when_settled(partial(self._send_deferred_acks, header.deferred_acks, sequences))

    def _refuse_messages(
        self,
        headers: Sequence[PublishHeader],
        refusals: Iterable[MessageRefusal],
        sequences: Sequence[bytes],
        when_settled: DurabilityWait,
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Send failures for the refused messages of a batch.

        Returns:
            The sequence numbers of the others, and those behind the last one refused.
        """
        accepted: list[bytes] = []
        begin = 0
        for refusal in refusals:
            refused = headers[refusal.position if len(headers) > 1 else 0]
            before = list(sequences[begin : refusal.position])
            accepted += before
            begin = refusal.position + 1
            if refused.conflates_acks and before:  # a duplicate is reported behind them
                self._session.persisted_acks.acknowledge_sequences(before, when_settled)
            header = Header(
                command=refused.command,
                topic=refused.topic.name,
                acks=",".join(refused.ack_types) or None,
                sequence=int(sequences[refusal.position]) if sequences else None,
            )
            refuse(self._session, header, refusal.reason, refusal.detail)
        trailing = sequences[begin:]
        return [*accepted, *trailing], trailing

    def _send_deferred_acks(
        self, acks: SequencedAcks, sequences: Sequence[bytes], problem: RecordStoreError | None
    ) -> None:
        """Send acks that waited for stable storage, unless the peer has disconnected meanwhile."""
        session = self._session
        if not session.is_open:
            return
        if problem is None:
            acks.send(session.outbox, sequences)
        else:
            fail_sequences(session, sequences, str(problem))

    def _drop_stale_headers(self) -> None:
        """Forget all headers if the registry has dropped topics, as they have no subscribers."""
        generation = self._session.engine.topics.generation
        if self._topics_generation != generation:
            self._topics_generation = generation
            self.header_cache.clear()
