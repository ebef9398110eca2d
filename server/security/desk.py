"""Where decisions are made that wait for others: a thread with an event loop of its own.

    the engine's thread  --ask-->  Desk: a coroutine per question  --the answer-->  Pending

The engine goes on meanwhile. At most `MOST_UNDER_WAY` questions are worked on at a time, further
ones wait; each has a limit of time, after which it is answered by what its asker says then. So is a
question that fails, or that comes while too many wait: nobody waits for ever, and whatever goes
wrong is a refusal. What decides is cancelled then, and may not heed that: the answer does not wait
for it, but its place among those that are worked on is not free before it ends. Nor does the
process wait for it in the end, or for threads that it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar

from server.base.daemon_threads import DaemonThreads
from server.base.libraries import explain
from server.security.later import Pending

Answer = TypeVar("Answer")

MOST_UNDER_WAY: Final = 2_000
"""A question costs little while it waits; whatever must not be asked by too many at a time has to
be spared by who asks it."""
MOST_WAITING: Final = 10_000
LIMIT_SECONDS: Final = 30.0
"""How long a decision may take, the time that it waits for its turn included (AMPS User Guide,
Authentication, recommends no more)."""

_MOST_THREADS: Final = 32
"""That decisions wait for at a time, for instance while a file is read, or a name looked up."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A decision has failed.

    Attributes:
        problem: how, for people.
    """

    problem: str


class Desk:
    """Makes decisions beside the engine. Asked on the engine's thread, while its loop runs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: asyncio.Semaphore | None = None
        self._waiting = 0

    def ask(
        self,
        make: Callable[[], Coroutine[None, None, Answer]],
        otherwise: Callable[[str], Answer],
    ) -> Pending[Answer]:
        """Have something decided.

        Args:
            make: makes what decides; it runs on the desk's thread.
            otherwise: the answer if there is none, by the reason for that.

        Returns:
            What gets the answer, on the engine's thread. Given up, it makes room for another
            question.
        """
        pending: Pending[Answer] = Pending()
        if self._waiting >= MOST_WAITING:
            pending.give(otherwise(f"{MOST_WAITING} logons wait for a decision already"))
            return pending
        self._waiting += 1
        engine = asyncio.get_running_loop()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._waiting -= 1

        def give(answer: Answer) -> None:
            end()
            pending.give(answer)

        def give_up() -> None:
            end()
            deciding.cancel()

        async def decide() -> None:
            answer = await self._decide(make, otherwise)
            if not engine.is_closed():
                engine.call_soon_threadsafe(give, answer)

        deciding = asyncio.run_coroutine_threadsafe(decide(), self._running_loop())
        pending.if_given_up(give_up)
        return pending

    async def _decide(
        self,
        make: Callable[[], Coroutine[None, None, Answer]],
        otherwise: Callable[[str], Answer],
    ) -> Answer:
        working = asyncio.ensure_future(self._work(make))
        try:
            await asyncio.wait({working}, timeout=LIMIT_SECONDS)
        finally:  # which is also where it goes on if nobody waits any more
            if not working.done():
                working.cancel()
        if not working.done():
            return otherwise(f"no decision within {LIMIT_SECONDS:.0f} seconds")
        if working.cancelled():
            return otherwise(explain(asyncio.CancelledError()))
        outcome = working.result()
        return otherwise(outcome.problem) if isinstance(outcome, _Failure) else outcome

    async def _work(self, make: Callable[[], Coroutine[None, None, Answer]]) -> Answer | _Failure:
        if self._turns is None:
            self._turns = asyncio.Semaphore(MOST_UNDER_WAY)
        async with self._turns:
            try:
                return await make()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # a module need not be ours: the desk must outlive it
                return _Failure(explain(error))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The desk's loop; its thread starts with the first question, and ends with the process."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(DaemonThreads(_MOST_THREADS, "security"))
            threading.Thread(target=self._loop.run_forever, name="security", daemon=True).start()
        return self._loop
