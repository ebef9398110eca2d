"""Stores how far queues have been worked off, so that the next start need not read all of the log.

The cache is stored about once a second, when something has changed, and at the close. What it takes
into account is on stable storage before: it must not speak of what the log may lose. It is nothing
but a shorter way through the log, but for acknowledgements of messages that have not come: these
may be older than all that a queue needs of the log, and so keep the log from being removed until
they have been stored.

Where it cannot be stored, that is tried again and again, and everything else goes on.

Source: AMPS User Guide, Startup and Recovery for Queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from server.journal import JournalError
from server.journal.queue_points import QueuePoint, QueuesCache

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.topics.queues.table import Queues
    from server.topics.queues.topic import QueueTopic
    from server.topics.transaction_log import TransactionLog

_SECONDS: Final = 1.0
"""Between two looks whether something is to be stored."""


class Checkpoints:
    """Stores how far the queues of an instance have been worked off.

    Args:
        queues: the queues, recovered.
        begins: the txids before which there are no messages for them.
        log: the transaction log.
        clock: says when to look.
        events: told when it cannot be stored.
    """

    def __init__(
        self,
        queues: Queues,
        begins: Mapping[QueueTopic, int],
        log: TransactionLog,
        clock: Clock,
        events: Log,
    ) -> None:
        self._queues: Final = queues
        self._begins: Final = begins
        self._log: Final = log
        self._clock: Final = clock
        self._events: Final = events
        self._stored = 0  # the last entry that is taken into account
        self._stamp: list[tuple[int, int]] = []  # of what has been stored
        self._problem = ""  # with storing it the last time
        self._is_under_way = False  # storing it
        self._cancel: Callable[[], None]
        log.hold(self._needed_from, "state of the queues")
        cache = self._cache()
        self._done(cache, self._state(), self._store(cache))
        self._look_later()

    def close(self) -> None:
        """Look no more, and leave behind how it is now."""
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

    def _store(self, cache: QueuesCache) -> str:
        """Store a cache; what it takes into account has been. Returns why that failed."""
        try:
            self._log.journal.store_queues(cache)
        except JournalError as error:
            return str(error)
        return ""

    def _done(self, cache: QueuesCache, state: list[tuple[int, int]], problem: str) -> None:
        if not problem:
            self._stored, self._stamp = cache.txid, state
        elif not self._problem:
            self._events.emit("1D-0026", problem=problem)
        self._problem = problem
        self._is_under_way = False

    def _is_recorded(self) -> bool:
        """Whether the log has been given all that has happened; tries to make it so."""
        for queue in self._queues:
            queue.recording.write()
        return all(queue.recording.is_up_to_date for queue in self._queues)

    def _state(self) -> list[tuple[int, int]]:
        """What is the same as long as nothing has changed."""
        return [(self._start_of(queue), _early_changes(queue)) for queue in self._queues]

    def _cache(self) -> QueuesCache:
        points = [
            QueuePoint(
                queue.message_type.name,
                queue.name,
                queue.spec.recovery_point,
                self._begins[queue],
                self._start_of(queue),
                tuple(queue.core.ledger.deferred),
            )
            for queue in self._queues
        ]
        return QueuesCache(self._log.last_txid, points)

    def _start_of(self, queue: QueueTopic) -> int:
        """From where on a queue needs the log."""
        needed = queue.core.oldest_txid, queue.letters.ends_from
        return min((txid for txid in needed if txid is not None), default=self._log.last_txid + 1)

    def _needed_from(self) -> int:
        """What says of acknowledgements that they came too early has to stay until it is stored."""
        if [changes for _, changes in self._stamp] == list(map(_early_changes, self._queues)):
            return self._log.last_txid + 1
        return self._stored + 1


def _early_changes(queue: QueueTopic) -> int:
    return queue.core.ledger.deferred.changes
