"""How much there is in a part of the log for a subscription, without sending any of it.

Records say of each entry its topic and how long it is, and the topic indexes of full journals where
a topic is. So bodies are read only where a filter has to be asked, the client's own or one that its
user is limited by, or where some fields are hidden from its user.

It is done in slices. What takes very long is told in parts: a count ends after some seconds, and
says how far it has got.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from server.journal import Measured
from server.replays.logged_topics import LoggedTopics

if TYPE_CHECKING:
    from server.journal import Cursor, Entry, Span
    from server.journal import Topic as TopicName
    from server.replays.listener import Listener
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.record_delivery import RecordMessage
    from server.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_LONGEST_SECONDS: Final = 5.0
"""After which a count ends, however much of the log is left."""
_SLICE: Final = 64
"""Entries with bodies that are looked at before others get a turn."""
_LEAST_IN_PART: Final = 1_000
"""Messages that are not worth being divided."""
_MARKS_A_PART: Final = 16
"""From how many places the end of a part is chosen, on average, or twice as many."""


@dataclass(frozen=True, slots=True)
class CountTerms:
    """What a count asks for beside the part of the log, topic and filter.

    Attributes:
        rows: at how many messages to end; None for any number.
        size: after how many bytes to end; None for any number. The last message may go beyond.
        parts: into how many parts of about as many messages to divide what there is.
    """

    rows: int | None = None
    size: int | None = None
    parts: int = 1


class CountedSink:
    """Takes note of what a subscriber would be sent.

    Attributes:
        size: how long the message is that has been taken last; None if there was none.
    """

    def __init__(self) -> None:
        self.size: int | None = None

    def take(self, topic: str, body: bytes, envelope: Envelope) -> None:  # noqa: ARG002 - see `Sink`
        """See `Sink.take`."""
        self.size = len(body)

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """The log has no records."""

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """The log has no records."""


class Count:
    """Counts, and knows what it has come to.

    Args:
        listener: for whom.
        log: the transaction log.
        subscription: whose messages are counted, with `sink` to take them.
        sink: see above.
        span: which part of the log.
        horizon: up to which entry it may be read.
        terms: what was asked for.

    Attributes:
        rows: how many messages there are.
        size: their bytes.
        begin: the txid behind which they are.
        end: the txid up to which they are.
        lost: the last message that has been removed behind `begin`; None for none.
        oldest: when the first was recorded, in microseconds since the Unix epoch; 0 for none.
        is_whole: whether it has got to the end of the part, or of the log.
    """

    def __init__(
        self,
        listener: Listener,
        log: TransactionLog,
        subscription: Subscription,
        sink: CountedSink,
        span: Span,
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
        self._topics = LoggedTopics(listener.engine)
        self._topics.attach(subscription)
        self._needs_bodies = span.before is not None or bool(span.until)
        self.lost: Final = log.journal.lost(self._topics.wants, span.after)
        self._cursor = self._read_from(span.after)
        self._marks: list[tuple[int, int]] = []
        """Some of the messages: how many there are up to one, and its txid."""
        self._step = 1

    def run(self) -> Iterator[None]:
        """Count; yields after each slice.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
        """
        elapsed = self._engine.turns.elapsed
        deadline = elapsed() + _LONGEST_SECONDS
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
        """The parts: the txid up to which each goes, and how many messages it has."""
        marks = self._marks
        count = max(min(self._terms.parts, -(-self.rows // _LEAST_IN_PART), len(marks)), 1)
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

    def _read_from(self, position: int) -> Cursor:
        return self._log.journal.replay(
            replace(self._span, after=position), self._wants, self._topics.kinds
        )

    def _wants(self, name: TopicName) -> bool:
        is_wanted = self._topics.wants(name)
        self._needs_bodies = self._needs_bodies or (is_wanted and self._topics.chooses(name))
        return is_wanted

    def _measure(self) -> None:
        measured = self._cursor.measure()
        if self._needs_bodies:  # there has been a topic of which not everything is sent as it is
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
        self._add(Measured(txids, some, first), cursor.position)

    def _size_of(self, entry: Entry) -> int:
        """How long a message is, as it would be sent; -1 if it would not."""
        self._sink.size = None
        deliveries, envelope = self._topics.deliveries(entry)
        for delivery in deliveries:
            delivery.deliver((entry.body,), envelope)
        return -1 if self._sink.size is None else self._sink.size

    def _add(self, measured: Measured, position: int) -> None:
        """Take note of messages, as far as they are asked for."""
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

    def _mark(self, measured: Measured, before: int, count: int) -> None:
        """Remember every so many messages, each time fewer when there are too many."""
        if self._terms.parts == 1:
            return
        step = self._step
        for place in range(step - 1 - before % step, count, step):
            self._marks.append((before + place + 1, int(measured.txids[place])))
        while len(self._marks) > 2 * _MARKS_A_PART * self._terms.parts:
            del self._marks[::2]
            self._step *= 2
