"""Measures for how long clients wait for the engine's thread, and what it does meanwhile.

A thread of its own posts a call to the engine's thread every millisecond, as if a client had sent
something, and the call measures how late it is. What the engine's thread has done in between is
known for late calls: its processor time is divided among the pieces of work that the scheduler
reports and the garbage collections; the rest of the time it waited for a processor
(the run delay of the kernel), or was blocked: by another thread that held the interpreter's lock,
by a disk, or by a signal that stopped the process.

A measurement runs on request only; at other times nothing is recorded.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler

_INTERVAL_S: Final = 0.001
"""Time between two calls."""

_MAX_OVERSLEPT_S: Final = 0.005
"""If this thread sleeps for longer than that beyond the interval, the process has been stopped, or
the interpreter's lock been held, and the engine's thread could not run either."""

LATE_S: Final = 0.001
"""A call that is later than this is examined."""

MAX_DURATION_S: Final = 60.0
"""The longest measurement, in seconds."""

_MIN_PIECE_S: Final = 0.000_1
"""Parts of a delay that are shorter than this are not reported."""

_TIMEOUT_S: Final = 10.0
"""How long a call may take before the measurement ends."""

_NANOSECONDS: Final = 1_000_000_000


class DelayKind(StrEnum):
    """The kinds of causes of a delay."""

    WORK = "work"
    COLLECTION = "garbage collection"
    OTHER_WORK = "other work"
    PROCESSOR = "no processor"
    BLOCKED = "blocked"


class DelayCause(NamedTuple):
    """A cause of delays.

    Attributes:
        kind: its kind.
        name: the name of the work, or the generation that was collected; empty for other kinds.
        client: the name of the client that the work was for; empty for none.
    """

    kind: DelayKind
    name: str = ""
    client: str = ""


class CauseTotal(NamedTuple):
    """The delays of one cause.

    Attributes:
        calls: the number of late calls that it has delayed.
        longest_s: the longest of these delays, in seconds.
        total_s: their sum, in seconds.
    """

    calls: int
    longest_s: float
    total_s: float


class DelayReport(NamedTuple):
    """The result of a measurement.

    Attributes:
        delays_s: the delay of each call in seconds, ascending.
        causes: the causes of the delays of late calls, the one with the largest sum first.
    """

    delays_s: list[float]
    causes: dict[DelayCause, CauseTotal]

    def percentile_s(self, share: float) -> float:
        """Return the delay that a share of the calls does not exceed; 0 without calls."""
        if not self.delays_s:
            return 0.0
        return self.delays_s[min(int(len(self.delays_s) * share), len(self.delays_s) - 1)]


class _ThreadTimes(NamedTuple):
    """How long a thread has run, and how long it has waited for a processor, in seconds."""

    processor_s: float
    run_delay_s: float


class _Piece(NamedTuple):
    """A piece of work or a collection, and its time by the scheduler's clock."""

    cause: DelayCause
    begin_s: float
    end_s: float


class DelayMeasurement:
    """One measurement.

    Args:
        scheduler: the engine's scheduler.
        post: schedules a call on the engine's thread; raises RuntimeError if that has ended.
    """

    def __init__(self, scheduler: Scheduler, post: Callable[[Callable[[], None]], None]) -> None:
        self._scheduler: Final = scheduler
        self._post: Final = post
        self._delays_s: list[float] = []
        self._totals: dict[DelayCause, CauseTotal] = {}
        # Of the engine's thread:
        self._thread_id = 0
        self._clock_id = 0
        self._schedstat = Path()
        # Since the last call, written and read on it:
        self._pieces: list[_Piece] = []
        self._collection_begin_s = 0.0

    def run(self, seconds: float) -> DelayReport:
        """Measure; called on a thread of its own.

        Args:
            seconds: for how long.

        Raises:
            RuntimeError: the engine has ended.
            TimeoutError: the engine has not answered for a long time.
        """
        try:
            self._call(self._begin)
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                times, planned_s = self._thread_times(), self._scheduler.elapsed() + _INTERVAL_S
                time.sleep(_INTERVAL_S)
                posted_s = self._scheduler.elapsed()
                if posted_s - planned_s > _MAX_OVERSLEPT_S:
                    posted_s = planned_s  # clients would have sent something
                else:
                    times = self._thread_times()
                self._call(partial(self._record_call, posted_s, times))
        finally:
            self._post(self._end)
        causes = sorted(self._totals.items(), key=lambda item: item[1].total_s, reverse=True)
        return DelayReport(sorted(self._delays_s), dict(causes))

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function on the engine's thread, and wait for its end."""
        is_done = threading.Event()

        def call() -> None:
            function()
            is_done.set()

        self._post(call)
        if not is_done.wait(_TIMEOUT_S):
            raise TimeoutError(f"the engine has not answered for {_TIMEOUT_S:g} s")

    # on the engine's thread

    def _begin(self) -> None:
        self._thread_id = threading.get_ident()
        self._clock_id = time.pthread_getcpuclockid(self._thread_id)
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._scheduler.observe_work(self._record_work)
        gc.callbacks.append(self._record_collection)

    def _end(self) -> None:
        """End the observation; a call that came too late may just have begun it."""
        self._scheduler.observe_work(None)
        if self._record_collection in gc.callbacks:
            gc.callbacks.remove(self._record_collection)

    def _record_work(self, seconds: float, task_label: tuple[str, str]) -> None:
        client, name = task_label
        end_s = self._scheduler.elapsed()
        begin_s = end_s - seconds
        collected_s = sum(
            piece.end_s - piece.begin_s
            for piece in self._pieces
            if piece.cause.kind is DelayKind.COLLECTION and piece.begin_s >= begin_s
        )
        cause = DelayCause(DelayKind.WORK, name, client)
        self._pieces.append(_Piece(cause, begin_s + collected_s, end_s))

    def _record_collection(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collection_begin_s = self._scheduler.elapsed()
            return
        cause = DelayCause(DelayKind.COLLECTION, f"generation {info['generation']}")
        self._pieces.append(_Piece(cause, self._collection_begin_s, self._scheduler.elapsed()))

    def _record_call(self, posted_s: float, before: _ThreadTimes) -> None:
        """Record the delay of a call.

        Args:
            posted_s: when it was posted, by the scheduler's clock.
            before: the times of this thread at that moment, or shortly before.
        """
        delay_s = self._scheduler.elapsed() - posted_s
        self._delays_s.append(delay_s)
        if delay_s > LATE_S:
            now = self._thread_times()
            ran_s = now.processor_s - before.processor_s
            waited_s = now.run_delay_s - before.run_delay_s
            for cause, seconds in self._divide(posted_s, delay_s, ran_s, waited_s):
                if seconds > _MIN_PIECE_S:
                    calls, longest_s, total_s = self._totals.get(cause, CauseTotal(0, 0.0, 0.0))
                    self._totals[cause] = CauseTotal(
                        calls + 1, max(longest_s, seconds), total_s + seconds
                    )
        self._pieces.clear()

    def _divide(
        self, posted_s: float, delay_s: float, ran_s: float, waited_s: float
    ) -> Iterator[tuple[DelayCause, float]]:
        """Yield the causes of a delay, each with its part in seconds.

        Args:
            posted_s: when it began.
            delay_s: the delay.
            ran_s: how long this thread has run in it.
            waited_s: how long it has waited for a processor.
        """
        parts_s: dict[DelayCause, float] = {}
        for piece in self._pieces:
            overlap_s = piece.end_s - max(piece.begin_s, posted_s)
            if overlap_s > 0:
                parts_s[piece.cause] = parts_s.get(piece.cause, 0.0) + overlap_s
        known_s = sum(parts_s.values())
        scale = min(1.0, ran_s / known_s) if known_s else 0.0  # pieces are blocked in part
        for cause, part_s in parts_s.items():
            yield cause, part_s * scale
        yield DelayCause(DelayKind.OTHER_WORK), ran_s - known_s * scale
        yield DelayCause(DelayKind.PROCESSOR), waited_s
        yield DelayCause(DelayKind.BLOCKED), delay_s - ran_s - waited_s

    # on any thread

    def _thread_times(self) -> _ThreadTimes:
        try:
            run_delay_ns = int(self._schedstat.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            run_delay_ns = 0  # a kernel that does not count it: counts as blocked
        return _ThreadTimes(time.clock_gettime(self._clock_id), run_delay_ns / _NANOSECONDS)
