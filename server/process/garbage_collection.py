"""Garbage collection in a process that keeps millions of records and must not pause.

Objects are freed with the last reference to them, and nearly all of ours are: objects made by a
command or a subscription are in no reference cycle, or are taken out of it at their end. Python's
collector is for the others. It traverses all containers, and everything else has to wait: 75 ms for
the dictionaries of a SOW topic with 1,000,000 records, at any moment, to find nothing
(`benchmarks/sow.py` measures that, and the pause that remains).

    new --5,000--> young --twice--> middle --twice--> old --if it takes long--> set aside

So the objects that exist at the end of the start are *set aside* (`gc.freeze`), and never traversed
again. A dictionary stays set aside while it grows, and the values that topics add later (texts,
numbers and tuples of these) are not traversed by the collector. Newer objects are traversed three
times. If that takes long, because a client has made ten thousand subscriptions or a hundred
thousand groups, or because an index was made, which is few containers with much in each, then the
survivors are set aside, too: none of them is traversed a fourth time, and no traversal exceeds the
objects made since the last one. If much was garbage, such as closed connections, the time was spent
on freeing, and nothing is set aside. The collector counts allocations minus frees, so new objects
could pile up while many others are freed, and then be traversed all at once; therefore a collection
also runs several times a second, while there is work.

Objects set aside are freed with their last reference like all others, but cycles of them are not.
A connection is such a cycle, of some kilobytes, if it existed when objects were set aside. When
some of these have closed, a full collection runs once, while no client sends requests; or at any
moment, when very many have. Connections opened and closed since then do not count: otherwise some
thousand a second would cause a full collection of 70 ms every few seconds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.util.clock import Clock

_THRESHOLDS: Final = (5_000, 1, 1)
"""New containers before the youngest are traversed, which then takes less than 1 ms; and the number
of such traversals before the next older generation is traversed as well."""

_LONG_TRAVERSAL_S: Final = 0.001
"""Duration of a traversal of old containers from which on they are set aside."""

_FEW_FREED: Final = 1_000
"""Objects freed by a long traversal up to which its time is attributed to the survivors."""

_OLD: Final = 2
"""The number of the collector's oldest generation."""

_CHECK_INTERVAL_S: Final = 0.1
"""Interval of the checks, which also collect new objects and count closed connections."""

_WORK_SECONDS: Final = 0.01
"""Processor time between two checks from which on the process counts as working."""

_IDLE_SECONDS: Final = 0.001
"""Processor time between two checks up to which the process counts as idle."""

_IDLE_CHECKS: Final = 20
"""Consecutive idle checks before the process is taken to be idle."""

_MAX_CLOSED_IDLE: Final = 100
_MAX_CLOSED: Final = 10_000
"""Closed connections that cause a full collection: when idle, and at any moment."""


def begin() -> None:
    """Set aside the objects made by imports. Called first, so that the start skips them."""
    gc.freeze()


def settle() -> None:
    """Set aside all objects, and large amounts of later ones. Called when everything is open."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if _walks not in gc.callbacks:
        gc.callbacks.append(_walks)


def collect_all() -> None:
    """Collect all unreachable objects, including objects set aside."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class _GenerationFreezer:
    """Sets aside objects that have reached the oldest generation, if traversing them takes long.

    Attributes:
        freeze_count: how often objects have been set aside.
    """

    def __init__(self) -> None:
        self.freeze_count = 0
        self._started_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Record the beginning of a traversal, and evaluate its end."""
        if info["generation"] != _OLD:
            return
        if phase == "start":
            self._started_s = time.thread_time()
        elif (
            info["collected"] <= _FEW_FREED
            and time.thread_time() - self._started_s >= _LONG_TRAVERSAL_S
        ):
            gc.freeze()
            self.freeze_count += 1


_walks: Final = _GenerationFreezer()


class GarbageCollector:
    """Collects garbage from time to time; see the module.

    Args:
        clock: schedules the checks.
        count_closed: returns the number of connections closed so far.
        count_open: returns the number of open connections.
    """

    def __init__(
        self, clock: Clock, count_closed: Callable[[], int], count_open: Callable[[], int]
    ) -> None:
        self._clock: Final = clock
        self._count_closed: Final = count_closed
        self._count_open: Final = count_open
        self._last_closed = count_closed()  # closed connections at the last check
        self._uncollected = 0  # connections closed since the last full collection
        self._frozen = 0  # connections, at most, that are set aside or were when they closed
        self._last_freeze_count = _walks.freeze_count
        self._last_cpu_s = time.process_time()
        self._idle_checks = 0  # consecutive idle checks
        self._cancel = clock.call_later(_CHECK_INTERVAL_S, self._check)

    def stop(self) -> None:
        """Stop collecting."""
        self._cancel()

    def _check(self) -> None:
        used = time.process_time() - self._last_cpu_s
        self._idle_checks = self._idle_checks + 1 if used <= _IDLE_SECONDS else 0
        closed = self._count_frozen_garbage()
        if closed >= (_MAX_CLOSED if self._idle_checks < _IDLE_CHECKS else _MAX_CLOSED_IDLE):
            collect_all()
            self._uncollected, self._frozen = 0, self._count_open()
        elif used >= _WORK_SECONDS:
            gc.collect()
        self._last_cpu_s = time.process_time()
        self._cancel = self._clock.call_later(_CHECK_INTERVAL_S, self._check)

    def _count_frozen_garbage(self) -> int:
        """Return how many connections, at most, are garbage that has been set aside."""
        closed = self._count_closed()
        since, self._last_closed = closed - self._last_closed, closed
        self._uncollected += since
        # Objects have been set aside since the last check:
        if _walks.freeze_count != self._last_freeze_count:
            self._last_freeze_count = _walks.freeze_count
            self._frozen += self._count_open() + since
        return min(self._uncollected, self._frozen)
