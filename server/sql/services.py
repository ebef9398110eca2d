"""What all SQL connections of an instance share: processes, threads, columns, cancel keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from server.sql.query.query_engine import QueryEngine, QueryLimits
from server.sql.statement_threads import StatementThreads
from server.sql.tables.instance_tables import InstanceTables

if TYPE_CHECKING:
    from server.engine.engine import Engine


class CancelKey(NamedTuple):
    """The key of a connection by which another one can cancel its statement.

    Attributes:
        process_id: the number of the connection.
        secret: a random number of 32 bits.
    """

    process_id: int
    secret: int


class SqlServices:
    """The shared parts of the SQL connections of an instance.

    Args:
        engine: the engine of the instance.
        limits: the limits of queries.
        slow_query_s: the execution time in seconds from which on statements are logged; None: none
            is.

    Attributes:
        tables: the columns of the topics.
        workers: runs statements.
        limits: the limits of queries.
        slow_query_s: see above.
        query_engine: executes queries; the first one starts a process.
    """

    def __init__(
        self, engine: Engine, limits: QueryLimits, slow_query_s: float | None = None
    ) -> None:
        self.tables: Final = InstanceTables(engine)
        self.workers: Final = StatementThreads()
        self.limits = limits
        self.slow_query_s = slow_query_s
        self.query_engine: Final = QueryEngine(limits)
        self._cancel_functions: dict[CancelKey, Callable[[], None]] = {}

    def close(self) -> None:
        """End the query processes, and drop the segments of tables."""
        self.query_engine.close()
        self.tables.segments.close()

    def use_limits(self, limits: QueryLimits, slow_query_s: float | None) -> None:
        """Replace the limits of statements from now on.

        Args:
            limits: see `SqlServices`; that of the memory of records is for new connections.
            slow_query_s: likewise, for new connections.
        """
        self.limits = limits
        self.query_engine.use_limits(limits)
        self.slow_query_s = slow_query_s

    def add_cancel_key(self, key: CancelKey, cancel: Callable[[], None]) -> None:
        """Register the function that cancels the statement of a connection."""
        self._cancel_functions[key] = cancel

    def remove_cancel_key(self, key: CancelKey) -> None:
        """Remove the key of a connection that has ended."""
        self._cancel_functions.pop(key, None)

    def cancel(self, key: CancelKey) -> bool:
        """Cancel the statement of a connection; return whether the key is that of one."""
        cancel = self._cancel_functions.get(key)
        if cancel is None:
            return False
        cancel()
        return True
