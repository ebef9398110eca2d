"""Properties common to the messages of one batch, apart from topic and recipients."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from amperage.wire.header import json_text
from server.expressions.message_context import MessageContext
from server.storage.journal.write.blocks import values_at

if TYPE_CHECKING:
    from server.storage.sow.record_batch import Deletion
    from server.topics.subscriptions.client import ClientIdentity


class Envelope:
    """The origin of messages, the options their publisher gave, and the header keys for both.

    Args:
        publisher: the client that published them; None for the server's own messages.
        received_s: when they were received, in seconds since 1970.
        correlation_id: the publisher's correlation id.
        sow_key: the SOW key that the publisher gave.
        expiration: lifetime in seconds, 0 for no limit; None for the topic's default.
        is_delta: whether they contain only changed fields.
        sequence: the publisher's sequence number of a message, 0 for none.

    Attributes:
        sequences: of a batch, the publisher's sequence number of each message; empty if it gives
            none, or where they do not matter.
        correlation_ids: of a batch, the id of each message, "" for none; empty if all have the
            envelope's.
        sow_keys: likewise, the SOW key that the publisher gave, "" for none.
        lifetimes: likewise, the lifetime, as `expiration`.
        deltas: likewise, whether the message contains only changed fields.
        deletions: likewise, the deletions of records; None for a message.
        deletion: the deletion of a record, in place of a message.
        bookmark: the name of a message in the transaction log, empty for none.
        numbers: of recorded messages of a batch, the number in the bookmark of each, 0 for none;
            empty if all have the envelope's.
        bookmark_publisher: the publisher's identity in these bookmarks.
        header_keys: header keys that all of them carry, as JSON text, each with its leading comma.
    """

    __slots__ = (
        "bookmark",
        "bookmark_publisher",
        "correlation_id",
        "correlation_ids",
        "deletion",
        "deletions",
        "deltas",
        "expiration",
        "header_keys",
        "is_delta",
        "lifetimes",
        "numbers",
        "publisher",
        "received_s",
        "sequence",
        "sequences",
        "sow_key",
        "sow_keys",
    )

    is_replicated = False
    """Whether the messages were published to another instance."""

    def __init__(
        self,
        publisher: ClientIdentity | None,
        received_s: float,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        expiration: int | None = None,
        *,
        is_delta: bool = False,
        sequence: int = 0,
    ) -> None:
        self.publisher = publisher
        self.received_s = received_s
        self.correlation_id = correlation_id
        self.sow_key = sow_key
        self.expiration = expiration
        self.is_delta = is_delta
        self.sequence = sequence
        self.sequences: Sequence[int] = ()
        self.correlation_ids: Sequence[str] = ()
        self.sow_keys: Sequence[str] = ()
        self.lifetimes: Sequence[int | None] = ()
        self.deltas: Sequence[bool] = ()
        self.deletions: Sequence[Deletion | None] = ()
        self.deletion: Deletion | None = None
        self.bookmark = ""
        self.numbers: Sequence[int] = ()
        self.bookmark_publisher = 0
        self.header_keys = correlation_key(correlation_id)
        if publisher is not None and publisher.user:
            self.header_keys += b',"user_id":' + json_text(publisher.user)

    def __copy__(self) -> Self:
        """Return a copy; one per topic and batch is made, and the default form is slow."""
        envelope = object.__new__(type(self))
        envelope.bookmark = self.bookmark
        envelope.bookmark_publisher = self.bookmark_publisher
        envelope.correlation_id = self.correlation_id
        envelope.correlation_ids = self.correlation_ids
        envelope.deletion = self.deletion
        envelope.deletions = self.deletions
        envelope.deltas = self.deltas
        envelope.expiration = self.expiration
        envelope.header_keys = self.header_keys
        envelope.is_delta = self.is_delta
        envelope.lifetimes = self.lifetimes
        envelope.numbers = self.numbers
        envelope.publisher = self.publisher
        envelope.received_s = self.received_s
        envelope.sequence = self.sequence
        envelope.sequences = self.sequences
        envelope.sow_key = self.sow_key
        envelope.sow_keys = self.sow_keys
        return envelope

    @property
    def client_name(self) -> str:
        """The name of the publishing client; empty for the server itself."""
        return "" if self.publisher is None else self.publisher.client_name

    @property
    def timestamp_key(self) -> bytes:
        """The header key of the receive time, for subscriptions with timestamps."""
        return b',"ts":"%s"' % iso_timestamp(self.received_s).encode()

    @property
    def bookmark_key(self) -> bytes:
        """The header key of the bookmark, for subscriptions with bookmarks; empty for none."""
        return b',"bm":"%s"' % self.bookmark.encode() if self.bookmark else b""

    def with_time_and_bookmark(self, received_s: float, bookmark: str) -> Self:
        """Return this envelope with the receive time and the bookmark of another one."""
        envelope = copy(self)
        envelope.received_s, envelope.bookmark = received_s, bookmark
        return envelope

    @property
    def has_metadata_columns(self) -> bool:
        """True if messages have correlation ids, SOW keys or lifetimes of their own."""
        return bool(self.correlation_ids or self.sow_keys or self.lifetimes)

    @property
    def depends_on_records(self) -> bool:
        """True if effects of messages depend on the records before: of deltas and deletions."""
        return self.is_delta or bool(self.deltas or self.deletions)

    @property
    def is_uniform(self) -> bool:
        """True if messages differ in sequence numbers and bookmarks only."""
        return not (self.has_metadata_columns or self.deltas or self.deletions)

    def part(self, positions: Sequence[int]) -> Self:
        """Return this envelope for some messages of the batch, at these positions in it."""
        envelope = copy(self)
        if self.sequences:
            envelope.sequences = values_at(self.sequences, positions)
        if self.has_metadata_columns:
            envelope.correlation_ids = values_at(self.correlation_ids, positions)
            envelope.sow_keys = values_at(self.sow_keys, positions)
            envelope.lifetimes = values_at(self.lifetimes, positions)
        if self.deltas:
            envelope.deltas = values_at(self.deltas, positions)
        if self.deletions:
            deletions = values_at(self.deletions, positions)
            envelope.deletions = deletions if any(deletions) else ()
        if self.numbers:
            envelope.numbers = values_at(self.numbers, positions)
        return envelope

    def recorded_part(self, start: int, end: int, publisher: int, numbers: Sequence[int]) -> Self:
        """Return this envelope for consecutive recorded messages of the batch.

        Args:
            start: the position of the first one.
            end: the position behind the last one.
            publisher: the publisher's identity in their bookmarks.
            numbers: see `Envelope.numbers`.
        """
        envelope = self.part(range(start, end))
        envelope.bookmark = ""
        envelope.bookmark_publisher, envelope.numbers = publisher, numbers
        return envelope

    def for_message(self, position: int) -> Self:
        """Return this envelope for one message of the batch, which is handled by itself."""
        envelope = self
        correlation_ids, sow_keys, lifetimes = self.correlation_ids, self.sow_keys, self.lifetimes
        if self.has_metadata_columns or self.deltas or self.deletions or self.numbers:
            envelope = copy(self)
            envelope.correlation_ids = envelope.sow_keys = envelope.lifetimes = ()
            envelope.numbers = ()
            if self.numbers and (number := self.numbers[position]):
                envelope.bookmark = f"{self.bookmark_publisher}|{number}|"
            if self.deltas:
                envelope.is_delta, envelope.deltas = self.deltas[position], ()
            if self.deletions:
                envelope.deletion, envelope.deletions = self.deletions[position], ()
            if lifetimes:
                envelope.expiration = lifetimes[position]
            if sow_keys:
                envelope.sow_key = sow_keys[position] or None
            if correlation_ids:
                envelope = envelope.with_correlation_id(correlation_ids[position])
        if self.sequences:
            envelope.sequence = self.sequences[position]
        return envelope

    def with_correlation_id(self, correlation_id: str) -> Self:
        """Return this envelope for a message of the batch with its correlation id, or none."""
        if correlation_id == (self.correlation_id or ""):
            return self
        envelope = copy(self)
        envelope.correlation_id = correlation_id or None
        other_keys = self.header_keys[len(correlation_key(self.correlation_id)) :]
        envelope.header_keys = correlation_key(correlation_id) + other_keys
        return envelope

    def optional_keys(self, *, timestamp: bool, bookmark: bool, record: bool) -> bytes:
        """Return optional header keys, as JSON text, each with its leading comma.

        Args:
            timestamp: include when the server received the message.
            bookmark: include its name in the transaction log.
            record: include the SOW key of its record, if only the envelope has that: topics with
                records have the keys of their records themselves.
        """
        keys = self.timestamp_key if timestamp else b""
        if bookmark:
            keys += self.bookmark_key
        return keys + self.record_key if record else keys

    @property
    def record_sow_key(self) -> str | None:
        """The SOW key of the record that a message has become, if only the envelope has it."""
        return None

    @property
    def record_key(self) -> bytes:
        """The header key for that SOW key; empty if there is none."""
        key = self.record_sow_key
        return b"" if key is None else b',"k":' + json_text(key)

    def context(self, topic: str, body: bytes) -> MessageContext:
        """Return the properties of a message that filter functions may read."""
        context = MessageContext()
        context.topic_name = topic
        context.message_size = len(body)
        context.correlation_id = self.correlation_id
        context.bookmark = self.bookmark or None
        self.describe_publisher(context)
        return context

    def describe_publisher(self, context: MessageContext) -> None:
        """Set the properties of the publisher that filter functions may read."""
        publisher = self.publisher
        if publisher is not None:
            context.client_name = publisher.client_name
            context.client_version = publisher.client_version
            context.user = publisher.user
            context.connection_name = publisher.connection_name
            context.remote_address = publisher.address


class ReplicatedEnvelope(Envelope):
    """The properties of messages that another instance has recorded and sent.

    Of their publisher only the user is known, and a hash of its name, which is in their bookmarks.

    Args:
        user: the authenticated user of their publisher, empty for none.
        received_s: when they were recorded here, in seconds since 1970.
        correlation_id: the publisher's correlation id.
    """

    __slots__ = ("_user",)

    is_replicated = True

    def __init__(self, user: str, received_s: float, correlation_id: str | None = None) -> None:
        super().__init__(None, received_s, correlation_id)
        self._user = user
        if user:
            self.header_keys += b',"user_id":' + json_text(user)

    def __copy__(self) -> Self:
        """See `Envelope.__copy__`."""
        envelope = super().__copy__()
        envelope._user = self._user  # noqa: SLF001 - a copy of this one
        return envelope

    def describe_publisher(self, context: MessageContext) -> None:
        """See `Envelope.describe_publisher`."""
        context.user = self._user or None


def correlation_key(correlation_id: str | None) -> bytes:
    """Return the header key of a correlation id, as JSON text with leading comma, or nothing."""
    return b',"x":' + json_text(correlation_id) if correlation_id else b""


def iso_timestamp(seconds: float) -> str:
    """Format a time as AMPS does: 20261120T192011.518031Z."""
    whole_seconds, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_iso_second(whole_seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=64)
def _iso_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%S")
