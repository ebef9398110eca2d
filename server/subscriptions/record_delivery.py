"""How changes of records are framed for one connection.

A subscriber whose subscription matches the new state of a record gets it as a `publish`, whole or
as a delta; one whose subscription matched the old state only gets an `oof`. Both carry the SOW key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self

from amperage.wire.framing import frame
from amperage.wire.header import json_text
from server.journal.blocks import of_one
from server.sow.records import to_seconds
from server.subscriptions.envelope import Envelope, correlation_key
from server.subscriptions.presentation import Presentation
from server.subscriptions.record_frames import frames

if TYPE_CHECKING:
    from server.sow.record_run import RecordRun
    from server.sow.records import Record
    from server.subscriptions.difference import Differ

MATCH: Final = "match"
DELETED: Final = "deleted"
EXPIRED: Final = "expired"
"""Why a record is out of focus (AMPS User Guide, Out-of-Focus Reason Codes)."""


class RecordMessage:
    """One change of a record, as its subscribers see it; what several need is made once.

    Args:
        key: the SOW key.
        body: the record's new state; of one that is gone, its last.
        previous: the state before, None for a new record.
        envelope: where the change comes from.
        differ: makes deltas.
        reason: why those hear of it whose subscription matches no more.
        correlation_id: the publisher's mark on the record.
        record: the record, in one of the two states.
    """

    __slots__ = (
        "_delta",
        "_differ",
        "body",
        "correlation_id",
        "envelope",
        "key",
        "key_header",
        "keys",
        "previous",
        "reason",
        "record",
    )

    def __init__(
        self,
        key: str,
        body: bytes,
        previous: bytes | None,
        envelope: Envelope,
        differ: Differ,
        reason: str,
        correlation_id: str,
        record: Record,
    ) -> None:
        self.key = key
        self.body = body
        self.previous = previous
        self.envelope = envelope
        self.reason = reason
        self.correlation_id = correlation_id
        self.key_header = b',"k":' + json_text(key)
        self.keys = (
            envelope.keys
            if correlation_id == (envelope.correlation_id or "")
            else correlation_key(correlation_id)
        )
        self.record = record
        self._differ = differ
        self._delta: list[bytes | None] | None = None

    @classmethod
    def about(cls, record: Record, reason: str, differ: Differ) -> Self:
        """What there is to say about a record that has not changed, as its publish would say it."""
        envelope = Envelope(None, to_seconds(record.timestamp))
        envelope.bookmark = record.bookmark
        return cls(
            record.key, record.body, None, envelope, differ, reason, record.correlation_id, record
        )

    def since(self, earlier: Self) -> Self:
        """This change and one of the same record before it, as one.

        A record that has gone and come again in between is new.
        """
        return type(self)(
            self.key,
            self.body,
            None if self.previous is None else earlier.previous,
            self.envelope,
            self._differ,
            self.reason,
            self.correlation_id,
            self.record,
        )

    def barred(self, known: bytes, reason: str) -> Self:
        """This change, as it is told to somebody who may not see the new state.

        Args:
            known: what they may see of the record instead.
            reason: why they hear of it, unless the record is gone.
        """
        return type(self)(
            self.key,
            known,
            None,
            self.envelope,
            self._differ,
            reason if self.reason == MATCH else self.reason,
            self.correlation_id,
            self.record,
        )

    def delta(self, presentation: Presentation) -> bytes | None:
        """The fields that differ, of those that a presentation lets through; None if none does."""
        if self.previous is None:
            return presentation.cut(self.body)
        if presentation.cuts_bodies:
            before, now = presentation.cut(self.previous), presentation.cut(self.body)
            return self._differ.difference(before, now)
        if self._delta is None:
            self._delta = [self._differ.difference(self.previous, self.body)]
        return self._delta[0]

    def only_keys(self, presentation: Presentation) -> bytes:
        """The body that says that no field differs."""
        return self._differ.keys_of(presentation.cut(self.body))

    def merge_deltas(self, earlier: bytes, later: bytes) -> bytes:
        """Two deltas of the record, one after the other, as one."""
        return self._differ.merge(earlier, later)


class Barrier(Protocol):
    """What may be said of records that a user may not always see."""

    def told(self, message: RecordMessage) -> RecordMessage:
        """What is said instead of a message; itself, if all of it may be said."""

    def hid(self, message: RecordMessage) -> bool:
        """Return whether the state before was hidden, so that a delta would tell of it."""


class RecordDelivery(Protocol):
    """Takes changes for whoever it was made for."""

    def deliver(self, message: RecordMessage) -> None:
        """Take a change."""


class Writer(Protocol):
    """Takes bytes for a connection: its outbox, or a place reserved there."""

    def write(self, data: bytes) -> None:
        """Take bytes."""

    def write_run(self, data: bytes, messages: int) -> None:
        """Take bytes that are several messages."""


class RecordFramer(Protocol):
    """Takes bodies about records for whoever it was made for."""

    @property
    def presentation(self) -> Presentation:
        """The form in which they are wanted."""

    def write(self, message: RecordMessage, body: bytes, received: Envelope | None = None) -> None:
        """Take a body about a record.

        Args:
            message: what became of the record.
            body: the body, with the fields that are wanted.
            received: the envelope whose timestamp counts; None for the message's own.
        """


class Framer:
    """Puts messages about records into a connection's outbox.

    Args:
        outbox: takes bytes for the connection.
        command: `p` or `oof`.
        topic: the topic's name as subscribers see it.
        sub_ids: the ids of the subscriptions that the messages are for.
        presentation: the form that these subscriptions want.
    """

    __slots__ = ("_command", "_left", "_outbox", "_right", "presentation")

    def __init__(
        self,
        outbox: Writer,
        command: str,
        topic: str,
        sub_ids: Sequence[str],
        presentation: Presentation,
    ) -> None:
        self.presentation = presentation
        self._outbox = outbox
        self._command = command
        self._left = b'{"c":%b,"t":%b' % (json_text(command), json_text(topic))
        self._right = presentation.header_end(sub_ids)

    def write(self, message: RecordMessage, body: bytes, received: Envelope | None = None) -> None:
        """Send a body about a record.

        Args:
            message: what became of the record.
            body: the body, with the fields that are wanted.
            received: the envelope whose timestamp counts; None for the message's own.
        """
        presentation = self.presentation
        body = presentation.finish(body)
        header = b'%b%b%b,"l":%d%b%b%b' % (
            self._left,
            message.key_header if presentation.sow_key else b"",
            b"" if self._command == "p" else b',"reason":"%b"' % message.reason.encode(),
            len(body),
            message.keys,
            presentation.keys(received or message.envelope) if presentation.asks_for_keys else b"",
            self._right,
        )
        self._outbox.write(frame(header, body))

    def write_run(self, run: RecordRun, envelope: Envelope) -> None:
        """Send the records of a run, whole. See `write` for what their headers have.

        Args:
            run: the records, of one publisher if bookmarks are wanted.
            envelope: where they come from, without any correlation id.
        """
        presentation, bodies = self.presentation, run.bodies
        if presentation.changes_bodies:
            bodies = presentation.present(bodies)
        keys = envelope.keys
        if presentation.timestamp:
            keys += envelope.timestamp_key
        marks = run.correlation_ids
        made = frames(
            self._left,
            run.keys if presentation.sow_key else (),
            bodies,
            [correlation_key(mark) + keys for mark in marks] if marks else keys,
            of_one(run.publisher, 0),
            run.numbers if presentation.bookmark else (),
            self._right,
        )
        self._outbox.write_run(made, len(bodies))


class WholeDelivery:
    """Sends whole records: their new state.

    Args:
        framer: for these messages.
    """

    __slots__ = ("framer",)

    def __init__(self, framer: RecordFramer) -> None:
        self.framer = framer

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        self.framer.write(message, self.framer.presentation.cut(message.body))


def deliver_run(
    delivery: RecordDelivery, run: RecordRun, envelope: Envelope, differ: Differ
) -> None:
    """Deliver records of a run, where it does not matter what they were before.

    Whoever does not frame them directly takes them one by one.
    """
    if isinstance(delivery, WholeDelivery) and isinstance(delivery.framer, Framer):
        framer = delivery.framer
        for part in run.by_publisher() if framer.presentation.bookmark else (run,):
            framer.write_run(part, envelope)
        return
    for place in range(len(run.bodies)):
        record = run.record(place)
        mark = record.correlation_id
        own = envelope.marked(mark)
        own.bookmark = record.bookmark
        delivery.deliver(
            RecordMessage(record.key, record.body, None, own, differ, MATCH, mark, record)
        )


class LeavingDelivery:
    """Says that records are out of focus, with their new state, or the last one that may be seen.

    Args:
        framer: for these messages.
        barrier: says which states may be seen; None for all.
    """

    __slots__ = ("_barrier", "_framer")

    def __init__(self, framer: RecordFramer, barrier: Barrier | None) -> None:
        self._framer = framer
        self._barrier = barrier

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        if self._barrier is not None:
            message = self._barrier.told(message)
        self._framer.write(message, self._framer.presentation.cut(message.body))


class DeltaDelivery:
    """Sends the fields that differ; of a record that was hidden before, all fields.

    Args:
        changed: for messages in which fields differ.
        unchanged: for messages in which no field differs; None if they are not wanted.
        barrier: says which states may be seen; None for all.
    """

    __slots__ = ("_barrier", "_changed", "_unchanged")

    def __init__(
        self, changed: RecordFramer, unchanged: RecordFramer | None, barrier: Barrier | None
    ) -> None:
        self._changed = changed
        self._unchanged = unchanged
        self._barrier = barrier

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        if self._barrier is not None and self._barrier.hid(message):
            self._changed.write(message, self._changed.presentation.cut(message.body))
            return
        delta = message.delta(self._changed.presentation)
        if delta is not None:
            self._changed.write(message, delta)
        elif self._unchanged is not None:
            self._unchanged.write(message, message.only_keys(self._unchanged.presentation))
