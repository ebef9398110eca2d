"""Converts messages of one topic to entries of the transaction log.

This module adds the parts of an entry that a message does not have: the topic's handle, the time of
recording, the bookmark of a message that its publisher does not number, and the SOW key in the form
that entries keep. It also notifies the feeds that follow the recorded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import lt
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from server.storage.journal import (
    MESSAGES,
    AppendResult,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
    JournalUnavailableError,
)
from server.storage.journal.format.entry import NO_ORIGIN
from server.storage.journal.format.layout import encode_text, pack_extras
from server.storage.journal.write.blocks import map_column, of_one
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND
from server.topics.log_feed import RecordedBatch
from server.topics.transaction_log import MAX_SEQUENCE
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.storage.journal import (
        AppendResult,
        EntryColumns,
        FieldColumn,
        Handles,
        OriginHandle,
        TopicHandle,
    )
    from server.topics.log_feed import LogFeed
    from server.topics.replicated.batch import EntryContents, ReplicatedBatch
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.transaction_log import TransactionLog

_MAX_SECONDS: Final = (1 << 32) - 1


class RecordedForm(NamedTuple):
    """The recorded form of messages that are recorded together.

    Attributes:
        data: the bodies, with extras.
        extras_length: bytes of extras behind each body.
        expirations: lifetimes in seconds, 0 for no limit.
        kinds: the kinds of the entries.
        sow_keys: the SOW keys of their records as numbers, 0 for none; empty if there are none.
    """

    data: Sequence[bytes]
    extras_length: FieldColumn
    expirations: FieldColumn
    kinds: FieldColumn
    sow_keys: Sequence[int]


def encode_messages(
    bodies: Sequence[bytes],
    envelope: Envelope,
    expirations: FieldColumn,
    kinds: FieldColumn = JournalEntryKind.PUBLISH,
    sow_keys: Sequence[int | str] = (),
) -> RecordedForm:
    """Return messages in the form in which they are recorded.

    Args:
        bodies: the bodies to record.
        envelope: the publisher's metadata of the messages.
        expirations: lifetimes in seconds, 0 for no limit.
        kinds: the kinds of the entries.
        sow_keys: their SOW keys, "" or 0 for none; empty if there are none.
    """
    seconds = map_column(expirations, lambda one: min(max(one, 0), _MAX_SECONDS))
    numbers, given_keys = cast("Sequence[int]", sow_keys), list[bytes]()
    if str in {*map(type, sow_keys)}:
        parts = [(key, b"") if isinstance(key, int) else split_key(key) for key in sow_keys]
        numbers, given_keys = [number for number, _ in parts], [given for _, given in parts]
    if not (envelope.correlation_ids or given_keys):
        return RecordedForm(bodies, 0, seconds, kinds, numbers)
    correlation_ids = envelope.correlation_ids or [""] * len(bodies)
    extras = [
        pack_extras(encode_text(correlation_id), given) if correlation_id or given else b""
        for correlation_id, given in zip(
            correlation_ids, given_keys or [b""] * len(bodies), strict=True
        )
    ]
    data = [body + own for body, own in zip(bodies, extras, strict=True)]
    return RecordedForm(data, [*map(len, extras)], seconds, kinds, numbers)


class TopicJournal:
    """Records the messages published to one topic.

    Args:
        log: the transaction log.
        message_type: the topic's message type.
        name: its name.
        feeds: notified of recorded messages, in the order of the log.

    Attributes:
        log: see above.
        topic: the topic, as entries name it.
        feeds: see above.
    """

    def __init__(
        self, log: TransactionLog, message_type: str, name: str, feeds: Sequence[LogFeed] = ()
    ) -> None:
        self.log = log
        self.feeds = feeds
        self._message_type = message_type
        self._name = name
        self.topic = JournalTopic(message_type, name)
        self._handle: TopicHandle | None = None

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call back when everything published so far is settled; see `TransactionLog`."""
        self.log.when_settled(then, self.topic)

    def refuse_duplicate_message(self, envelope: Envelope) -> None:
        """Refuse a message that its publisher has published before.

        Raises:
            DuplicateError: its sequence number is too low.
            RefusedSequenceError: its sequence number is too low, and the message was refused then.
            JournalUnavailableError: the number is not a valid sequence number.
        """
        if envelope.sequence and envelope.publisher is not None:
            self.log.refuse_duplicate(envelope.publisher.client_hash, envelope.sequence)

    def record_refusal(self, envelope: Envelope, position: int) -> None:
        """Note that one of some messages is refused; later ones may be recorded."""
        numbers, publisher = envelope.sequences, envelope.publisher
        sequence = numbers[position] if numbers else envelope.sequence
        if sequence and publisher is not None:
            self.log.refused_sequences.record_refusal(publisher.client_hash, sequence)

    def append_messages(
        self,
        envelope: Envelope,
        entries: RecordedForm,
        start: int,
    ) -> AppendResult:
        """Record messages that need nothing but the envelope's metadata of each; see `append`.

        Args:
            envelope: the publisher's metadata of the messages; the numbers are ascending and new.
                With feeds, messages have neither correlation ids nor lifetimes of their own.
            entries: the messages as they are recorded.
            start: the position of the first one to record.

        Returns:
            The messages appended and where they end. All have one timestamp, also set in the
            envelope.
        """
        handles = {0: self.publish_handles(envelope)}
        appended = append_publishes(self.log, handles, 0, envelope, entries, start)
        if self.feeds and appended.txids:
            self.notify_feeds(
                RecordedBatch(
                    self._name,
                    list(entries.data[start : appended.end]),
                    envelope,
                    appended.txids,
                    appended.timestamp,
                    *self.bookmark_parts(envelope, start, appended.txids),
                    entries.sow_keys[start : appended.end],
                    of_one(entries.expirations, start),
                )
            )
        return appended

    def publish_handles(self, envelope: Envelope) -> tuple[TopicHandle, OriginHandle | None]:
        """Return the handles that the journal needs for messages published here."""
        journal, publisher = self.log.journal, envelope.publisher
        if self._handle is None:
            self._handle = journal.topic_handle(self._message_type, self._name)
        user = "" if publisher is None else publisher.user
        return self._handle, journal.origin_handle(user) if user else None

    def journal_handles(self, origin: JournalOrigin) -> tuple[TopicHandle, OriginHandle]:
        """Return the handles that the journal needs for messages of other instances."""
        journal = self.log.journal
        if self._handle is None:
            self._handle = journal.topic_handle(self._message_type, self._name)
        return self._handle, journal.origin_handle(origin.auth_id, origin.path)

    def append_copies(self, arrivals: ReplicatedBatch, content: EntryColumns) -> AppendResult:
        """Record entries of another instance; return the outcome, and note it in `arrivals`, too.

        Args:
            arrivals: the entries received.
            content: the data to record, from the position of `arrivals` on.
        """
        handles = {arrivals.columns.property_indexes[0]: self.journal_handles(arrivals.origin)}
        appended = self.log.journal.append_copies(handles, content)
        start = arrivals.position
        arrivals.record_appended(appended)
        refused_sequences = self.log.refused_sequences
        if appended.txids and refused_sequences.has_any:
            for index in range(start, start + len(appended.txids)):
                refused_sequences.record_arrivals(
                    arrivals.columns.clients[index], (arrivals.columns.sequences[index],)
                )
        if self.feeds and appended.txids and arrivals.kind in MESSAGES:
            self.feed_replicated(arrivals, start, appended, content.sow_keys)
        return appended

    def feed_replicated(
        self, entries: EntryContents, start: int, appended: AppendResult, sow_keys: FieldColumn
    ) -> None:
        """Notify the feeds of recorded messages of another instance.

        Args:
            entries: the entries received.
            start: the position of the first of them; the others follow.
            appended: the outcome of appending them.
            sow_keys: the SOW keys of their records, from that position on.
        """
        columns = entries.columns
        for first, end in entries.uniform_ranges(start, start + len(appended.txids)):
            here = slice(first - start, end - start)
            self.notify_feeds(
                RecordedBatch(
                    self._name,
                    entries.bodies[first:end],
                    entries.envelope(first, appended.timestamp),
                    appended.txids[here],
                    appended.timestamp,
                    columns.clients[first],
                    columns.sequences[first:end],
                    _keys(sow_keys, here),
                    columns.expirations[first],
                    columns.properties_of(first).origin.path,
                )
            )

    def report_double_publish(
        self, bookmarks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """See `LogFeed.report_double_publish`."""
        for feed in self.feeds:
            feed.report_double_publish(bookmarks, publishers)

    def notify_feeds(self, recorded: RecordedBatch) -> None:
        """Notify the feeds of recorded messages."""
        for feed in self.feeds:
            feed.receive_batch(recorded)

    def _publisher_identity(self, envelope: Envelope, *, is_numbered: bool) -> int:
        """Return the publisher's identity in bookmarks of messages that it numbers, or does not."""
        client = 0 if envelope.publisher is None else envelope.publisher.client_hash
        return client if is_numbered else self.log.generated_identity(client)

    def bookmark(self, envelope: Envelope, txid: int) -> str:
        """Return the bookmark of a recorded message, with the envelope's number if any."""
        identity = self._publisher_identity(envelope, is_numbered=envelope.sequence > 0)
        return f"{identity}|{envelope.sequence or txid}|"

    def bookmark_parts(
        self, envelope: Envelope, start: int, txids: Sequence[int]
    ) -> tuple[int, Sequence[int]]:
        """Return the parts of the bookmarks of messages that have been recorded together.

        Args:
            envelope: the publisher's metadata of the messages.
            start: the position of the first message.
            txids: the txids of the messages.

        Returns:
            The publisher's identity, and the number of each message.
        """
        numbers = envelope.sequences[start : start + len(txids)]
        return self._publisher_identity(envelope, is_numbered=bool(numbers)), numbers or txids

    def is_batchable(self, envelope: Envelope) -> bool:
        """Return whether messages are new and in order, so that they can be recorded together."""
        numbers, publisher = envelope.sequences, envelope.publisher
        return not numbers or (
            publisher is not None
            and numbers[0] > self.log.journal.last_sequence(publisher.client_hash)
            and (isinstance(numbers, range) or all(map(lt, numbers, islice(numbers, 1, None))))
        )

    def append(
        self,
        envelope: Envelope,
        body: bytes,
        kind: JournalEntryKind = JournalEntryKind.PUBLISH,
        key: str | None = None,
        expiration: int = 0,
        correlation_id: str | None = None,
    ) -> tuple[int, int]:
        """Record a message, or a deletion.

        Args:
            envelope: the publisher's metadata of the message.
            body: the data to record.
            kind: the kind of entry.
            key: the SOW key of its record.
            expiration: its lifetime in seconds, 0 for no limit.
            correlation_id: that of its record, which a delta may have from the previous state;
                None for that of the message itself.

        Returns:
            The entry's txid, and its timestamp in nanoseconds since 1970. The timestamp and the
            entry's bookmark are also set in the envelope.

        Raises:
            JournalUnavailableError: it cannot be recorded; nothing has changed.
        """
        publisher, journal = envelope.publisher, self.log.journal
        publish_tracker = self.log.publish_tracker
        topic, origin = self.publish_handles(envelope)
        number, given = split_key(key)
        text = envelope.correlation_id if correlation_id is None else correlation_id
        encoded_id = encode_text(text) if text else b""
        client = 0 if publisher is None else publisher.client_hash
        refused_sequences = self.log.refused_sequences
        is_watched = envelope.sequence > 0 and refused_sequences.has_any
        if is_watched:
            refused_sequences.record_gaps_below(client, envelope.sequence)
        before = 0 if publish_tracker is None else journal.last_sequence(client)
        txid = journal.append(
            topic,
            client,
            envelope.sequence,
            body,
            kind,
            number,
            min(max(expiration, 0), _MAX_SECONDS),
            origin,
            encoded_id,
            given,
        )
        if is_watched:
            refused_sequences.record_arrivals(client, (envelope.sequence,))
        if publish_tracker is not None:
            extras = pack_extras(encoded_id, given) if encoded_id or given else b""
            publish_tracker.register_entry(
                client,
                before,
                envelope.sequence,
                body + extras,
                txid,
                topic.topic,
                _origin_of(envelope),
            )
        timestamp_us = journal.last_timestamp
        envelope.received_s = timestamp_us / MICROSECONDS_PER_SECOND
        envelope.bookmark = self.bookmark(envelope, txid)
        if self.feeds and kind in MESSAGES:
            self.notify_feeds(
                RecordedBatch(
                    self._name,
                    (body,),
                    envelope,
                    (txid,),
                    timestamp_us,
                    self._publisher_identity(envelope, is_numbered=envelope.sequence > 0),
                    (envelope.sequence or txid,),
                    (number,) if number else (),
                    expiration,
                )
            )
        return txid, timestamp_us * NANOSECONDS_IN_MICROSECOND


def append_publishes(
    log: TransactionLog,
    handles: Handles,
    handle_keys: FieldColumn,
    envelope: Envelope,
    entries: RecordedForm,
    start: int,
) -> AppendResult:
    """Record messages of one publisher, to any topics; see `TopicJournal.append_messages`.

    Args:
        log: the transaction log.
        handles: the handles of the topics; see `TopicJournal.publish_handles`.
        handle_keys: the keys of the messages' topics in `handles`.
        envelope: the publisher's metadata of the messages.
        entries: the messages as they are recorded.
        start: the position of the first one to record.
    """
    publisher, numbers = envelope.publisher, envelope.sequences
    journal, publish_tracker = log.journal, log.publish_tracker
    client = 0 if publisher is None else publisher.client_hash
    refused_sequences = log.refused_sequences
    if numbers and refused_sequences.has_any:
        try:
            refused_sequences.record_gaps_below(client, numbers[-1])
        except JournalUnavailableError as problem:
            return AppendResult(start, (), journal.last_timestamp, problem)
    before = 0 if publish_tracker is None else journal.last_sequence(client)
    done = journal.append_batch(
        handles,
        handle_keys,
        client,
        numbers,
        entries.data,
        start,
        entries.sow_keys,
        entries.expirations,
        entries.extras_length,
        entries.kinds,
    )
    envelope.received_s = done.timestamp / MICROSECONDS_PER_SECOND
    if numbers and refused_sequences.has_any:
        refused_sequences.record_arrivals(client, numbers[start : done.end])
    if publish_tracker is not None and done.txids:
        origin = _origin_of(envelope)
        for first, end, key in uniform_ranges(handle_keys, start, done.end):
            here = slice(first - start, end - start)
            publish_tracker.register_batch(
                client,
                before,
                numbers[first:end],
                done.checksums[here],
                done.txids[here],
                handles[key][0].topic,
                origin,
            )
            if numbers:
                before = numbers[end - 1]
    return done


def uniform_ranges(column: FieldColumn, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of rows with one value in a column: begin, end, value."""
    if isinstance(column, int):
        yield start, end, column
        return
    for value, rows in groupby(range(start, end), column.__getitem__):
        positions = [*rows]
        yield positions[0], positions[-1] + 1, value


def _keys(sow_keys: FieldColumn, part: slice) -> Sequence[int]:
    """Return the SOW keys of consecutive messages; empty if the first has none."""
    keys = [sow_keys] * (part.stop - part.start) if isinstance(sow_keys, int) else sow_keys[part]
    return keys if keys[0] else ()


def _origin_of(envelope: Envelope) -> JournalOrigin:
    """Return the origin that a journal records for a client's messages."""
    publisher = envelope.publisher
    return JournalOrigin(publisher.user) if publisher is not None and publisher.user else NO_ORIGIN


def split_key(key: str | None) -> tuple[int, bytes]:
    """Return a SOW key as an entry stores it: as a number if it is one, else as text."""
    if key is None:
        return 0, b""
    if key.isascii() and key.isdigit() and key[0] != "0" and int(key) <= MAX_SEQUENCE:
        return int(key), b""
    return 0, encode_text(key)
