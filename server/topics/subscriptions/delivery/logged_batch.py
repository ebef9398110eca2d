"""Messages of the log, in the form that matching, framing and conflation use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self

from amperage.wire.header import json_text
from server.expressions.message_context import MessageContext
from server.storage.journal.format.entry import NO_ORIGIN
from server.storage.journal.format.layout import decode_text
from server.topics.subscriptions.delivery.envelope import Envelope, correlation_key
from server.topics.subscriptions.delivery.logged_frames import frames
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.storage.journal import JournalEntry, JournalOrigin, RawEntryBatch, RawEntryRange
    from server.topics.subscriptions.delivery.delivery import DirectDelivery


class LoggedEnvelope(Envelope):
    """The properties of a log entry's message, apart from the body.

    Args:
        entry: the entry.
    """

    __slots__ = ("_entry", "_optional_keys", "_optional_keys_request")

    def __init__(
        self, entry: JournalEntry
    ) -> None:  # no super().__init__(): one is made per message
        self._entry = entry
        self._optional_keys = b""
        self._optional_keys_request = (False, False, False)
        self.publisher = None
        self.received_s = entry.timestamp / MICROSECONDS_PER_SECOND
        self.correlation_id = self.sow_key = self.expiration = None
        self.is_delta = False
        self.sequence = entry.sequence
        self.numbers = ()
        self.bookmark = f"{entry.client}|{entry.sequence}|"
        self.header_keys = _origin_key(entry.origin)
        if entry.correlation_id:
            self.correlation_id = decode_text(entry.correlation_id)
            self.header_keys = correlation_key(self.correlation_id) + self.header_keys

    def optional_keys(self, *, timestamp: bool, bookmark: bool, record: bool) -> bytes:
        """See `Envelope.optional_keys`. Cached, as most subscribers get the same keys."""
        request = timestamp, bookmark, record
        if request != self._optional_keys_request:
            entry = self._entry
            keys = self.bookmark_key if bookmark else b""
            if timestamp:
                keys += self.timestamp_key
            if record and (entry.sow_key or entry.given_key):
                keys += self.record_key
            self._optional_keys_request, self._optional_keys = request, keys
        return self._optional_keys

    def __copy__(self) -> Self:
        """See `Envelope.__copy__`; properties that an entry does not have are not set."""
        envelope = type(self)(self._entry)
        envelope.received_s, envelope.bookmark = self.received_s, self.bookmark
        envelope.header_keys = self.header_keys
        return envelope

    @property
    def record_sow_key(self) -> str | None:
        """See `Envelope.record_sow_key`."""
        entry = self._entry
        if entry.given_key:
            return decode_text(entry.given_key)
        return str(entry.sow_key) if entry.sow_key else None

    def context(self, topic: str, body: bytes) -> MessageContext:
        """Return the properties of a message of the log that filter functions may read."""
        entry = self._entry
        context = MessageContext()
        context.topic_name = topic
        context.message_size = len(body)
        context.correlation_id = self.correlation_id
        context.bookmark = self.bookmark
        context.last_updated = self.received_s
        context.user = entry.origin.auth_id or None
        context.sow_key = self.record_sow_key
        if context.sow_key is not None:
            context.sow_key_hash = entry.sow_key or None
        return context


class LoggedHeader(NamedTuple):
    """The header of messages of the log that have the same topic and origin.

    Attributes:
        left: up to the length of the body.
        keys: the keys that all of them have, as JSON text, each with its leading comma.
        right: its end, behind the optional keys.
        bookmark: whether it has the bookmark.
        timestamp: whether it has the time at which the message was recorded.
        sow_key: whether it has the SOW key, for messages that have one.
    """

    left: bytes
    keys: bytes
    right: bytes
    bookmark: bool
    timestamp: bool
    sow_key: bool


def logged_header(delivery: DirectDelivery, origin: JournalOrigin) -> LoggedHeader:
    """Return the header of a delivery's messages of one origin."""
    presentation = delivery.presentation
    return LoggedHeader(
        delivery.header_start,
        _origin_key(origin),
        delivery.header_end,
        presentation.has_bookmark,
        presentation.has_timestamp,
        presentation.has_sow_key,
    )


def logged_frames(entries: RawEntryRange, headers: dict[int, LoggedHeader]) -> tuple[bytes, int]:
    """Frame the entries whose kind has a header, none of which has extras.

    Args:
        entries: the entries, of any topics.
        headers: the headers, by kind; see `RawEntryRange.kinds`.

    Returns:
        The frames, concatenated, and their number.
    """
    return frames(entries.records, entries.bodies, None, headers)


class LoggedBatch:
    """Consecutive messages of one user to one topic; see `MessageBatch`.

    Args:
        entries: their entries, which have no extras.
    """

    __slots__ = ("_bodies", "_entries")

    def __init__(self, entries: RawEntryBatch) -> None:
        self._entries = entries
        self._bodies: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bodies(self) -> Sequence[bytes]:
        """See `MessageBatch`."""
        if self._bodies is None:
            self._bodies = self._entries.split_bodies()
        return self._bodies

    def frames(
        self,
        header_start: bytes,
        header_end: bytes,
        presented: Sequence[bytes] | None,
        *,
        timestamp: bool,
        bookmark: bool,
        record: bool,
    ) -> bytes:
        """See `MessageBatch`. The order of the keys is that of `LoggedEnvelope`."""
        entries = self._entries
        header = LoggedHeader(
            header_start, _origin_key(entries.origin), header_end, bookmark, timestamp, record
        )
        data, _ = frames(entries.records, entries.bodies, presented, {entries.kind: header})
        return data

    def envelope(self, position: int) -> LoggedEnvelope:
        """See `MessageBatch`."""
        return LoggedEnvelope(self._entries.entry_at(position))

    def pick(self, positions: Sequence[int]) -> LoggedBatch:
        """Return some of the messages."""
        return LoggedBatch(self._entries.pick(positions))


def _origin_key(origin: JournalOrigin) -> bytes:
    return b"" if origin is NO_ORIGIN else _user_key(origin.auth_id)


@lru_cache(maxsize=1024)
def _user_key(user: str) -> bytes:
    return b',"user_id":' + json_text(user) if user else b""
