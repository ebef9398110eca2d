"""Calls on the engine's thread, from worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeAlias, TypeVar

from server.sql.query.errors import SqlError
from server.sql.sqlstate import INTERNAL_ERROR
from server.sql.statement_threads import blocking_wait

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Schedules a call on the engine's thread."""

_TIMEOUT_S: Final = 30.0
"""Time for an answer of the engine."""

_ResultT = TypeVar("_ResultT")


def make_post() -> Post:
    """Return a function that schedules a call on the running event loop, from any thread.

    It raises RuntimeError when the loop is closed.
    """
    loop = asyncio.get_running_loop()

    def post(call: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(call)

    return post


def post_call(post: Post, call: Callable[[], None]) -> None:
    """Schedule a call.

    Raises:
        SqlError: the instance is stopping.
    """
    try:
        post(call)
    except RuntimeError:
        raise SqlError(INTERNAL_ERROR, "the instance is stopping") from None


def submit_to_engine(post: Post, work: Callable[[], _ResultT]) -> Future[_ResultT]:
    """Schedule work on the engine's thread; return its future result.

    Raises:
        SqlError: the instance is stopping.
    """
    result: Future[_ResultT] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # any error: the worker thread must not wait without end
            result.set_exception(error)

    post_call(post, run)
    return result


def call_engine(post: Post, work: Callable[[], _ResultT]) -> _ResultT:
    """Do work on the engine's thread; return its result.

    Raises:
        SqlError: the instance is stopping, or is too busy.
    """
    return wait_for_engine(submit_to_engine(post, work))


def wait_for_engine(result: Future[_ResultT]) -> _ResultT:
    """Wait for a result of the engine's thread; other statements run meanwhile.

    Raises:
        SqlError: the engine is too busy.
    """
    try:
        with blocking_wait():
            return result.result(_TIMEOUT_S)
    except TimeoutError:
        raise SqlError(INTERNAL_ERROR, "the engine is busy: no answer in time") from None
