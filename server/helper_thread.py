"""A thread for reading that takes long, which the engine's thread has no time for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")


class HelperThread:
    """Does one thing after the other; it touches no state of the engine.

    Args:
        post: has a call made on the engine's thread.
        name: of the thread.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None], name: str) -> None:
        self._post = post
        self._executor = ThreadPoolExecutor(1, name)

    def do(self, work: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """Have something done on the thread.

        Args:
            work: what is to be done; it must not raise.
            then: called on the engine's thread with what that gives.
        """

        def run() -> None:
            result = work()
            self._post(partial(then, result))

        self._executor.submit(run)

    def close(self) -> None:
        """Wait for what is being done; what has not begun is not done any more."""
        self._executor.shutdown(cancel_futures=True)
