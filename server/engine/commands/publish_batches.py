"""Batches of plain publishes, and of deletions by body among them: one call of a topic for many.

Plain publishes are recognized by their remembered headers
(server/engine/commands/publish_fast_path.py). The acks of a batch are the same as those of its
messages one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, cast

from amperage.wire.frame_batches import HeaderColumns
from amperage.wire.header import Header
from amperage.wire.sequences import numbers_of
from server.engine.commands.acks import AckFrames, fail_sequences
from server.engine.commands.failure_acks import refuse
from server.engine.commands.publish import lifetime
from server.engine.commands.publish_fast_path import (
    DELETION_STATISTICS,
    PublishHeader,
    PublishHeaderCache,
    RequestedAcks,
    make_publish_header,
)
from server.engine.commands.sow_delete import report_deletion
from server.queues.topic.queue_topic import QueueTopic
from server.storage.sow.record_batch import Deletion
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
        self, data: bytes, header: Header, topic: PublishTarget, acks: tuple[str, ...]
    ) -> None:
        """Remember a header, so that frames with it are messages to a topic.

        Args:
            data: the bytes of a header that requests nothing but the delivery of its body, with
                its metadata, and acks with its command id and sequence number.
            header: the decoded header.
            topic: the target of the bodies.
            acks: the types of ack that it requests.
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
        values = (
            header.sequence,
            header.correlation_id,
            header.sow_key,
            header.expiration,
            header.command_id,
        )
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
        topic = header.topic
        if topic.is_journaled:
            self.has_journaled = True
        else:
            values = _detached(values)
        deletions = [Deletion() for _ in bodies] if header.is_deletion else []
        if (values.has_metadata and not (topic.accepts_metadata and len(bodies) > 1)) or (
            deletions and self._reports_deletions
        ):
            refusals = self._publish_one_by_one(header, bodies, values, deletions)
        else:
            if not topic.accepts_slices:
                bodies = list(bodies)  # the topic reads each by itself, and retains some
            envelope = self._make_envelope(
                values, is_recorded=topic.is_journaled, is_delta=header.is_delta
            )
            if deletions:
                envelope = _with_deletions(envelope, deletions)
            refusals = topic.publish(bodies, envelope)
        acked = _AckedCommands((header,), values, len(bodies), deletions)
        self._send_acks(acked, refusals, topic.when_settled, is_certain=topic.is_journaled)

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
        """Publish messages to several topics; see `PublishHeader.can_interleave`."""
        cache = self.header_cache
        distinct_keys = [*dict.fromkeys(keys)]
        headers: Sequence[PublishHeader] = (header,)
        if not cache.has_one_kind_of_acks:
            headers = [cache.headers[key] for key in keys]
        if cache.only_deliver and not values.has_metadata:  # a delta is a message like any other
            topics = cast("Sequence[Topic]", cache.topics)
            envelope = self._make_envelope(values, is_recorded=False)
            self._delivery.deliver(topics, distinct_keys, keys, bodies, envelope)
            acked = _AckedCommands(headers, values, len(bodies), ())
            self._send_acks(acked, (), header.topic.when_settled, is_certain=True)
            return
        targets = cast("Sequence[PlainTarget]", cache.topics)
        publishes = InterleavedPublishes(targets, distinct_keys, keys, bodies)
        if not publishes.is_logged:
            values = _detached(values)  # as in `publish`
        envelope = self._make_envelope(values, is_recorded=publishes.is_logged)
        delta_keys = {key for key in distinct_keys if cache.headers[key].is_delta}
        if delta_keys:
            envelope = copy(envelope)  # others of the slice have none
            envelope.deltas = [key in delta_keys for key in keys]
        deletions: list[Deletion | None] = []
        deleting_keys: set[int] = set()
        if cache.has_deletions:
            deleting_keys |= {key for key in distinct_keys if cache.headers[key].is_deletion}
        if deleting_keys:
            deletions += [Deletion() if key in deleting_keys else None for key in keys]
            envelope = _with_deletions(envelope, deletions)
        is_apart = bool(deleting_keys) and self._reports_deletions
        if not is_apart and publishes.prepare(self._delivery, envelope):
            self.has_journaled |= publishes.is_logged
            refusals = publishes.publish(self._delivery)
            if refusals:
                headers = [cache.headers[key] for key in keys]
            acked = _AckedCommands(headers, values, len(bodies), deletions)
            is_certain = not publishes.has_unlogged_records
            self._send_acks(acked, refusals, publishes.settled(), is_certain=is_certain)
            return
        for start, end, key in uniform_ranges(keys, 0, len(keys)):
            self.publish(cache.headers[key], None, bodies[start:end], values.part(start, end))

    def _publish_one_by_one(
        self,
        header: PublishHeader,
        bodies: Sequence[bytes],
        values: HeaderColumns,
        deletions: Sequence[Deletion],
    ) -> Sequence[MessageRefusal]:
        """Publish messages to a topic that needs each in an envelope of its own, or is watched."""
        topic = header.topic
        batch = self._make_envelope(
            values, is_recorded=topic.is_journaled, is_delta=header.is_delta
        )
        if deletions:
            batch = _with_deletions(batch, deletions)
        refusals: list[MessageRefusal] = []
        for position, body in enumerate(bodies):
            envelope = batch.for_message(position)
            envelope.sequences = ()
            refused = topic.publish([body], envelope)
            refusals += (one._replace(position=position) for one in refused)
            if deletions and not refused:
                ids = values.correlation_ids
                own = Header(header.command, topic=topic.name)
                own.correlation_id = (ids[position].decode() or None) if ids else None
                report_deletion(self._session, own)
        return refusals

    @property
    def _reports_deletions(self) -> bool:
        """True if deletions have to be reported, each before the next command."""
        return self._session.engine.client_status.has_recipients("sow_delete")

    def _send_acks(
        self,
        commands: _AckedCommands,
        refusals: Sequence[MessageRefusal],
        when_settled: DurabilityWait,
        *,
        is_certain: bool,
    ) -> None:
        """Acknowledge the messages of a batch, and refuse those that have been refused.

        Args:
            commands: their commands.
            refusals: the refused messages.
            when_settled: calls back when the others are stored.
            is_certain: whether it never reports a problem.
        """
        session = self._session
        first = 0  # the position of the first command that may have to wait
        if refusals:
            commands, first = self._refuse_messages(commands, refusals, when_settled)
        frames: list[bytes] = []
        count = 0
        conflated: list[Sequence[bytes]] = []
        deferred: list[tuple[AckFrames, _AckedCommands]] = []
        for acks, start, end in commands.ranges():
            own = commands.part(start, end)
            frames += own.frame_immediate(acks)
            count += own.count * acks.immediate_count
            if acks.are_conflated and end > first:
                conflated.append(own.sequences[max(0, first - start) :])
            elif acks.deferred is not None:
                deferred.append((acks.deferred, own))
        if count:
            session.send_frames(b"".join(frames), count)
        if conflated:
            numbers = conflated[0] if len(conflated) == 1 else [*chain.from_iterable(conflated)]
            session.persisted_acks.acknowledge_sequences(
                numbers, when_settled, is_certain=is_certain
            )
        if deferred:
            when_settled(partial(self._send_deferred_acks, deferred))

    def _refuse_messages(
        self,
        commands: _AckedCommands,
        refusals: Iterable[MessageRefusal],
        when_settled: DurabilityWait,
    ) -> tuple[_AckedCommands, int]:
        """Send failures for the refused messages of a batch.

        Returns:
            The other commands, and the position among them behind the last one refused.
        """
        accepted: list[int] = []
        begin = 0
        for refusal in refusals:
            position = refusal.position
            refused = commands.header_at(position)
            before = [
                commands.sequences[row]
                for row in range(begin, position)
                if commands.header_at(row).acks.are_conflated
            ]
            accepted += range(begin, position)
            begin = position + 1
            if before:  # a duplicate is reported behind them
                self._session.persisted_acks.acknowledge_sequences(before, when_settled)
            ids, sequences = commands.command_ids, commands.sequences
            header = Header(
                command=refused.command,
                command_id=(ids[position].decode() or None) if ids else None,
                topic=refused.topic.name,
                acks=",".join(refused.acks.types) or None,
                sequence=int(sequences[position]) if sequences else None,
            )
            refuse(self._session, header, refusal.reason, refusal.detail)
        first = len(accepted)
        accepted += range(begin, commands.count)
        return commands.select(accepted), first

    def _send_deferred_acks(
        self,
        deferred: Iterable[tuple[AckFrames, _AckedCommands]],
        problem: RecordStoreError | None,
    ) -> None:
        """Send acks that waited for stable storage, unless the peer has disconnected meanwhile."""
        session = self._session
        if not session.is_open:
            return
        for acks, commands in deferred:
            if problem is None:
                session.send_frames(b"".join(commands.frame(acks)), commands.count)
            else:
                sequences = commands.sequences or [b""] * commands.count
                fail_sequences(session, sequences, str(problem), commands.command_ids)

    def _drop_stale_headers(self) -> None:
        """Forget all headers if the registry has dropped topics, as they have no subscribers."""
        generation = self._session.engine.topics.generation
        if self._topics_generation != generation:
            self._topics_generation = generation
            self.header_cache.clear()


class _AckedCommands:
    """The commands of a batch, as their acks need them.

    Args:
        headers: the meaning of the header of each, or of all if these request the same acks.
        values: the values of their headers.
        count: the number of commands.
        deletions: the deletions among them; nothing if there are none.
    """

    def __init__(
        self,
        headers: Sequence[PublishHeader],
        values: HeaderColumns,
        count: int,
        deletions: Sequence[Deletion | None],
    ) -> None:
        self._headers = headers
        self.sequences = values.sequences
        self.command_ids = values.command_ids
        self.count = count
        self.deletions = deletions

    def header_at(self, position: int) -> PublishHeader:
        """Return the meaning of a header."""
        return self._headers[position if len(self._headers) > 1 else 0]

    def ranges(self) -> Iterator[tuple[RequestedAcks, int, int]]:
        """Yield the acks that consecutive commands request: acks, begin, end."""
        if len(self._headers) == 1:
            yield self._headers[0].acks, 0, self.count
            return
        end = 0
        for acks, alike in groupby([header.acks for header in self._headers]):
            start, end = end, end + len([*alike])
            yield acks, start, end

    def part(self, start: int, end: int) -> _AckedCommands:
        """Return consecutive commands."""
        if not start and end == self.count:
            return self
        return self.select(range(start, end))

    def select(self, rows: Sequence[int]) -> _AckedCommands:
        """Return some of the commands."""
        headers = self._headers
        sequences, command_ids = (
            [column[row] for row in rows] if column else ()
            for column in (self.sequences, self.command_ids)
        )
        return _AckedCommands(
            [headers[row] for row in rows] if len(headers) > 1 else headers,
            HeaderColumns(sequences, command_ids=command_ids),
            len(rows),
            [self.deletions[row] for row in rows] if self.deletions else (),
        )

    def frame(self, acks: AckFrames) -> list[bytes]:
        """Return their successful acks of some types."""
        return acks.frame(self.command_ids, self.sequences, self.count)

    def frame_immediate(self, acks: RequestedAcks) -> list[bytes]:
        """Return those of their successful acks that can be sent at once."""
        frames = [] if acks.immediate is None else self.frame(acks.immediate)
        if not acks.has_statistics:
            return frames
        with_statistics: list[bytes] = []
        for position, deletion in enumerate(self.deletions):
            command_ids = self.command_ids[position : position + 1]
            assert deletion is not None  # noqa: S101 - no other command has statistics
            with_statistics += frames[position : position + 1]
            with_statistics += DELETION_STATISTICS[deletion.count].frame(command_ids, (), 1)
        return with_statistics


def _with_deletions(envelope: Envelope, deletions: Sequence[Deletion | None]) -> Envelope:
    """Return an envelope for messages of which some are deletions, which have no correlation id."""
    own = copy(envelope)
    own.deletions = deletions
    pairs = zip(own.correlation_ids, deletions, strict=False)
    own.correlation_ids = ["" if deletion else text for text, deletion in pairs]
    return own


def _detached(values: HeaderColumns) -> HeaderColumns:
    """Return values that do not retain the read buffer, as acks may wait."""
    return HeaderColumns(*map(list, values))
