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
from typing import TYPE_CHECKING, Final, NamedTuple

from server.storage.journal import JournalError
from server.storage.journal.queue_points import QueuePoint, QueuePointTable

if TYPE_CHECKING:
    from server.queues.topic.queue_table import QueueTable
    from server.queues.topic.queue_topic import QueueTopic
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_CHECK_INTERVAL_S: Final = 1.0
"""Interval between two checks for changes to store."""


class _QueueState(NamedTuple):
    """The part of a queue's state that a checkpoint stores.

    Attributes:
        queue: the queue.
        recovery_txid: the txid from which it needs the log.
        early_changes: the number of changes of its early acknowledgements.
    """

    queue: QueueTopic
    recovery_txid: int
    early_changes: int


class QueueCheckpoints:
    """Stores checkpoints of the queues of an instance.

    Args:
        queues: the queues, recovered.
        begin_txids: for each queue, the txid before which there are no messages for it.
        log: the transaction log.
        clock: calls the checks.
        events: the server's log, for failed stores.
    """

    def __init__(
        self,
        queues: QueueTable,
        begin_txids: Mapping[QueueTopic, int],
        log: TransactionLog,
        clock: Clock,
        events: ServerLog,
    ) -> None:
        self._queues: Final = queues
        self._begin_txids: Final = dict(begin_txids)
        self._log: Final = log
        self._clock: Final = clock
        self._events: Final = events
        self._stored_txid = 0  # the last log entry that the stored cache covers
        self._stored_state: list[_QueueState] = []  # the state that has been stored
        self._problem = ""  # of the last store, empty if it succeeded
        self._is_storing = False  # a store is in progress
        self._stored_callbacks: list[Callable[[], None]] = []  # of queues added and removed
        self._cancel: Callable[[], None]
        log.hold_files(self._first_needed_txid, "state of the queues")
        cache = self._make_point_table()
        self._finish_store(cache, self._current_state(), [], self._store(cache))
        self._schedule_check()

    def add(self, begin_txids: Mapping[QueueTopic, int], on_stored: Callable[[], None]) -> None:
        """Store checkpoints of queues that have been added.

        Args:
            begin_txids: for each of them, the txid before which there are no messages for it.
            on_stored: called when their first ones are stored.
        """
        self._begin_txids.update(begin_txids)
        self._stored_callbacks.append(on_stored)
        self._store_changes()

    def remove(self, queue: QueueTopic, on_stored: Callable[[], None]) -> None:
        """Store no checkpoints of a queue that has been removed.

        Args:
            queue: the queue.
            on_stored: called when the last ones are gone.
        """
        del self._begin_txids[queue]
        self._stored_callbacks.append(on_stored)
        self._store_changes()

    def close(self) -> None:
        """Stop the checks, and leave a checkpoint of the current state."""
        self._cancel()
        if self._record_events():
            self._log.journal.store_queue_points_at_close(self._make_point_table())

    def _schedule_check(self) -> None:
        self._cancel = self._clock.call_later(_CHECK_INTERVAL_S, self._check_for_changes)

    def _check_for_changes(self) -> None:
        self._schedule_check()
        self._store_changes()

    def _store_changes(self) -> None:
        """Store the state, unless it has been stored, or a store is in progress."""
        if not self._record_events():
            return
        state = self._current_state()
        if state == self._stored_state or self._is_storing:
            return
        self._is_storing = True
        cache = self._make_point_table()
        callbacks, self._stored_callbacks = self._stored_callbacks, []
        store = partial(self._store, cache)
        done = partial(self._finish_store, cache, state, callbacks)
        self._log.when_durable(lambda: self._log.run_on_worker(store, done))

    def _store(self, cache: QueuePointTable) -> str:
        """Store a cache that covers durable entries only; return the problem, empty for none."""
        try:
            self._log.journal.store_queue_points(cache)
        except JournalError as error:
            return str(error)
        return ""

    def _finish_store(
        self,
        cache: QueuePointTable,
        state: list[_QueueState],
        callbacks: list[Callable[[], None]],
        problem: str,
    ) -> None:
        if not problem:
            self._stored_txid, self._stored_state = cache.txid, state
        elif not self._problem:
            self._events.emit("1D-0026", problem=problem)
        self._problem = problem
        self._is_storing = False
        if problem:
            self._stored_callbacks += callbacks
            return
        for callback in callbacks:
            callback()
        if self._stored_callbacks:  # the queues have changed again meanwhile
            self._store_changes()

    def _record_events(self) -> bool:
        """Append all queue events to the log; return True if it has accepted them."""
        for queue in self._queues:
            queue.queue_journal.write()
        return all(queue.queue_journal.is_up_to_date for queue in self._queues)

    def _current_state(self) -> list[_QueueState]:
        """Return a value that is equal as long as no queue has changed."""
        return [
            _QueueState(queue, self._recovery_txid(queue), _early_changes(queue))
            for queue in self._queues
        ]

    def _make_point_table(self) -> QueuePointTable:
        points = [
            QueuePoint(
                queue.message_type.name,
                queue.name,
                queue.spec.recovery_point,
                self._begin_txids[queue],
                self._recovery_txid(queue),
                tuple(queue.core.lifecycle.early_acks),
            )
            for queue in self._queues
        ]
        return QueuePointTable(self._log.last_txid, points)

    def _recovery_txid(self, queue: QueueTopic) -> int:
        """Return the txid from which a queue needs the log."""
        needed = queue.core.oldest_txid, queue.dead_letters.oldest_expiry_txid
        return min((txid for txid in needed if txid is not None), default=self._log.last_txid + 1)

    def _first_needed_txid(self) -> int:
        """Return the txid to retain the log from: early acknowledgements stay until stored."""
        if [state.early_changes for state in self._stored_state] == list(
            map(_early_changes, self._queues)
        ):
            return self._log.last_txid + 1
        return self._stored_txid + 1


def _early_changes(queue: QueueTopic) -> int:
    return queue.core.lifecycle.early_acks.change_count
