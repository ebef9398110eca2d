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
_MARKS_A_PART: Final = 16
"""Candidates for the end of a part, on average; up to twice as many."""


@dataclass(frozen=True, slots=True)
class CountTerms:
    """The options of a count, apart from part of the log, topic and filter.

    Attributes:
        rows: the number of messages at which to end; None for any number.
        size: the number of bytes at which to end; None for any number. The last message may exceed
            it.
        parts: the number of parts, with about as many messages each, to divide the result into.
    """

    rows: int | None = None
    size: int | None = None
    parts: int = 1


class MessageSizeSink:
    """Records the sizes of the messages that a subscriber would be sent.

    Attributes:
        size: the size of the last message; None if there was none.
    """

    def __init__(self) -> None:
        self.size: int | None = None

    def take(self, topic: str, body: bytes, envelope: Envelope) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.take`."""
        self.size = len(body)

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Do nothing: the log has no records."""

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Do nothing: the log has no records."""


class ReplayCounter:
    """Counts messages, and holds the result.

    Args:
        listener: the client.
        log: the transaction log.
        subscription: the subscription to count messages for, with `sink` to take them.
        sink: see above.
        span: the part of the log.
        horizon: the last entry that may be read.
        terms: the options.

    Attributes:
        rows: the number of messages.
        size: their bytes.
        begin: the txid before the counted part.
        end: the last txid of the counted part.
        lost: the last message that has been removed behind `begin`; None for none.
        oldest: when the first was recorded, in microseconds since the Unix epoch; 0 for none.
        is_whole: whether the count has reached the end of the part, or of the log.
    """

    def __init__(
        self,
        listener: Session,
        log: TransactionLog,
        subscription: Subscription,
        sink: MessageSizeSink,
        span: LogSpan,
        horizon: int,
        terms: CountTerms,
    ) -> None:
        self.rows = self.size = self.oldest = 0
        self.begin: Final = span.after
        self.end = span.after
        self.is_whole = False
        last = horizon if span.last is None else min(span.last, horizon)
        self._span = replace(span, last=max(last, span.after), not_before=0)
        self._engine = listener.engine
        self._log = log
        self._sink = sink
        self._terms = terms
        self._topics = ReplayTopics(listener.engine)
        self._topics.attach(subscription)
        self._needs_bodies = span.before is not None or bool(span.until)
        self.lost: Final = log.journal.lost(self._topics.wants, span.after)
        self._cursor = self._read_from(span.after)
        self._marks: list[tuple[int, int]] = []
        """Samples of the messages: the number of messages up to one, and its txid."""
        self._step = 1

    def run(self) -> Iterator[None]:
        """Count in time slices; yields after each one.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        elapsed = self._engine.turns.elapsed
        deadline = elapsed() + _MAX_SECONDS
        while not self._has_enough and elapsed() < deadline:
            if self._cursor.is_finished:
                self.is_whole = True
                return
            if self._needs_bodies:
                self._read_bodies()
            else:
                self._measure()
            yield

    def parts(self) -> list[tuple[int, int]]:
        """Return the parts: the last txid of each, and its number of messages."""
        marks = self._marks
        count = max(min(self._terms.parts, -(-self.rows // _MIN_IN_PART), len(marks)), 1)
        ends = [marks[len(marks) * number // count - 1] for number in range(1, count)]
        ends.append((self.rows, self.end))
        before = [0, *(rows for rows, _ in ends)]
        return [(txid, rows - past) for (rows, txid), past in zip(ends, before, strict=False)]

    @property
    def _has_enough(self) -> bool:
        terms = self._terms
        return (terms.rows is not None and self.rows >= terms.rows) or (
            terms.size is not None and self.size >= terms.size
        )

    def _read_from(self, position: int) -> JournalCursor:
        return self._log.journal.replay(
            replace(self._span, after=position), self._wants, self._topics.kinds
        )

    def _wants(self, name: JournalTopic) -> bool:
        is_wanted = self._topics.wants(name)
        self._needs_bodies = self._needs_bodies or (is_wanted and self._topics.chooses(name))
        return is_wanted

    def _measure(self) -> None:
        measured = self._cursor.measure()
        if self._needs_bodies:  # it has met a topic with a filter or hidden fields
            self._cursor = self._read_from(self.end)
            return
        self._add(measured, self._cursor.position)

    def _read_bodies(self) -> None:
        cursor = self._cursor
        entries = cursor.read(_SLICE)
        sizes = list(map(self._size_of, entries))
        found = [
            (entry.txid, size) for entry, size in zip(entries, sizes, strict=True) if size >= 0
        ]
        txids, some = np.array(found, np.int64).reshape(-1, 2).T
        first = next(
            (one.timestamp for one, size in zip(entries, sizes, strict=True) if size >= 0), 0
        )
        self._add(EntrySizes(txids, some, first), cursor.position)

    def _size_of(self, entry: JournalEntry) -> int:
        """Return the size of a message as it would be sent; -1 if it would not."""
        self._sink.size = None
        deliveries, envelope = self._topics.deliveries(entry)
        for delivery in deliveries:
            delivery.deliver((entry.body,), envelope)
        return -1 if self._sink.size is None else self._sink.size

    def _add(self, measured: EntrySizes, position: int) -> None:
        """Count messages, up to the limits requested."""
        self.end = position
        count = len(measured)
        if not count:
            return
        self.oldest = self.oldest or measured.first_timestamp
        terms, sizes = self._terms, np.cumsum(measured.sizes)
        if terms.size is not None:
            count = min(count, int(np.searchsorted(sizes, terms.size - self.size)) + 1)
        if terms.rows is not None:
            count = min(count, terms.rows - self.rows)
        before = self.rows
        self.rows += count
        self.size += int(sizes[count - 1])
        if self._has_enough:
            self.end = int(measured.txids[count - 1])
        self._mark(measured, before, count)

    def _mark(self, measured: EntrySizes, before: int, count: int) -> None:
        """Sample every nth message, and halve the samples when there are too many."""
        if self._terms.parts == 1:
            return
        step = self._step
        for place in range(step - 1 - before % step, count, step):
            self._marks.append((before + place + 1, int(measured.txids[place])))
        while len(self._marks) > 2 * _MARKS_A_PART * self._terms.parts:
            del self._marks[::2]
            self._step *= 2
