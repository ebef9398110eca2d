"""The rows of a result that have not been sent yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from server.sql.result_columns import to_result_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.postgres.types import ResultColumn
    from server.sql.query.results import QueryResult


class RowCursor:
    """The rows of a result, from which some are taken at a time.

    Args:
        result: the result.

    Attributes:
        columns: its columns.
        taken: the number of rows taken so far.
        is_finished: whether it is at its end, and keeps nothing any more.
    """

    def __init__(self, result: QueryResult) -> None:
        self.columns: Sequence[ResultColumn] = to_result_columns(result.columns)
        self.taken = 0
        self._result = result
        self._batches = result.batches()
        self._rest: pa.RecordBatch | None = None
        self.is_finished = False

    def take(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the next rows.

        Args:
            limit: the maximum number of rows; None for all.

        Raises:
            SqlError: the query fails or is cancelled.
        """
        left = limit
        while left is None or left > 0:
            batch = self._rest if self._rest is not None else self._next_batch()
            self._rest = None
            if batch is None:
                return
            if left is not None and batch.num_rows > left:
                batch, self._rest = batch.slice(0, left), batch.slice(left)
            if left is not None:
                left -= batch.num_rows
            self.taken += batch.num_rows
            yield batch

    @property
    def has_more(self) -> bool:
        """True if there are rows left, as far as is known without computing them."""
        if self._rest is None:
            self._rest = self._next_batch()
        return self._rest is not None

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self.is_finished = True
        self._rest = None
        self._result.close()

    def _next_batch(self) -> pa.RecordBatch | None:
        while not self.is_finished:
            batch = next(self._batches, None)
            if batch is None:
                self.is_finished = True
            elif batch.num_rows:
                return batch
        return None
