"""The message cache of a queue: recent bodies are in memory, all others are read from the log.

A queue stores txids, and the log stores messages. The newest messages are usually delivered next,
so they are cached in a `MessageCache` up to a limit. On a cache miss, the message is read from the
log together with the messages after it, because a queue that is behind is delivered in log order.

Messages that are not on stable storage yet cannot be read back, so they are kept beyond the limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.queues.topic.message_batch import (
    QueueBatchIndex,
    QueueBatchPart,
    QueueMessageBatch,
    make_logged_batches,
    make_recorded_batch,
)
from server.storage.journal import MESSAGES, LogSpan
from server.storage.journal.format.layout import TXID

if TYPE_CHECKING:
    from server.expressions.message_context import MessageContext
    from server.storage.journal import JournalTopic
    from server.storage.journal.read.cursor import JournalCursor
    from server.topics.log_feed import RecordedBatch
    from server.topics.transaction_log import TransactionLog

_MAX_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of a queue's message cache."""

_BATCH_SIZE: Final = 512
"""Entries read back per batch."""

_MAX_SKIP: Final = 4096
"""Entries: up to this distance ahead the cursor reads on, beyond it a new cursor seeks."""


class CachedMessage(NamedTuple):
    """One message in the cache.

    Attributes:
        batch: its batch.
        position: its position in the batch.
    """

    batch: QueueMessageBatch
    position: int

    @property
    def body(self) -> bytes:
        """The body, as recorded."""
        return self.batch.bodies[self.position]

    @property
    def recorded_us(self) -> int:
        """The time of its recording, in microseconds since 1970."""
        return self.batch.recorded_us[self.position]

    @property
    def bookmark(self) -> tuple[int, int]:
        """Its bookmark as numbers."""
        return self.batch.bookmark(self.position)

    @property
    def context(self) -> MessageContext:
        """Its context: the data besides its fields that filters may read."""
        return self.batch.context(self.position)


class MessageCache:
    """The message cache of one queue.

    Args:
        log: the log, which has all messages.
        is_fed_by: returns True for topics that feed the queue.
        max_bytes: maximum bytes of cached messages.

    Attributes:
        bytes_recorded: bytes of all messages that were cached when they were recorded.
        memory_bytes: bytes of the messages cached now.
    """

    def __init__(
        self,
        log: TransactionLog,
        is_fed_by: Callable[[JournalTopic], bool],
        max_bytes: int = _MAX_CACHE_BYTES,
    ) -> None:
        self._log = log
        self._is_fed_by = is_fed_by
        self._max_bytes = max_bytes
        self._index = QueueBatchIndex()
        self._batches: deque[QueueMessageBatch] = deque()  # oldest first
        self.bytes_recorded = 0
        self.memory_bytes = 0
        self._cursor: JournalCursor | None = None

    def create_reader_cache(self, max_bytes: int) -> MessageCache:
        """Return another cache of the same queue, for readers that are not consumers."""
        return MessageCache(self._log, self._is_fed_by, max_bytes)

    def find_cached(self, txid: int) -> CachedMessage | None:
        """Return a cached message, None if it would have to be read from the log."""
        batch = self._index.find(txid)
        return None if batch is None else CachedMessage(batch, batch.positions((txid,))[0])

    def cache_recorded(self, recorded: RecordedBatch) -> None:
        """Cache messages that have just been recorded."""
        batch = make_recorded_batch(recorded)
        self.bytes_recorded += batch.memory_bytes
        self._add_batch(batch)
        if self.memory_bytes > self._max_bytes:
            self._evict_to_limit()

    def evict_before(self, first: int | None) -> None:
        """Evict the oldest batches, as far as all their messages have left the queue.

        Args:
            first: the txid of the oldest message that is still needed; None if none is.
        """
        if first is None:
            self._index.clear()
            self._batches.clear()
            self.memory_bytes = 0
            return
        batches = self._batches
        while batches and batches[0].txids[-1] < first:
            self._evict_batch(batches.popleft())

    def find(self, txids: Sequence[int]) -> list[QueueBatchPart | None]:
        """Find messages by their txids, in the given order.

        Returns:
            Adjacent messages of one batch together; None for each message that is damaged in the
            log.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        parts: list[QueueBatchPart | None] = []
        start = 0
        while start < len(txids):
            batch = self._index.find(txids[start]) or self._read_from_log(txids[start])
            if batch is None:
                parts.append(None)
                start += 1
            else:
                positions = batch.positions(txids, start)
                parts.append(QueueBatchPart(batch, positions))
                start += len(positions)
        return parts

    def get(self, txids: Sequence[int]) -> list[CachedMessage | None]:
        """Return messages one by one. See `find`."""
        messages: list[CachedMessage | None] = []
        for part in self.find(txids):
            if part is None:
                messages.append(None)
            else:
                messages += [CachedMessage(part.batch, position) for position in part.positions]
        return messages

    def _add_batch(self, batch: QueueMessageBatch) -> None:
        self._index.add(batch)
        self._batches.append(batch)
        self.memory_bytes += batch.memory_bytes

    def _evict_batch(self, batch: QueueMessageBatch) -> None:
        self._index.discard(batch)
        self.memory_bytes -= batch.memory_bytes

    def _evict_to_limit(self) -> None:
        """Evict the oldest batches that can be read back, down to the limit."""
        batches, durable_txid = self._batches, self._log.durable_txid
        while (
            self.memory_bytes > self._max_bytes and batches and batches[0].txids[-1] <= durable_txid
        ):
            self._evict_batch(batches.popleft())

    def _read_from_log(self, txid: int) -> QueueMessageBatch | None:
        """Read the batch of a message from the log; return None if it is damaged there."""
        cursor = self._cursor
        if cursor is None or not txid - _MAX_SKIP <= cursor.position + 1 <= txid:
            cursor = self._log.journal.replay(LogSpan(txid - 1), self._is_fed_by, MESSAGES)
            self._cursor = cursor
        while cursor.position < txid and not cursor.is_caught_up:
            for entries in cursor.read_entry_range(_BATCH_SIZE).batches():
                known_txids = self._index.txids_between(
                    entries.rows[0][TXID], entries.rows[-1][TXID]
                )
                for logged in make_logged_batches(entries, known_txids):
                    self._add_batch(logged)
        batch = self._index.find(txid)
        if self.memory_bytes > self._max_bytes:
            self._evict_to_limit()
        return batch
