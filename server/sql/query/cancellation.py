"""Cancels a query from another thread: by the client, by a timeout, by a connection that ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from server.sql.query.errors import SqlError
from server.sql.sqlstate import QUERY_CANCELED

_ItemT = TypeVar("_ItemT")

BY_CLIENT: Final = "canceling statement due to user request"
BY_TIMEOUT: Final = "canceling statement due to statement timeout"


class Cancellation:
    """The cancellation of one query. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self, reason: str = BY_CLIENT) -> None:
        """Cancel the query; only the first call has an effect."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call a function when the query is cancelled; at once, if it is already."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def remove(self, callback: Callable[[], object]) -> None:
        """Do not call a function any more."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    @property
    def is_cancelled(self) -> bool:
        """Whether the query is cancelled."""
        return self._reason is not None

    def check(self) -> None:
        """Raise an error if the query is cancelled.

        Raises:
            SqlError: it is.
        """
        if self._reason is not None:
            raise SqlError(QUERY_CANCELED, self._reason)


@contextmanager
def time_limit(timeout_s: float, started_s: float, cancellation: Cancellation) -> Iterator[None]:
    """Cancel a statement if its time is over within a block of code.

    Args:
        timeout_s: the longest time; 0 for any.
        started_s: when the statement began, on the monotonic clock.
        cancellation: that of the statement.

    Raises:
        SqlError: its time is over already.
    """
    if timeout_s <= 0:
        yield
        return
    left_s = timeout_s - (time.monotonic() - started_s)
    if left_s <= 0:
        cancellation.cancel(BY_TIMEOUT)
        cancellation.check()
    timer = threading.Timer(left_s, cancellation.cancel, (BY_TIMEOUT,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def until_cancelled(items: Iterable[_ItemT], cancellation: Cancellation) -> Iterator[_ItemT]:
    """Yield items; raise the error of `Cancellation.check` once the query is cancelled."""
    for item in items:
        cancellation.check()
        yield item
    cancellation.check()
