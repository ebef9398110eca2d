"""How garbage is collected in a process that keeps millions of records and must not pause.

Objects go when the last reference to them does, and nearly all of ours do: what a command or a
subscription has made knows of itself in no circle, or is taken out of it at its end. Python's
collector is for the others. It walks through all containers there are, and whatever runs has to
wait: 75 ms for the dictionaries of a SOW topic with 1,000,000 records, at any moment, to find
nothing (`benchmarks/sow.py` shows it, and what is left).

    new --5,000--> young --twice--> middle --twice--> old --if it takes long--> set aside

So what there is at the end of the start is *set aside*, and never walked through. A dictionary
stays set aside while it grows, and what topics put into theirs later (texts, numbers and tuples of
these) is nothing that the collector would look at. What comes later is walked through three times.
If that takes long, because a client has made ten thousand subscriptions or a hundred thousand
groups, or an index has been made, which is few containers with much in each, then what has survived
is set aside, too: nothing of it is walked through a fourth time, and no walk is through more than
has come since the last one. Where much was garbage, such as connections that came and went, it is
freeing that has taken the time. The collector counts what is made less what is freed, so that new
objects would pile up while many others are freed, and then be walked through all at once; therefore
it is also done several times a second, while there is work.

What has been set aside goes with its last reference like anything else, but circles of it do not. A
connection is one, of some kilobytes, if it was there when something was set aside. When some of
these have gone everything is looked through once more, while no client asks for anything; or at any
moment, when very many have. Connections that have come and gone since do not count: otherwise some
thousand a second would have everything looked through, for 70 ms, every few seconds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.clock import Clock

_THRESHOLDS: Final = (5_000, 1, 1)
"""New containers before the youngest are walked through, which then takes below 1 ms; and after how
many times that is done for older ones."""

_LONG_SECONDS: Final = 0.001
"""How long it takes to walk through old containers that are set aside then."""

_FEW_FREED: Final = 1_000
"""Objects that a long walk has freed, up to which it is what survived that has taken the time."""

_OLD: Final = 2
"""The number of the collector's oldest generation."""

_LOOK_SECONDS: Final = 0.25
"""How often what is new is walked through, and it is looked whether connections have gone."""

_WORK_SECONDS: Final = 0.01
"""Processor time between two looks from which on there has been work."""

_IDLE_SECONDS: Final = 0.001
"""Processor time between two looks up to which nobody has asked for anything."""

_IDLE_LOOKS: Final = 8
"""Looks at which nobody had, one after the other, before that is believed."""

_SOME_GONE: Final = 100
_MANY_GONE: Final = 10_000
"""Connections that have gone before everything is looked through: when idle, and at any moment."""


def begin() -> None:
    """Set aside what reading the modules has made; called first, which saves a start walking it."""
    gc.freeze()


def settle() -> None:
    """Set aside what there is, and what comes to be much later; called when all has been opened."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if _walks not in gc.callbacks:
        gc.callbacks.append(_walks)


def look_through() -> None:
    """Collect everything that nobody can reach, also of what has been set aside."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class _Walks:
    """Sets aside objects that have been walked through as often as any are, if that takes long.

    Attributes:
        times: how often something has been set aside.
    """

    def __init__(self) -> None:
        self.times = 0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Take note of the beginning and the end of a walk."""
        if info["generation"] != _OLD:
            return
        if phase == "start":
            self._began = time.thread_time()
        elif info["collected"] <= _FEW_FREED and time.thread_time() - self._began >= _LONG_SECONDS:
            gc.freeze()
            self.times += 1


_walks: Final = _Walks()


class Collecting:
    """Has garbage collected from time to time; see above.

    Args:
        clock: says when.
        gone: tells how many connections have gone so far.
        alive: tells how many connections there are.
    """

    def __init__(self, clock: Clock, gone: Callable[[], int], alive: Callable[[], int]) -> None:
        self._clock: Final = clock
        self._gone: Final = gone
        self._alive: Final = alive
        self._seen = gone()  # at the last look, of those that have gone
        self._left = 0  # connections that have gone since everything was looked through
        self._set_aside = 0  # connections, at most, that are set aside or were when they went
        self._times = _walks.times
        self._used = time.process_time()
        self._idle = 0  # looks at which nobody had asked for anything
        self._cancel = clock.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Collect no more."""
        self._cancel()

    def _look(self) -> None:
        used = time.process_time() - self._used
        self._idle = self._idle + 1 if used <= _IDLE_SECONDS else 0
        gone = self._count()
        if gone >= (_MANY_GONE if self._idle < _IDLE_LOOKS else _SOME_GONE):
            look_through()
            self._left, self._set_aside = 0, self._alive()
        elif used >= _WORK_SECONDS:
            gc.collect()
        self._used = time.process_time()
        self._cancel = self._clock.call_later(_LOOK_SECONDS, self._look)

    def _count(self) -> int:
        """Return how many connections, at most, are garbage that has been set aside."""
        gone = self._gone()
        since, self._seen = gone - self._seen, gone
        self._left += since
        if _walks.times != self._times:  # something has been set aside since the last look
            self._times = _walks.times
            self._set_aside += self._alive() + since
        return min(self._left, self._set_aside)
