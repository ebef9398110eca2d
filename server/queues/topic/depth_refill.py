"""Activates messages beyond TargetQueueDepth as soon as the depth of the queue permits.

Source: AMPS User Guide, Configuring Queues in a SOW (TargetQueueDepth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.storage.journal import MESSAGES, LogSpan

if TYPE_CHECKING:
    from server.queues.core import Queue
    from server.queues.topic.enqueue import Enqueuer
    from server.storage.journal import JournalCursor, JournalTopic
    from server.topics.transaction_log import TransactionLog


class DepthRefill:
    """Reads messages from the log up to the TargetQueueDepth of one queue.

    Args:
        core: the queue.
        enqueuer: selects the messages that enter.
        log: the log with the messages.
        is_fed_by: returns True if the messages of a topic are for the queue.
        wake: called when the log has more to read than before.
    """

    def __init__(
        self,
        core: Queue,
        enqueuer: Enqueuer,
        log: TransactionLog,
        is_fed_by: Callable[[JournalTopic], bool],
        wake: Callable[[], None],
    ) -> None:
        self._core: Final = core
        self._enqueuer: Final = enqueuer
        self._log: Final = log
        self._is_fed_by: Final = is_fed_by
        self._wake: Final = wake
        self._cursor: JournalCursor | None = None  # exists only while there are inactive messages
        self._is_waiting_for_log = False

    def refill(self, limit: int) -> bool:
        """Activate messages.

        Args:
            limit: the maximum number of messages to read.

        Returns:
            Whether there are more to activate at once.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        lifecycle = self._core.lifecycle
        if not lifecycle.inactive_count:
            self._cursor = None
        refill_count = min(lifecycle.refill_count, limit)
        if not refill_count or self._is_waiting_for_log:
            return False
        cursor = self._cursor
        if cursor is None:
            span = LogSpan(lifecycle.resume_txid - 1)
            cursor = self._cursor = self._log.journal.replay(span, self._is_fed_by, MESSAGES)
        for batch in cursor.read_entry_range(refill_count).batches():
            self._enqueuer.enqueue_entries(batch, lifecycle.enqueue_inactive)
        if lifecycle.refill_count and cursor.is_caught_up:  # the rest is not on stable storage yet
            self._is_waiting_for_log = True
            self._log.when_advanced(self._on_log_growth)
            return False
        return lifecycle.refill_count > 0

    def _on_log_growth(self) -> None:
        self._is_waiting_for_log = False
        self._wake()
