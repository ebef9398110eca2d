"""Counts the entries of a part of the log for a subscription, without sending any of them.

Records have the topic and length of each entry, and the topic indexes of full journals have the
positions of a topic. So bodies are read only where a filter has to be evaluated, the client's own
or one that limits its user, or where some fields are hidden from its user.

Counting runs in time slices. A very long count takes several requests: each ends after
some seconds, and returns the position that it has reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from server.engine.replays.logged_topics import ReplayTopics
from server.storage.journal import EntrySizes

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.journal import JournalCursor, JournalEntry, JournalTopic, LogSpan
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_MAX_SECONDS: Final = 5.0
"""Time after which a count ends, regardless of the rest of the log."""
_SLICE: Final = 64
"""Entries with bodies processed in a time slice."""
_MIN_IN_PART: Final = 1_000
"""Number of messages up to which a result is not worth dividing."""
_SAMPLES_PER_PART: Final = 16
"""Candidates for the end of a part, on average; up to twice as many."""


@dataclass(frozen=True, slots=True)
class CountTerms:
    """The options of a count, apart from part of the log, topic and filter.

    Attributes:
        max_messages: the number of messages at which to end; None for any number.
        max_bytes: the number of bytes at which to end; None for any number. The last message may
            exceed it.
        part_count: the number of parts, with about as many messages each, to divide the result
            into.
    """

    max_messages: int | None = None
    max_bytes: int | None = None
    part_count: int = 1


class MessageSizeSink:
    """Records the sizes of the messages that a subscriber would be sent.

    Attributes:
        message_size: the size of the last message; None if there was none.
    """

    def __init__(self) -> None:
        self.message_size: int | None = None

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_message`."""
        self.message_size = len(body)

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Do nothing: the log has no records."""

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Do nothing: the log has no records."""


class ReplayCounter:
    """Counts messages, and holds the result.

    Args:
        session: the client.
        log: the transaction log.
        subscription: the subscription to count messages for, with `sink` to take them.
        sink: takes the messages of the subscription.
        span: the part of the log.
        horizon: the last entry that may be read.
        terms: the options.

    Attributes:
        message_count: the number of messages.
        byte_count: their bytes.
        begin_txid: the txid before the counted part.
        end_txid: the last txid of the counted part.
        last_removed: the last message that has been removed behind `begin_txid`; None for none.
        oldest_us: when the first was recorded, in microseconds since the Unix epoch; 0 for none.
        is_complete: whether the count has reached the end of the part, or of the log.
    """

    def __init__(
        self,
        session: Session,
        log: TransactionLog,
        subscription: Subscription,
        sink: MessageSizeSink,
        span: LogSpan,
        horizon: int,
        terms: CountTerms,
    ) -> None:
        self.message_count = self.byte_count = self.oldest_us = 0
        self.begin_txid: Final = span.after_txid
        self.end_txid = span.after_txid
        self.is_complete = False
        last_txid = horizon if span.last_txid is None else min(span.last_txid, horizon)
        self._span = replace(span, last_txid=max(last_txid, span.after_txid), begin_timestamp=0)
        self._engine = session.engine
        self._log = log
        self._sink = sink
        self._terms = terms
        self._topics = ReplayTopics(session.engine)
        self._topics.attach(subscription)
        self._needs_bodies = span.end_timestamp is not None or bool(span.end_entries)
        self.last_removed: Final = log.journal.find_last_removal(
            self._topics.wants_topic, span.after_txid
        )
        self._cursor = self._read_from(span.after_txid)
        self._samples: list[tuple[int, int]] = []
        """Samples of the messages: the number of messages up to one, and its txid."""
        self._sampling_interval = 1

    def run(self) -> Iterator[None]:
        """Count in time slices; yields after each one.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        elapsed = self._engine.scheduler.elapsed
        deadline = elapsed() + _MAX_SECONDS
        while not self._is_limit_reached and elapsed() < deadline:
            if self._cursor.is_finished:
                self.is_complete = True
                return
            if self._needs_bodies:
                self._read_bodies()
            else:
                self._read_sizes()
            yield

    def divide_into_parts(self) -> list[tuple[int, int]]:
        """Return the parts: the last txid of each, and its number of messages."""
        samples = self._samples
        count = max(
            min(self._terms.part_count, -(-self.message_count // _MIN_IN_PART), len(samples)), 1
        )
        ends = [samples[len(samples) * number // count - 1] for number in range(1, count)]
        ends.append((self.message_count, self.end_txid))
        starts = [0, *(rows for rows, _ in ends)]
        return [(txid, rows - start) for (rows, txid), start in zip(ends, starts, strict=False)]

    @property
    def _is_limit_reached(self) -> bool:
        terms = self._terms
        return (terms.max_messages is not None and self.message_count >= terms.max_messages) or (
            terms.max_bytes is not None and self.byte_count >= terms.max_bytes
        )

    def _read_from(self, position: int) -> JournalCursor:
        return self._log.journal.replay(
            replace(self._span, after_txid=position), self._wants_topic, self._topics.entry_kinds
        )

    def _wants_topic(self, name: JournalTopic) -> bool:
        is_wanted = self._topics.wants_topic(name)
        self._needs_bodies = self._needs_bodies or (
            is_wanted and self._topics.selects_messages(name)
        )
        return is_wanted

    def _read_sizes(self) -> None:
        entry_sizes = self._cursor.read_sizes()
        if self._needs_bodies:  # it has met a topic with a filter or hidden fields
            self._cursor = self._read_from(self.end_txid)
            return
        self._add_sizes(entry_sizes, self._cursor.position)

    def _read_bodies(self) -> None:
        cursor = self._cursor
        entries = cursor.read(_SLICE)
        sizes = list(map(self._measure_entry, entries))
        counted = [
            (entry.txid, size) for entry, size in zip(entries, sizes, strict=True) if size >= 0
        ]
        txids, counted_sizes = np.array(counted, np.int64).reshape(-1, 2).T
        first_timestamp = next(
            (one.timestamp for one, size in zip(entries, sizes, strict=True) if size >= 0), 0
        )
        self._add_sizes(EntrySizes(txids, counted_sizes, first_timestamp), cursor.position)

    def _measure_entry(self, entry: JournalEntry) -> int:
        """Return the size of a message as it would be sent; -1 if it would not."""
        self._sink.message_size = None
        deliveries, envelope = self._topics.deliveries(entry)
        for delivery in deliveries:
            delivery.deliver((entry.body,), envelope)
        return -1 if self._sink.message_size is None else self._sink.message_size

    def _add_sizes(self, entry_sizes: EntrySizes, position: int) -> None:
        """Count messages, up to the limits requested."""
        self.end_txid = position
        count = len(entry_sizes)
        if not count:
            return
        self.oldest_us = self.oldest_us or entry_sizes.first_timestamp
        terms, sizes = self._terms, np.cumsum(entry_sizes.sizes)
        if terms.max_bytes is not None:
            count = min(count, int(np.searchsorted(sizes, terms.max_bytes - self.byte_count)) + 1)
        if terms.max_messages is not None:
            count = min(count, terms.max_messages - self.message_count)
        previous_count = self.message_count
        self.message_count += count
        self.byte_count += int(sizes[count - 1])
        if self._is_limit_reached:
            self.end_txid = int(entry_sizes.txids[count - 1])
        self._add_samples(entry_sizes, previous_count, count)

    def _add_samples(self, entry_sizes: EntrySizes, previous_count: int, count: int) -> None:
        """Sample every nth message, and halve the samples when there are too many."""
        if self._terms.part_count == 1:
            return
        sampling_interval = self._sampling_interval
        for offset in range(
            sampling_interval - 1 - previous_count % sampling_interval, count, sampling_interval
        ):
            self._samples.append((previous_count + offset + 1, int(entry_sizes.txids[offset])))
        while len(self._samples) > 2 * _SAMPLES_PER_PART * self._terms.part_count:
            del self._samples[::2]
            self._sampling_interval *= 2
