"""Takes a sample of everything once per Interval, in slices between the engine's other work.

With ten thousand subscriptions a sample is tens of milliseconds of work. It waits in the queue of
the engine's turns like a query does, and gives way after half a millisecond. So its entries are not
all of one moment: each is what it was when its turn came. Should an Interval be over before the
last sample is complete, there is one sample less, which is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from server.statistics.sample import Entry, Sample, Source

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Slices

SLICE_SECONDS: Final = 0.000_5
"""How long entries are taken before others have their turn."""

_TAKEN_AT_ONCE: Final = 8
"""Entries that are taken before it is looked at the clock: some microseconds each at most."""


class Collector:
    """Takes samples.

    Args:
        interval: seconds between samples.
        take: takes each sample.
        turns: shares out the time of the engine's thread.
        clock: the time of day, and timers.
        elapsed: seconds since some moment, never going back.
        log: told of sources that fail.

    Attributes:
        lag: seconds that the last sample, which waited for its turn, was begun too late.
        skipped: Intervals without a sample, because the one before was still being taken.
    """

    def __init__(
        self,
        interval: float,
        take: Callable[[Sample], None],
        turns: Slices,
        clock: Clock,
        elapsed: Callable[[], float],
        log: Log,
    ) -> None:
        self.lag = 0.0
        self.skipped = 0
        self._sources: Sequence[Source] = ()
        self._interval = interval
        self._take = take
        self._turns = turns
        self._clock = clock
        self._elapsed = elapsed
        self._log = log
        self._failed: set[str] = set()  # resources of which it has been said
        self._due = 0.0
        self._cancel: Callable[[], None] | None = None
        self._left: Iterator[None] | None = None  # what is to be done for it

    def start(self, sources: Sequence[Source]) -> None:
        """Take a sample now, and one per Interval from now on.

        Args:
            sources: what there is to be known, in the order in which it is taken.
        """
        self._sources = sources
        self._due = self._elapsed()
        self._begin()

    def close(self) -> None:
        """Take none any more, and let go of what has been taken of one."""
        if self._cancel is not None:
            self._cancel()
        self._left = None

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return "", "statistics"

    def step(self) -> bool:
        """Take some more entries of the sample. See `Sliced.step`."""
        if self._left is None:
            return False
        end = self._elapsed() + SLICE_SECONDS
        for _ in self._left:
            if self._elapsed() >= end:
                return True
        self._left = None
        return False

    def _begin(self) -> None:
        """Begin a sample, unless there is one under way, and have the next one begun."""
        due, now = self._due, self._elapsed()
        self._due = max(due + self._interval, now)
        self._cancel = self._clock.call_later(self._due - now, self._begin)
        if self._left is not None:
            self.skipped += 1
            return
        self._left = self._sampled(due)
        self._turns.queue(self)

    def _sampled(self, due: float) -> Iterator[None]:
        """Take a sample, some entries at a time, and hand it on."""
        elapsed = self._elapsed()
        self.lag = max(elapsed - due, 0.0)
        taken_at = self._clock.now()
        entries = {}
        for source in self._sources:
            taken = entries[source.resource.path] = list[Entry]()
            try:
                found, count = source.entries(), -1
                while len(taken) > count:
                    count = len(taken)
                    taken.extend(islice(found, _TAKEN_AT_ONCE))
                    yield
            except Exception as error:  # a defect: all others are still of interest
                self._tell(source, error)
        self._take(Sample(taken_at, elapsed, entries))

    def _tell(self, source: Source, error: Exception) -> None:
        """Say once that entries of a resource could not be taken."""
        path = source.resource.path
        if path not in self._failed:
            self._failed.add(path)
            self._log.emit("01-0004", text=f"statistics of {path}", error=repr(error))
