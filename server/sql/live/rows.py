"""The rows of a SUBSCRIBE: the records that are present, and changes as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from server.sql.live.feed import LiveFeed, LiveWait
from server.sql.tables.errors import ColumnsWidenedError, MisfitError

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.live.converter import ChangeConverter, EvaluatedConverter
    from server.sql.query.cancellation import Cancellation

_BATCH_SIZE: Final = 1000
_BATCH_BYTES: Final = 1024 * 1024
"""Changes, and their memory, that are converted at once."""

_PROGRESS_INTERVAL_S: Final = 1.0
"""Time between rows of progress."""


class LiveRows:
    """The rows of a SUBSCRIBE, from which some are taken at a time; see `RowCursor`.

    Args:
        feed: the changes.
        converter: makes rows of them.
        snapshot: the rows of the records that are present, or were at the beginning.
        cancellation: ends it.
        on_misfit: widens the columns of the topic.
        on_close: ends the subscription.
        replayed: makes the rows that come between the snapshot and the changes of the feed.
        has_progress: whether there are rows of progress.

    Attributes:
        columns: its columns.
        taken: the number of rows taken so far.
        is_finished: whether it is at its end.
    """

    def __init__(
        self,
        feed: LiveFeed,
        converter: ChangeConverter | EvaluatedConverter,
        snapshot: Sequence[pa.RecordBatch],
        cancellation: Cancellation,
        on_misfit: Callable[[MisfitError], None],
        on_close: Callable[[], None],
        replayed: Iterator[pa.RecordBatch] | None = None,
        *,
        has_progress: bool,
    ) -> None:
        self.columns = converter.columns
        self.taken = 0
        self.is_finished = False
        self._feed: Final = feed
        self._converter: Final = converter
        self._snapshot = iter(snapshot)
        self._snapshot_left = sum(batch.num_rows for batch in snapshot)
        self._replayed = replayed
        self._cancellation: Final = cancellation
        self._on_misfit: Final = on_misfit
        self._on_close: Final = on_close
        self._has_progress: Final = has_progress
        self._next_progress_s = 0.0  # of the steady clock
        self._converted_s = 0.0  # the time of the last change
        self._rest: pa.RecordBatch | None = None

    def follow(self) -> Iterator[pa.RecordBatch | LiveWait]:
        """Yield all rows, and a wait wherever the next ones are not there yet; without an end.

        Raises:
            SqlError: the subscription has failed, or is cancelled.
        """
        while not self.is_finished:
            yield self._next() or LiveWait(self._feed, self._progress_wait_s)

    def fetch(
        self, limit: int | None, timeout_s: float | None
    ) -> Iterator[pa.RecordBatch | LiveWait]:
        """Yield the next rows, and a wait wherever they are not there yet.

        Args:
            limit: the maximum number of rows; None for all that are there.
            timeout_s: how long to wait for that many; None to wait until there is a row, and then
                return the rows that are there.

        Raises:
            SqlError: the subscription has failed, or is cancelled.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        left = limit
        has_rows = False
        while not self.is_finished and (left is None or left > 0):
            batch = self._next()
            left_s = None if end_s is None else end_s - time.monotonic()
            is_last = has_rows or batch is not None if left_s is None else left_s <= 0
            if batch is None:
                if is_last:
                    return
                waits = [wait for wait in (left_s, self._progress_wait_s) if wait is not None]
                yield LiveWait(self._feed, min(waits, default=None))
                continue
            if left is not None:
                if batch.num_rows > left:
                    batch, self._rest = batch.slice(0, left), batch.slice(left)
                    self.taken -= self._rest.num_rows
                left -= batch.num_rows
            elif is_last and self._replayed is None:
                # rows that arrive while others are sent are left to the next call
                left = self._snapshot_left + self._feed.change_count
            has_rows = True
            yield batch

    @property
    def has_more(self) -> bool:
        """True until it is closed: there may always be further changes."""
        return not self.is_finished

    def close(self) -> None:
        """End the subscription; harmless if it has ended."""
        if not self.is_finished:
            self.is_finished = True
            self._rest = None
            self._snapshot, self._replayed = iter(()), None
            with suppress(RuntimeError):  # the instance is stopping
                self._on_close()

    @property
    def _progress_wait_s(self) -> float | None:
        return max(0.0, self._next_progress_s - time.monotonic()) if self._has_progress else None

    def _next(self) -> pa.RecordBatch | None:
        """Return the next rows; None if there are none at the moment."""
        self._cancellation.check()
        batch = self._rest
        self._rest = None
        if batch is None:
            batch = next(self._snapshot, None)
            self._snapshot_left -= 0 if batch is None else batch.num_rows
        if batch is None:
            try:
                batch = self._next_replayed() or self._next_changes()
            except MisfitError as misfit:
                self._on_misfit(misfit)
                raise ColumnsWidenedError(
                    "a change has a value of another type than its column; subscribe again"
                ) from None
        if batch is not None:
            self.taken += batch.num_rows
        return batch

    def _next_replayed(self) -> pa.RecordBatch | None:
        """Return the next rows between the snapshot and the feed; None if there are no more."""
        if self._replayed is None:
            return None
        for batch in self._replayed:
            if batch.num_rows:
                return batch
        self._replayed = None
        return None

    def _next_changes(self) -> pa.RecordBatch | None:
        moment_s = max(self._feed.progress_s, self._converted_s)
        is_due = self._has_progress and time.monotonic() >= self._next_progress_s
        if is_due and moment_s:
            self._next_progress_s = time.monotonic() + _PROGRESS_INTERVAL_S
            return self._converter.convert_progress(moment_s)
        while changes := self._feed.take(_BATCH_SIZE, _BATCH_BYTES):
            self._converted_s = changes[-1][0]
            batch = self._converter.convert_changes(changes)
            if batch.num_rows:
                return batch
        return None
