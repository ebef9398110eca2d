"""A server's lives: it is killed at random moments of random work, again and again.

In every other run the power fails as well: then everything is lost that was not on stable storage,
or some of it, or it comes to nothing that anybody wrote.

`pytest tests/recovery --crash-runs 5000` does it for longer; AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Final

import pytest

from tests.recovery.stable_storage import Watch, fail_power
from tests.support.server import RunningServer, ServerEnded, running_server
from tests.support.waiting import WAIT_SECONDS

KILLS_OF_ONE_LOG: Final = 10
"""After so many kills a fresh log is begun: every check reads all of it."""


def number_of_logs(config: pytest.Config) -> int:
    """How many logs it takes for the kills that are asked for."""
    return -(-int(config.getoption("--crash-runs")) // KILLS_OF_ONE_LOG)


def chance_of(log: int) -> random.Random:
    """What is left to chance in one log's lives."""
    seed = int(os.environ.get("AMPERAGE_SEED", "0")) or random.randrange(1 << 32)
    print(f"AMPERAGE_SEED={seed}")
    return random.Random(f"{seed}-{log}")


def until_killed(
    chance: random.Random, work: Callable[[RunningServer], None]
) -> Callable[[RunningServer], None]:
    """Have a server killed after a while that is left to chance, whatever work does with it."""

    def work_until_killed(server: RunningServer) -> None:
        killer = Timer(chance.uniform(0.02, 0.4), server.stop, (signal.SIGKILL,))
        killer.start()
        work(server)
        killer.join()

    return work_until_killed


def live_and_die(
    directory: Path,
    log: int,
    chance: random.Random,
    elements: str,
    check: Callable[[RunningServer], None],
    work: Callable[[RunningServer], None],
) -> None:
    """Let a server with one log live and be killed, over and over.

    Args:
        directory: where it runs.
        log: the number of the log; the power fails in those with an odd one.
        chance: decides what happens when.
        elements: of the configuration, with a place for `flush`.
        check: says what has to be true whenever it has been started.
        work: works with it, and kills it.
    """
    shadows = directory / "shadows"
    shadows.mkdir()
    power_fails = log % 2 == 1
    for _ in range(KILLS_OF_ONE_LOG):
        calls = chance.randrange(300) if chance.random() < 0.5 else None
        watch = Watch(shadows if power_fails else None, calls)
        text = elements.format(flush=chance.choice(("10us", "2ms")))
        _live(directory, text, watch, check, work)
        if power_fails and chance.random() < 0.7:
            fail_power(directory, shadows, chance)


def _live(
    directory: Path,
    elements: str,
    watch: Watch,
    check: Callable[[RunningServer], None],
    work: Callable[[RunningServer], None],
) -> None:
    """Start a server, check it, let it work; it is killed, or dies in a call, perhaps early."""
    try:
        with running_server(directory, elements=elements, prepare=watch) as server:
            try:
                check(server)
            except (OSError, EOFError):
                if watch.calls is None or server.process.wait(WAIT_SECONDS) != -signal.SIGKILL:
                    raise
            else:
                work(server)
    except ServerEnded as ended:
        if watch.calls is None or ended.code != -signal.SIGKILL:
            raise
