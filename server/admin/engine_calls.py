"""Calls on the engine's thread, and a time limit for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

from server.admin.http.messages import HttpError
from server.security.deferred import AnswerOrFuture, on_answer

_Result = TypeVar("_Result")

TIMEOUT_S: Final = 10.0
"""Seconds that an answer may take."""
_DECISION_TIMEOUT_S: Final = 35.0
"""The same for decisions on logons, which have limits of their own."""


class EngineCalls:
    """Calls on the engine's thread.

    Args:
        post: schedules a call on the engine's thread.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop keeps weak references only

    async def call(self, function: Callable[[], _Result], timeout_s: float = TIMEOUT_S) -> _Result:
        """Call a function on the engine's thread, and return its result.

        Args:
            function: takes no longer than a command may; its result is immutable, or not
                shared.
            timeout_s: the time limit.

        Raises:
            HttpError: the engine is so busy that it has not called it in time, or it stops.
        """
        answer: Future[_Result] = Future()

        def call() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # the caller has given up
            try:
                answer.set_result(function())
            except Exception as error:
                answer.set_exception(error)

        self._post_call(call)
        return await within_limit(answer, "The engine", timeout_s)

    async def await_decision(self, function: Callable[[], AnswerOrFuture[_Result]]) -> _Result:
        """Call a function on the engine's thread, and wait for its decision.

        Args:
            function: returns the decision, or a future of it.

        Raises:
            HttpError: the decision takes too long, or the engine stops.
        """
        answer: Future[_Result] = Future()

        def set_result(result: _Result) -> None:
            if not answer.cancelled():
                answer.set_result(result)

        def call() -> None:
            try:
                on_answer(function(), set_result)
            except Exception as error:
                answer.set_exception(error)

        self._post_call(call)
        return await within_limit(answer, "The authentication module", _DECISION_TIMEOUT_S)

    def post(self, call: Callable[[], None]) -> None:
        """Schedule a call on the engine's thread if the engine runs, and do not wait for it."""
        with suppress(HttpError):
            self._post_call(call)

    async def run_coroutine(
        self, make_coroutine: Callable[[], Coroutine[None, None, _Result]]
    ) -> _Result:
        """Run a coroutine on the engine's thread that may take a while, and return its result.

        Args:
            make_coroutine: as for `start_coroutine`.

        Raises:
            HttpError: it has not ended in time, and goes on, or the engine stops.
        """
        return await within_limit(self.start_coroutine(make_coroutine), "The engine")

    def start_coroutine(
        self, make_coroutine: Callable[[], Coroutine[None, None, _Result]]
    ) -> Future[_Result]:
        """Start a coroutine on the engine's thread, and return the future of its result.

        Args:
            make_coroutine: returns the coroutine, which lets other tasks run meanwhile; it runs to
                its end, also if its caller has given up.

        Raises:
            HttpError: the engine stops.
        """
        answer: Future[_Result] = Future()

        async def run() -> None:
            try:
                result = await make_coroutine()
            except Exception as error:
                if not answer.cancelled():
                    answer.set_exception(error)
            else:
                if not answer.cancelled():
                    answer.set_result(result)

        def call() -> None:
            task = asyncio.get_running_loop().create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._post_call(call)
        return answer

    def _post_call(self, call: Callable[[], None]) -> None:
        """Schedule a call on the engine's thread.

        Raises:
            HttpError: the engine stops.
        """
        try:
            self._post(call)
        except RuntimeError:
            raise HttpError(503, "The instance is stopping.") from None


async def within_limit(
    answer: Future[_Result], subject: str, timeout_s: float = TIMEOUT_S
) -> _Result:
    """Wait for the result of another thread.

    Args:
        answer: its result.
        subject: the other side, for the error text.
        timeout_s: the time limit.

    Raises:
        HttpError: the result takes too long.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answer), timeout_s)
    except TimeoutError:
        text = f"{subject} is busy: no answer within {timeout_s:g} s. Retry later."
        raise HttpError(503, text, (("Retry-After", "10"),)) from None
    except asyncio.CancelledError:
        if not answer.cancelled():
            raise  # it is the caller that has been cancelled
        raise HttpError(503, "The instance is stopping.") from None
