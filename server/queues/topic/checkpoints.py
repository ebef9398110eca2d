"""Checkpoints of queues: their positions in the log, so that a start need not read all of it.

The cache is stored about once a second if something has changed, and at the close. The log entries
that it covers are on stable storage before: it must not refer to entries that the log may lose. It
only shortens recovery, with one exception: acknowledgements of messages that have not arrived. They
may be older than all entries that a queue needs, and so retain the log until they have been stored.

A failed store is retried indefinitely, and everything else continues.

Source: AMPS User Guide, Startup and Recovery for Queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from server.storage.journal import JournalError
from server.storage.journal.queue_points import QueuePoint, QueuePointTable

if TYPE_CHECKING:
    from server.queues.topic.queue_table import QueueTable
    from server.queues.topic.queue_topic import QueueTopic
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_SECONDS: Final = 1.0
"""Interval between two checks for changes to store."""


class QueueCheckpoints:
    """Stores checkpoints of the queues of an instance.

    Args:
        queues: the queues, recovered.
        begins: the txids before which there are no messages for them.
        log: the transaction log.
        clock: calls the checks.
        events: the server's log, for failed stores.
    """

    def __init__(
        self,
        queues: QueueTable,
        begins: Mapping[QueueTopic, int],
        log: TransactionLog,
        clock: Clock,
        events: ServerLog,
    ) -> None:
        self._queues: Final = queues
        self._begins: Final = begins
        self._log: Final = log
        self._clock: Final = clock
        self._events: Final = events
        self._stored = 0  # the last log entry that the stored cache covers
        self._stamp: list[tuple[int, int]] = []  # the state that has been stored
        self._problem = ""  # of the last store, empty if it succeeded
        self._is_under_way = False  # a store is in progress
        self._cancel: Callable[[], None]
        log.hold(self._needed_from, "state of the queues")
        cache = self._cache()
        self._done(cache, self._state(), self._store(cache))
        self._look_later()

    def close(self) -> None:
        """Stop the checks, and leave a checkpoint of the current state."""
        self._cancel()
        if self._is_recorded():
            self._log.journal.leave_queues(self._cache())

    def _look_later(self) -> None:
        self._cancel = self._clock.call_later(_SECONDS, self._look)

    def _look(self) -> None:
        self._look_later()
        if not self._is_recorded():
            return
        state = self._state()
        if state == self._stamp or self._is_under_way:
            return
        self._is_under_way = True
        cache = self._cache()
        store, done = partial(self._store, cache), partial(self._done, cache, state)
        self._log.when_durable(lambda: self._log.do_aside(store, done))

    def _store(self, cache: QueuePointTable) -> str:
        """Store a cache that covers durable entries only; return the problem, empty for none."""
        try:
            self._log.journal.store_queues(cache)
        except JournalError as error:
            return str(error)
        return ""

    def _done(self, cache: QueuePointTable, state: list[tuple[int, int]], problem: str) -> None:
        if not problem:
            self._stored, self._stamp = cache.txid, state
        elif not self._problem:
            self._events.emit("1D-0026", problem=problem)
        self._problem = problem
        self._is_under_way = False

    def _is_recorded(self) -> bool:
        """Append all queue events to the log; return True if it has accepted them."""
        for queue in self._queues:
            queue.recording.write()
        return all(queue.recording.is_up_to_date for queue in self._queues)

    def _state(self) -> list[tuple[int, int]]:
        """Return a value that is equal as long as no queue has changed."""
        return [(self._start_of(queue), _early_changes(queue)) for queue in self._queues]

    def _cache(self) -> QueuePointTable:
        points = [
            QueuePoint(
                queue.message_type.name,
                queue.name,
                queue.spec.recovery_point,
                self._begins[queue],
                self._start_of(queue),
                tuple(queue.core.lifecycle.deferred),
            )
            for queue in self._queues
        ]
        return QueuePointTable(self._log.last_txid, points)

    def _start_of(self, queue: QueueTopic) -> int:
        """Return the txid from which a queue needs the log."""
        needed = queue.core.oldest_txid, queue.letters.ends_from
        return min((txid for txid in needed if txid is not None), default=self._log.last_txid + 1)

    def _needed_from(self) -> int:
        """Return the txid to retain the log from: early acknowledgements stay until stored."""
        if [changes for _, changes in self._stamp] == list(map(_early_changes, self._queues)):
            return self._log.last_txid + 1
        return self._stored + 1


def _early_changes(queue: QueueTopic) -> int:
    return queue.core.lifecycle.deferred.changes
