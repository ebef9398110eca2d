"""A topic with records: what is published to it is stored, and what that changes is told.

Of a `<Topic>` with a Pattern there is one of these for each name in use; they share the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.message_types.base import BodyError
from server.sow.keys import KeyRefusedError
from server.sow.records import to_nanoseconds
from server.sow.store import StoreError
from server.subscriptions.record_audience import RecordAudience
from server.subscriptions.record_delivery import MATCH
from server.subscriptions.rejection import Rejection

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.sow.records import Change
    from server.sow.topic import SowTopic
    from server.subscriptions.envelope import Envelope
    from server.topics.stores import Stores

_REASONS: Final[dict[type[Exception], str]] = {
    BodyError: "invalid message",
    KeyRefusedError: "invalid sow key",
    StoreError: "not stored",
}
"""What can be wrong with a single message -> the phrase for its publisher."""


class StoredTopic(RecordAudience):
    """One topic with records, under one name.

    Args:
        sow: the records.
        name: the topic's name.
        functions: what filters may call.
        stores: is told of every change.
    """

    __slots__ = ("_sow", "_stores")

    keeps_messages = True
    """Whether messages go on stable storage."""

    def __init__(self, sow: SowTopic, name: str, functions: Functions, stores: Stores) -> None:
        super().__init__(sow.table.message_type, name, functions, stores.differ(sow))
        self._sow = sow
        self._stores = stores

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Store messages, and tell subscribers about the records that change.

        Args:
            bodies: the bodies of one or more messages, in order.
            envelope: what they have in common.

        Returns:
            The messages that could not be stored, each with the reason.
        """
        rejections: list[Rejection] = []
        for position, body in enumerate(bodies):
            try:
                change = self._store(body, envelope)
            except (BodyError, KeyRefusedError, StoreError) as error:
                rejections.append(Rejection(position, _REASONS[type(error)], str(error)))
            else:
                self.announce(change, envelope, MATCH)
        self._stores.touched(self._sow)
        return rejections

    def _store(self, body: bytes, envelope: Envelope) -> Change:
        sow = self._sow
        return sow.publish(
            body,
            to_nanoseconds(envelope.received),
            self._stores.next_sequence(),
            topic=self.name,
            key=envelope.sow_key,
            delta=envelope.delta,
            expiration=envelope.expiration,
            correlation_id=envelope.correlation_id or "",
            context=envelope.context(self.name, body) if sow.asks_for_context else None,
        )

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call back when everything published so far is on stable storage."""
        self._stores.when_stored((self._sow,), then)
