"""Makes slow decisions outside the engine: one thread with an event loop of its own.

    engine's thread  --submit-->  AsyncWorker: a coroutine per decision  -->  AnswerFuture

The engine continues meanwhile. At most `MAX_CONCURRENT_DECISIONS` decisions are in progress at a
time; others wait. Each has a timeout, after which the fallback of its caller is the answer. The
fallback also answers a decision that fails, or that comes while too many wait: no caller waits for
ever, and every error is a refusal. On a timeout the coroutine is cancelled, and may ignore that:
the answer does not wait for it, but its slot is not released before it ends. Process exit waits
neither for it, nor for the threads that it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar

from server.security.deferred import AnswerFuture
from server.util.daemon_threads import DaemonThreadPool
from server.util.plugin_loader import explain

DecisionT = TypeVar("DecisionT")

MAX_CONCURRENT_DECISIONS: Final = 2_000
"""Limit of concurrent decisions. A waiting decision costs little; a caller that must limit the
concurrency of a resource does so itself."""
MAX_PENDING_DECISIONS: Final = 10_000
DECISION_TIMEOUT_S: Final = 30.0
"""Timeout of a decision, its time in the queue included (AMPS User Guide, Authentication,
recommends no more)."""

_MAX_THREADS: Final = 32
"""Limit of the threads for blocking calls, such as file reads and name look-ups."""


@dataclass(frozen=True, slots=True)
class _DecisionFailure:
    """A failed decision.

    Attributes:
        problem: the reason, for people.
    """

    problem: str


class AsyncWorker:
    """Makes decisions outside the engine. Called on the engine's thread, while its loop runs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: asyncio.Semaphore | None = None
        self._pending_count = 0

    def submit(
        self,
        make_coroutine: Callable[[], Coroutine[None, None, DecisionT]],
        fallback: Callable[[str], DecisionT],
    ) -> AnswerFuture[DecisionT]:
        """Run a decision on the worker's thread.

        Args:
            make_coroutine: creates the coroutine that decides; called on the worker's thread.
            fallback: makes the fallback answer from the reason for it.

        Returns:
            The future answer, set on the engine's thread. Cancelling it releases its slot for
            another one.
        """
        pending: AnswerFuture[DecisionT] = AnswerFuture()
        if self._pending_count >= MAX_PENDING_DECISIONS:
            pending.set_result(fallback(f"{MAX_PENDING_DECISIONS} decisions are pending already"))
            return pending
        self._pending_count += 1
        engine_loop = asyncio.get_running_loop()
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                self._pending_count -= 1

        def deliver(answer: DecisionT) -> None:
            end()
            pending.set_result(answer)

        def abandon() -> None:
            end()
            decision.cancel()

        async def decide() -> None:
            answer = await self._decide(make_coroutine, fallback)
            if not engine_loop.is_closed():
                engine_loop.call_soon_threadsafe(deliver, answer)

        decision = asyncio.run_coroutine_threadsafe(decide(), self._running_loop())
        pending.on_cancel(abandon)
        return pending

    async def _decide(
        self,
        make_coroutine: Callable[[], Coroutine[None, None, DecisionT]],
        fallback: Callable[[str], DecisionT],
    ) -> DecisionT:
        task = asyncio.ensure_future(self._run_decision(make_coroutine))
        try:
            await asyncio.wait({task}, timeout=DECISION_TIMEOUT_S)
        finally:  # also runs on cancellation, when the caller has given up
            if not task.done():
                task.cancel()
        if not task.done():
            return fallback(f"no decision within {DECISION_TIMEOUT_S:.0f} seconds")
        if task.cancelled():
            return fallback(explain(asyncio.CancelledError()))
        outcome = task.result()
        return fallback(outcome.problem) if isinstance(outcome, _DecisionFailure) else outcome

    async def _run_decision(
        self, make_coroutine: Callable[[], Coroutine[None, None, DecisionT]]
    ) -> DecisionT | _DecisionFailure:
        if self._slots is None:
            self._slots = asyncio.Semaphore(MAX_CONCURRENT_DECISIONS)
        async with self._slots:
            try:
                return await make_coroutine()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # third-party code may raise anything
                return _DecisionFailure(explain(error))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the worker's loop; its thread starts on first use, and ends with the process."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(DaemonThreadPool(_MAX_THREADS, "security"))
            threading.Thread(target=self._loop.run_forever, name="security", daemon=True).start()
        return self._loop
