"""Topics in the transaction log: the journal is the truth.

Append precedes apply, apply precedes deliver. What is recorded is the message as subscribers get
it: after preprocessing, enrichment and merging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.journal import JournalUnavailable, Kind
from server.sow.records import NANOSECONDS, to_nanoseconds
from server.subscriptions.rejection import Rejection
from server.topics.stored import REASONS, StoredTopic
from server.topics.topic import Topic
from server.topics.transaction_log import DuplicateError, TopicJournal
from server.wire.header import json_text

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.sow.records import Change, Record
    from server.sow.topic import SowTopic
    from server.subscriptions.envelope import Envelope
    from server.topics.stores import Stores


_LEAST_RUN: Final = 8
"""Messages from which on recording them together is worth its while."""


class JournaledTopic(Topic):
    """A topic without records that is in the transaction log.

    Args:
        message_type: the type that it is scoped to.
        name: its name.
        functions: what filters may call.
        journal: records its messages.
    """

    __slots__ = ("_hands_on_runs", "_journal")

    keeps_messages = True
    is_journaled = True

    def __init__(
        self, message_type: MessageType, name: str, functions: Functions, journal: TopicJournal
    ) -> None:
        super().__init__(message_type, name, functions)
        self._journal = journal
        self._hands_on_runs: bool | None = None  # None when subscriptions have changed

    def _changed(self) -> None:
        super()._changed()
        self._hands_on_runs = None

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Record messages and deliver them. See `Topic.publish`."""
        if len(bodies) >= _LEAST_RUN and self._takes_runs() and self._journal.is_run(envelope):
            return self._publish_run(bodies, envelope)
        return self._publish_one_by_one(bodies, envelope)

    def _takes_runs(self) -> bool:
        """Whether nobody wants to know the bookmark of a message, which those of a run have not."""
        if self._hands_on_runs is None:
            type_name, name = self.message_type.name, self.name
            self._hands_on_runs = not self._filters.asks_for_context and not any(
                one.presentation.bookmark
                or one.sink is not None
                or one.conflater is not None
                or one.session.engine.hooks.delivery_watchers(type_name, name)
                for one in self._subscriptions
            )
        return self._hands_on_runs

    def _publish_run(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        rejections: list[Rejection] = []
        start = 0
        while start < len(bodies):
            end, problem = self._journal.append_run(envelope, bodies, start)
            if self._subscriptions and end > start:
                super().publish(bodies[start:end], envelope)
            if problem is not None:
                rejections.append(Rejection(end, REASONS[type(problem)], str(problem)))
                end += 1
            start = end
        return rejections

    def _publish_one_by_one(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[Rejection]:
        rejections: list[Rejection] = []
        for position, body in enumerate(bodies):
            if envelope.sequences:
                envelope.sequence = envelope.sequences[position]
            try:
                self._journal.refuse_duplicate(envelope)
                _, bookmark = self._journal.append(
                    envelope, body, key=envelope.sow_key, expiration=envelope.expiration or 0
                )
            except (DuplicateError, JournalUnavailable) as error:
                rejections.append(Rejection(position, REASONS[type(error)], str(error)))
            else:
                envelope.bookmark = bookmark
                super().publish((body,), envelope)
        return rejections

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call back when everything published so far is on stable storage."""
        self._journal.log.when_durable(then)


class JournaledStoredTopic(StoredTopic):
    """A topic with records that is in the transaction log.

    Args:
        sow: the records.
        name: the topic's name.
        functions: what filters may call.
        stores: is told of every change.
        journal: records its messages.
    """

    __slots__ = ("_journal",)

    is_journaled = True

    def __init__(
        self,
        sow: SowTopic,
        name: str,
        functions: Functions,
        stores: Stores,
        journal: TopicJournal,
    ) -> None:
        super().__init__(sow, name, functions, stores)
        self._journal = journal

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Record messages, store them, and tell subscribers. See `StoredTopic.publish`."""
        if not envelope.sequences:
            return super().publish(bodies, envelope)
        rejections: list[Rejection] = []
        for position, body in enumerate(bodies):
            envelope.sequence = envelope.sequences[position]
            rejections += (
                rejection._replace(position=position)
                for rejection in super().publish((body,), envelope)
            )
        return rejections

    def _store(self, body: bytes, envelope: Envelope) -> Change:
        self._journal.refuse_duplicate(envelope)
        sow = self._sow
        record = sow.draft(
            body,
            to_nanoseconds(envelope.received),
            topic=self.name,
            key=envelope.sow_key,
            delta=envelope.delta,
            expiration=envelope.expiration,
            correlation_id=envelope.correlation_id or "",
            context=envelope.context(self.name, body) if sow.asks_for_context else None,
        )
        sow.table.make_room((record,))  # what the log says must not fail to come true
        lifetime = -((record.timestamp - record.expires) // NANOSECONDS) if record.expires else 0
        txid, bookmark = self._journal.append(
            envelope,
            record.body,
            Kind.DELTA_PUBLISH if envelope.delta else Kind.PUBLISH,
            record.key,
            lifetime,
        )
        envelope.bookmark = bookmark
        return sow.apply(record._replace(sequence=txid, bookmark=bookmark))

    def _number_deletion(self, records: Sequence[Record], envelope: Envelope) -> int:
        """Record a deletion; its txid is its place in the instance's order of changes."""
        self._sow.table.make_room(records)
        keys = json_text([record.key for record in records])
        txid, _ = self._journal.append(envelope, keys, Kind.SOW_DELETE)
        return txid

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call back when everything published so far is on stable storage."""
        self._journal.log.when_durable(then)
