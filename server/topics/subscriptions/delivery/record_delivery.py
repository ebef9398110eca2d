"""Framing of changes of records for one connection.

A subscription that matches the new state of a record gets it as a `publish`, whole or as a delta; a
subscription that matched the old state only gets an `oof`. Both carry the SOW key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

from amperage.wire.framing import frame
from amperage.wire.header import json_text
from server.storage.journal.write.blocks import of_one
from server.storage.sow.records import to_seconds
from server.topics.subscriptions.delivery.envelope import Envelope, correlation_key
from server.topics.subscriptions.delivery.presentation import Presentation
from server.topics.subscriptions.delivery.record_frames import frames

if TYPE_CHECKING:
    from server.storage.sow.record_batch import KeyColumn, SowRecordBatch
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.delivery import FrameWriter
    from server.topics.subscriptions.delivery.delta import DeltaEncoder
    from server.topics.subscriptions.entitlement_limits import EntitlementVisibility

MATCH: Final = "match"
DELETED: Final = "deleted"
EXPIRED: Final = "expired"
"""The reasons for which a record goes out of focus (AMPS User Guide, Out-of-Focus Reason Codes)."""


class RecordMessage:
    """One change of a record, as its subscribers see it; caches parts that several of them need.

    Args:
        key: the SOW key.
        body: the record's new state; for a removed record, the last one.
        previous: the state before, None for a new record.
        envelope: the origin of the change.
        delta_encoder: makes deltas.
        reason: the reason in `oof` messages.
        correlation_id: the publisher's correlation id of the record.
        record: the record, in one of the two states.
        previous_record: the record before the change, for recipients inside the server; None if
            there was none, or if no recipient compares states.
    """

    def __init__(
        self,
        key: str,
        body: bytes,
        previous: bytes | None,
        envelope: Envelope,
        delta_encoder: DeltaEncoder,
        reason: str,
        correlation_id: str,
        record: Record,
        previous_record: Record | None = None,
    ) -> None:
        self.key = key
        self.body = body
        self.previous = previous
        self.envelope = envelope
        self.reason = reason
        self.correlation_id = correlation_id
        self.key_header = b',"k":' + json_text(key)
        self.header_keys = (
            envelope.header_keys
            if correlation_id == (envelope.correlation_id or "")
            else correlation_key(correlation_id)
        )
        self.record = record
        self.previous_record = previous_record
        self._delta_encoder = delta_encoder
        self._delta: list[bytes | None] | None = None

    @classmethod
    def for_unchanged_record(cls, record: Record, reason: str, delta_encoder: DeltaEncoder) -> Self:
        """Return a message about an unchanged record, with the header fields of its publish."""
        envelope = Envelope(None, to_seconds(record.timestamp))
        envelope.bookmark = record.bookmark
        return cls(
            record.key,
            record.body,
            None,
            envelope,
            delta_encoder,
            reason,
            record.correlation_id,
            record,
        )

    def merge_earlier(self, earlier: Self) -> Self:
        """Return a message that merges this change and an earlier one of the same record.

        A record that was removed and inserted again in between is new.
        """
        return type(self)(
            self.key,
            self.body,
            None if self.previous is None else earlier.previous,
            self.envelope,
            self._delta_encoder,
            self.reason,
            self.correlation_id,
            self.record,
            None if self.previous is None else earlier.previous_record,
        )

    def redacted(self, body: bytes, reason: str) -> Self:
        """Return this change for a user who is not entitled to the new state.

        Args:
            body: the body to send instead.
            reason: the `oof` reason, unless the record was removed.
        """
        return type(self)(
            self.key,
            body,
            None,
            self.envelope,
            self._delta_encoder,
            reason if self.reason == MATCH else self.reason,
            self.correlation_id,
            self.record,
            self.previous_record,
        )

    def delta(self, presentation: Presentation) -> bytes | None:
        """Return the differing fields that the presentation includes; None if none differs."""
        if self.previous is None:
            return presentation.select_fields(self.body)
        if presentation.selects_fields:
            before, now = (
                presentation.select_fields(self.previous),
                presentation.select_fields(self.body),
            )
            return self._delta_encoder.encode(before, now)
        if self._delta is None:
            self._delta = [self._delta_encoder.encode(self.previous, self.body)]
        return self._delta[0]

    def key_fields_only(self, presentation: Presentation) -> bytes:
        """Return the body of a message in which no field differs: the key fields."""
        return self._delta_encoder.key_fields_of(presentation.select_fields(self.body))

    def merge_deltas(self, earlier: bytes, later: bytes) -> bytes:
        """Merge two successive deltas of the record into one."""
        return self._delta_encoder.merge(earlier, later)


class RecordDelivery(Protocol):
    """Delivers changes to the subscriptions that it was made for."""

    def deliver(self, message: RecordMessage) -> None:
        """Deliver a change."""


class RecordFramer(Protocol):
    """Frames bodies about records for the subscriptions that it was made for."""

    @property
    def presentation(self) -> Presentation:
        """The presentation of the messages."""

    def write(
        self, message: RecordMessage, body: bytes, received_envelope: Envelope | None = None
    ) -> None:
        """Send a body about a record.

        Args:
            message: the change of the record.
            body: the body, with the selected fields only.
            received_envelope: the envelope that supplies the timestamp; None for the message's own.
        """


class OutboxRecordFramer:
    """Writes messages about records to a connection's outbox.

    Args:
        outbox: takes bytes for the connection.
        command: `p` or `oof`.
        topic: the topic's name as subscribers see it.
        sub_ids: the ids of the subscriptions that get the messages.
        presentation: the presentation of these subscriptions.

    Attributes:
        outbox: see above.
        header_start: the header of messages up to the SOW key.
        header_end: its end, behind all other keys.
        presentation: see above.
    """

    def __init__(
        self,
        outbox: FrameWriter,
        command: str,
        topic: str,
        sub_ids: Sequence[str],
        presentation: Presentation,
    ) -> None:
        self.presentation = presentation
        self.outbox = outbox
        self._command = command
        self.header_start = b'{"c":%b,"t":%b' % (json_text(command), json_text(topic))
        self.header_end = presentation.header_end(sub_ids)

    @property
    def has_sow_key(self) -> bool:
        """True if headers have the SOW keys of records."""
        return self.presentation.has_sow_key

    def write(
        self, message: RecordMessage, body: bytes, received_envelope: Envelope | None = None
    ) -> None:
        """Send a body about a record.

        Args:
            message: the change of the record.
            body: the body, with the selected fields only.
            received_envelope: the envelope that supplies the timestamp; None for the message's own.
        """
        presentation = self.presentation
        body = presentation.format_body(body)
        header = b'%b%b%b,"l":%d%b%b%b' % (
            self.header_start,
            message.key_header if presentation.has_sow_key else b"",
            b"" if self._command == "p" else b',"reason":"%b"' % message.reason.encode(),
            len(body),
            message.header_keys,
            presentation.optional_keys(received_envelope or message.envelope)
            if presentation.has_optional_keys
            else b"",
            self.header_end,
        )
        self.outbox.write(frame(header, body))

    def write_batch(self, batch: SowRecordBatch, envelope: Envelope) -> None:
        """Send the records of a batch, whole. The headers are those of `write`.

        Args:
            batch: the records, of one publisher if bookmarks are sent.
            envelope: their origin, without any correlation id.
        """
        presentation, bodies = self.presentation, batch.bodies
        if presentation.changes_bodies:
            bodies = presentation.present_bodies(bodies)
        header_keys = envelope.header_keys
        if presentation.has_timestamp:
            header_keys += envelope.timestamp_key
        correlation_ids = batch.correlation_ids
        data = frames(
            self.header_start,
            _framed_keys(batch.keys) if presentation.has_sow_key else (),
            bodies,
            [correlation_key(correlation_id) + header_keys for correlation_id in correlation_ids]
            if correlation_ids
            else header_keys,
            of_one(batch.publisher, 0),
            batch.numbers if presentation.has_bookmark else (),
            self.header_end,
        )
        self.outbox.write_batch(data, len(bodies))


def _framed_keys(keys: KeyColumn) -> Sequence[int] | Sequence[bytes]:
    """Return SOW keys in the form that headers get: numbers, or JSON text."""
    texts = [json_text(key) for key in keys if isinstance(key, str)]
    return texts or cast("Sequence[int]", keys)


class FullRecordDelivery:
    """Sends whole records: their new state.

    Args:
        framer: sends the messages.
    """

    def __init__(self, framer: RecordFramer) -> None:
        self.framer = framer

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        self.framer.write(message, self.framer.presentation.select_fields(message.body))


def deliver_record_batch(
    delivery: RecordDelivery, batch: SowRecordBatch, envelope: Envelope, delta_encoder: DeltaEncoder
) -> None:
    """Deliver the records of a batch, if their earlier states do not matter.

    A delivery that does not frame them directly gets them one by one.
    """
    if isinstance(delivery, FullRecordDelivery) and isinstance(delivery.framer, OutboxRecordFramer):
        framer = delivery.framer
        for part in batch.split_by_publisher() if framer.presentation.has_bookmark else (batch,):
            framer.write_batch(part, envelope)
        return
    for position in range(len(batch.bodies)):
        record = batch.record_at(position)
        correlation_id = record.correlation_id
        record_envelope = envelope.with_correlation_id(correlation_id)
        record_envelope.bookmark = record.bookmark
        delivery.deliver(
            RecordMessage(
                record.key,
                record.body,
                None,
                record_envelope,
                delta_encoder,
                MATCH,
                correlation_id,
                record,
            )
        )


class OofDelivery:
    """Sends `oof` messages, with the new state or the last one that the user is entitled to.

    Args:
        framer: sends the messages.
        visibility: decides which states the user is entitled to; None for all.
    """

    def __init__(self, framer: RecordFramer, visibility: EntitlementVisibility | None) -> None:
        self._framer = framer
        self._visibility = visibility

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        if self._visibility is not None:
            message = self._visibility.visible_message(message)
        self._framer.write(message, self._framer.presentation.select_fields(message.body))


class DeltaDelivery:
    """Sends the differing fields; of a record that was hidden before, all fields.

    Args:
        changed_framer: sends messages in which fields differ.
        unchanged_framer: sends messages in which no field differs; None to suppress them.
        visibility: decides which states the user is entitled to; None for all.
    """

    def __init__(
        self,
        changed_framer: RecordFramer,
        unchanged_framer: RecordFramer | None,
        visibility: EntitlementVisibility | None,
    ) -> None:
        self._changed_framer = changed_framer
        self._unchanged_framer = unchanged_framer
        self._visibility = visibility

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        if self._visibility is not None and self._visibility.was_hidden(message):
            self._changed_framer.write(
                message, self._changed_framer.presentation.select_fields(message.body)
            )
            return
        delta = message.delta(self._changed_framer.presentation)
        if delta is not None:
            self._changed_framer.write(message, delta)
        elif self._unchanged_framer is not None:
            self._unchanged_framer.write(
                message, message.key_fields_only(self._unchanged_framer.presentation)
            )
