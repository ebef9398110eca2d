"""Batches of messages of one publisher that were received or read from the log together.

Common properties are stored once, individual ones in columns: a single message becomes an object
only on request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from server.queues.topic.enqueue import context_of
from server.storage.journal.format.layout import CLIENT, SEQUENCE, TIMESTAMP, TXID
from server.storage.journal.write.blocks import each
from server.topics.subscriptions.delivery.logged_batch import LoggedEnvelope

if TYPE_CHECKING:
    from server.expressions.message_context import MessageContext
    from server.storage.journal import EntryBatch
    from server.topics.log_feed import RecordedBatch
    from server.topics.subscriptions.delivery.envelope import Envelope

_Value = TypeVar("_Value")

_RANGE_BITS: Final = 4
"""Low bits of a txid, which number the entries within a range of the log."""
_MESSAGE_OVERHEAD: Final = 110
_READ_MESSAGE_OVERHEAD: Final = 550
_BATCH_OVERHEAD: Final = 880
"""Memory overhead beyond the bodies, in bytes, as measured: of a message, for its objects and its
place in all columns and tables; of a message read back, much more, for its log record is kept as
well; and of a `QueueMessageBatch`."""


class QueueMessageBatch:
    """A batch of one publisher's messages in log order, with no others of the queue between them.

    Args:
        topic: the topic that they were published to.
        client: the publisher part of their bookmarks.
        txids: their txids.
        sequences: the sequence numbers in their bookmarks.
        bodies: their bodies, as recorded.
        recorded_us: the times of their recording, in microseconds since 1970.
        envelope: returns the envelope of the message at a position.
        overhead: bytes of memory per message besides its body.

    Attributes:
        keys: header keys that all of them carry, as JSON text, each with its leading comma.
        memory_bytes: approximate bytes of memory of the batch.
    """

    def __init__(
        self,
        topic: str,
        client: int,
        txids: Sequence[int],
        sequences: Sequence[int],
        bodies: Sequence[bytes],
        recorded_us: Sequence[int],
        envelope: Callable[[int], Envelope],
        overhead: int,
    ) -> None:
        self.topic = topic
        self.client = client
        self.txids = txids
        self.sequences = sequences
        self.bodies = bodies
        self.recorded_us = recorded_us
        self.envelope = envelope
        self.keys = envelope(0).header_keys
        self.memory_bytes = sum(map(len, bodies)) + overhead * len(bodies) + _BATCH_OVERHEAD
        self._first, self._last = txids[0], txids[-1]
        self._is_dense = self._last - self._first == len(txids) - 1

    def has(self, txid: int) -> bool:
        """Return True if a message is in this batch."""
        if not self._first <= txid <= self._last:
            return False
        return self._is_dense or self.txids[self._position(txid)] == txid

    def _position(self, txid: int) -> int:
        """Return the position of a message of this batch."""
        return txid - self._first if self._is_dense else bisect_left(self.txids, txid)

    def positions(self, txids: Sequence[int], start: int = 0) -> Sequence[int]:
        """Return the positions of consecutive `txids`, up to the first one not in this batch.

        Args:
            txids: the txids of messages.
            start: the index in `txids` of the first one, which is in this batch.

        Returns:
            The positions, as a range if they are adjacent.
        """
        own_txids, first = self.txids, self._position(txids[start])
        max_count = min(len(own_txids) - first, len(txids) - start)
        if max_count == 1 or list(own_txids[first : first + max_count]) == list(
            txids[start : start + max_count]
        ):
            return range(first, first + max_count)
        positions: list[int] = []
        for txid in islice(txids, start, None):
            if not self.has(txid):
                break
            positions.append(self._position(txid))
        return positions

    def log_ranges(self) -> Iterable[int]:
        """Return the ranges of the log that contain its messages; see `QueueBatchIndex`."""
        if self._is_dense:
            return range(self._first >> _RANGE_BITS, (self._last >> _RANGE_BITS) + 1)
        return {txid >> _RANGE_BITS for txid in self.txids}

    def bookmark(self, position: int) -> tuple[int, int]:
        """Return the bookmark of a message as numbers."""
        return self.client, self.sequences[position]

    def context(self, position: int) -> MessageContext:
        """Return the context of a message: the data besides its fields that filters may read."""
        bookmark = self.bookmark(position)
        return context_of(self.envelope(position), self.topic, self.bodies[position], bookmark)


class QueueBatchIndex:
    """Finds the `QueueMessageBatch` of a message.

    The log is divided into ranges of equal size, and the index maps each range to the batches that
    have messages in it. So the cost per message of a large batch is close to zero, and the lookup
    of a small batch scans few others.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[QueueMessageBatch]] = {}

    def add(self, batch: QueueMessageBatch) -> None:
        """Add a batch."""
        batches = self._batches
        for log_range in batch.log_ranges():
            if log_range in batches:
                batches[log_range].append(batch)
            else:
                batches[log_range] = [batch]

    def discard(self, batch: QueueMessageBatch) -> None:
        """Remove a batch."""
        batches = self._batches
        for log_range in batch.log_ranges():
            in_range = batches[log_range]
            if len(in_range) == 1:
                del batches[log_range]
            else:
                in_range.remove(batch)

    def find(self, txid: int) -> QueueMessageBatch | None:
        """Return the batch of a message, None if it is in none."""
        for batch in self._batches.get(txid >> _RANGE_BITS, ()):
            if batch.has(txid):
                return batch
        return None

    def txids_between(self, first: int, last: int) -> set[int]:
        """Return the indexed txids from `first` to `last`, and possibly some outside."""
        log_ranges = range(first >> _RANGE_BITS, (last >> _RANGE_BITS) + 1)
        batches = {batch for log_range in log_ranges for batch in self._batches.get(log_range, ())}
        return {txid for batch in batches for txid in batch.txids}

    def clear(self) -> None:
        """Remove all batches."""
        self._batches.clear()


class QueueBatchPart(NamedTuple):
    """Some messages of a batch.

    Attributes:
        batch: the batch.
        positions: their positions in it; see `QueueMessageBatch.positions`.
    """

    batch: QueueMessageBatch
    positions: Sequence[int]

    def select_values(self, column: Sequence[_Value]) -> Sequence[_Value]:
        """Return their values in one of the batch's columns."""
        positions = self.positions
        if isinstance(positions, range):
            return column[positions.start : positions.stop]
        return [column[position] for position in positions]


def make_recorded_batch(recorded: RecordedBatch) -> QueueMessageBatch:
    """Make the batch of messages that have just been recorded."""
    envelope, count = recorded.envelope, len(recorded.txids)
    return QueueMessageBatch(
        recorded.topic,
        recorded.client,
        recorded.txids,
        recorded.sequences,
        recorded.bodies,
        [*each(recorded.timestamps_us, count)],
        lambda _: envelope,
        _MESSAGE_OVERHEAD,
    )


def make_logged_batches(
    entries: EntryBatch, known_txids: Collection[int]
) -> Iterator[QueueMessageBatch]:
    """Make the batches of messages that were read from the log.

    Args:
        entries: the messages.
        known_txids: the txids of messages to exclude.
    """
    clients, txids = entries.column(CLIENT), entries.column(TXID)
    if (
        not entries.has_extras
        and len(set(clients)) == 1
        and not any(txid in known_txids for txid in txids)
    ):
        yield _make_logged_batch(entries, 0, len(txids))
        return
    separators = (
        range(len(txids)) if entries.has_extras else repeat(0)
    )  # extras differ between messages
    keys = zip(clients, [txid in known_txids for txid in txids], separators, strict=False)
    start = 0
    for (_, is_known, _), group in groupby(keys):
        stop = start + len(list(group))
        if not is_known:
            yield _make_logged_batch(entries, start, stop)
        start = stop


def _make_logged_batch(entries: EntryBatch, start: int, stop: int) -> QueueMessageBatch:
    rows, bodies = entries.rows[start:stop], entries.data[start:stop]
    if entries.has_extras:
        bodies = [entries.entry_at(position).body for position in range(start, stop)]
    return QueueMessageBatch(
        entries.topic.name,
        rows[0][CLIENT],
        [row[TXID] for row in rows],
        [row[SEQUENCE] for row in rows],
        bodies,
        [row[TIMESTAMP] for row in rows],
        lambda position: LoggedEnvelope(entries.entry_at(start + position)),
        _READ_MESSAGE_OVERHEAD,
    )
