"""A server's lives: it is killed at random moments of random work, again and again.

In every other run the power fails as well: then everything is lost that was not on stable storage,
or some of it, or it comes to nothing that anybody wrote. The wall clock may be wrong in each life
by another time, and be set while it works, and the process may stand still for a moment.

`make test-long` does it for longer; AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from tests.recovery.stable_storage import Watch, fail_power
from tests.support.clocks import WallClock
from tests.support.server import RunningServer, ServerEnded, running_server
from tests.support.waiting import WAIT_SECONDS

_AHEAD: Final = (0.0, 0.0, -60.0, 3600.0, -86_400.0, 86_400.0)
"""By how many seconds the wall clock may be ahead."""


@dataclass(frozen=True)
class Prepared:
    """What is done with the process of a server before it runs."""

    watch: Watch
    clock: WallClock

    def __call__(self) -> None:
        """Prepare this process."""
        self.watch()
        self.clock()


def until_killed(
    chance: random.Random, work: Callable[[RunningServer], None]
) -> Callable[[RunningServer], None]:
    """Have a server killed after a while that is left to chance, whatever work does with it.

    It may stand still before that.
    """

    def work_until_killed(server: RunningServer) -> None:
        lives = chance.uniform(0.02, 0.4)
        stands, goes_on = sorted(chance.uniform(0.0, 2 * lives) for _ in range(2))
        timers = [Timer(lives, server.stop, (signal.SIGKILL,))]
        if goes_on < lives:
            timers += [
                Timer(stands, server.process.send_signal, (signal.SIGSTOP,)),
                Timer(goes_on, server.process.send_signal, (signal.SIGCONT,)),
            ]
        for timer in timers:
            timer.start()
        work(server)
        for timer in timers:
            timer.join()

    return work_until_killed


def live_and_die(
    directory: Path,
    log: int,
    kills: int,
    chance: random.Random,
    elements: str,
    check: Callable[[RunningServer], None],
    work: Callable[[RunningServer], None],
) -> None:
    """Let a server with one log live and be killed, over and over.

    Args:
        directory: where it runs.
        log: the number of the log; the power fails in those with an odd one.
        kills: how often it is killed.
        chance: decides what happens when.
        elements: of the configuration, with a place for `flush`.
        check: says what has to be true whenever it has been started.
        work: works with it, and kills it.
    """
    shadows = directory / "shadows"
    shadows.mkdir()
    power_fails = log % 2 == 1
    clock = WallClock(directory / "clock")
    for _ in range(kills):
        clock.set(chance.choice(_AHEAD))
        calls = chance.randrange(300) if chance.random() < 0.5 else None
        watch = Watch(shadows if power_fails else None, calls)
        text = elements.format(flush=chance.choice(("10us", "2ms")))
        clock_step = Timer(chance.uniform(0.0, 1.5), clock.set, (chance.choice(_AHEAD),))
        clock_step.start()
        try:
            _live(directory, text, Prepared(watch, clock), check, work)
        finally:
            clock_step.cancel()
            clock_step.join()
        if power_fails and chance.random() < 0.7:
            fail_power(directory, shadows, chance)


def _live(
    directory: Path,
    elements: str,
    prepared: Prepared,
    check: Callable[[RunningServer], None],
    work: Callable[[RunningServer], None],
) -> None:
    """Start a server, check it, let it work; it is killed, or dies in a call, perhaps early."""
    dies_by_itself = prepared.watch.calls is not None
    try:
        with running_server(directory, elements=elements, prepare=prepared) as server:
            try:
                check(server)
            except (OSError, EOFError):
                if (
                    prepared.watch.calls is None
                    or server.process.wait(WAIT_SECONDS) != -signal.SIGKILL
                ):
                    raise
            else:
                work(server)
    except ServerEnded as ended:
        if not dies_by_itself or ended.code != -signal.SIGKILL:
            raise
