"""The rules for writes in transaction blocks.

Published messages cannot be taken back, so a block of writes cannot be rolled back. By default,
writes are refused in blocks. With the setting `amperage.writes = immediate` they take effect at
once, and a ROLLBACK behind them is an error: it ends the block, and says that the rows stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.sql.query.errors import SqlError
from server.sql.query.session import IMMEDIATE, WRITES_SETTING
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, READ_ONLY_SQL_TRANSACTION

if TYPE_CHECKING:
    from server.sql.query.session import SqlSession
    from server.sql.query.statement import Statement


class TransactionBlock:
    """The writes of a client's transaction block.

    Args:
        session: the client's settings.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session: Final = session
        self._is_read_only = False
        self._written_rows = 0

    def begin(self, statement: Statement) -> None:
        """Begin a block, or change the mode of the current one."""
        self._is_read_only |= "READ ONLY" in statement.options

    def check_write(self, name: str, *, is_in_block: bool) -> None:
        """Raise an error if a statement may not write now.

        Args:
            name: the statement's name.
            is_in_block: whether there is a block.

        Raises:
            SqlError: it may not.
        """
        session = self._session
        settings = ("transaction_read_only", "default_transaction_read_only")
        is_read_only = self._is_read_only and is_in_block
        if is_read_only or any((session.setting(one) or "").lower() in _ON for one in settings):
            raise SqlError(
                READ_ONLY_SQL_TRANSACTION, f"cannot execute {name} in a read-only transaction"
            )
        if is_in_block and session.setting(WRITES_SETTING) != IMMEDIATE:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f"{name} in a transaction block is not supported",
                detail="A message cannot be taken back: a block of writes could not be rolled"
                " back.",
                hint="Write in autocommit mode. SET amperage.writes = immediate allows writes in"
                " blocks: each takes effect at once, and ROLLBACK after it is an error.",
            )

    def add_rows(self, count: int) -> None:
        """Count rows that were written."""
        self._written_rows += count

    def end(self, *, is_rollback: bool) -> None:
        """End the block.

        Raises:
            SqlError: it should undo writes.
        """
        count, self._written_rows = self._written_rows, 0
        self._is_read_only = False
        if count and is_rollback:
            raise self._not_undone(count)

    def check_partial_rollback(self) -> None:
        """Raise an error if a rollback to a savepoint would have to undo writes.

        Raises:
            SqlError: it would.
        """
        if self._written_rows:
            raise self._not_undone(self._written_rows)

    @staticmethod
    def _not_undone(count: int) -> SqlError:
        rows = "1 row was" if count == 1 else f"{count} rows were"
        return SqlError(
            FEATURE_NOT_SUPPORTED,
            "the writes of this transaction block are not rolled back",
            detail=f"{rows} written, by amperage.writes = immediate.",
        )


_ON: Final = frozenset({"on", "true", "yes", "1", "t", "y"})
