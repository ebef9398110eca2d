"""Cancels a query from another thread: by the client, by a timeout, by a connection that ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from server.sql.query.errors import QUERY_CANCELED, SqlError

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
