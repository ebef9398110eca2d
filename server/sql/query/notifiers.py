"""`pg_notify`: a function of DuckDB that calls back the session of the query.

DuckDB has one catalogue of functions for all sessions. So the function has the number of the
session as an argument, which the rewriter adds; a query cannot name the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import duckdb
from duckdb.func import FunctionNullHandling

from server.sql.query.errors import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, SqlError

NOTIFY_FUNCTION: Final = "amps_notify"

Notifier: TypeAlias = Callable[[str, str], None]
"""Publishes a payload to a channel; it may raise a SqlError."""


class Notifiers:
    """The notifiers of sessions. Called on worker threads, and on those of DuckDB.

    Args:
        database: gets the function.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._notifiers: Final[dict[int, Notifier]] = {}
        self._errors: Final[dict[int, SqlError]] = {}
        database.create_function(
            NOTIFY_FUNCTION,
            self._notify,
            ["BIGINT", "VARCHAR", "VARCHAR"],
            "VARCHAR",
            side_effects=True,
            null_handling=FunctionNullHandling.SPECIAL,
        )

    def add(self, process_id: int, notifier: Notifier) -> None:
        """Set the notifier of a session."""
        self._notifiers[process_id] = notifier

    def remove(self, process_id: int) -> None:
        """Remove the notifier of a session that has ended."""
        self._notifiers.pop(process_id, None)
        self.clear_error(process_id)

    def clear_error(self, process_id: int) -> None:
        """Forget an error that an earlier query of a session has left."""
        self._errors.pop(process_id, None)

    def raise_error(self, process_id: int) -> None:
        """Raise the error of a session's notifier, if that has ended its query.

        Raises:
            SqlError: the error.
        """
        error = self._errors.pop(process_id, None)
        if error is not None:
            raise error

    def _notify(self, process_id: int, channel: str | None, payload: str | None) -> str:
        try:
            self._publish(process_id, channel, payload)
        except SqlError as error:
            self._errors[process_id] = error  # DuckDB keeps the text of it only
            raise
        return ""

    def _publish(self, process_id: int, channel: str | None, payload: str | None) -> None:
        notifier = self._notifiers.get(process_id)
        if notifier is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, "this session cannot notify")
        if not channel:
            raise SqlError(INVALID_PARAMETER_VALUE, "channel name cannot be empty")
        notifier(channel, payload or "")
