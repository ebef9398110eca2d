"""Past states of records: what a topic with History keeps, and which of them held at a moment.

A record's states follow each other in time. When an update comes, the state before it is kept if
at least the granularity has passed since the state kept last; if not, the state kept last goes on
standing for the time until the update. So a query of a moment gives states that were published, but
perhaps not the very last before that moment. A deletion is kept as a state that nobody sees.

A state is dropped when it has not been current for longer than the window.

Source: AMPS User Guide, Historical SOW Topic Queries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.sow.records import Record
from server.sow.store import RecordStore, Superseded

FOREVER: Final = np.iinfo(np.int64).max
NEVER: Final = np.iinfo(np.int64).min


class History:
    """The past states of one topic; all moments are nanoseconds since 1970.

    Args:
        store: where current and past states are.
        window: how long a state is kept after it was current.
        granularity: the least time between states that are kept.
    """

    def __init__(self, store: RecordStore, window: int, granularity: int) -> None:
        self._store = store
        self._window = window
        self._granularity = granularity
        self._begins = np.full(1024, FOREVER, np.int64)
        self._ends = np.full(1024, NEVER, np.int64)
        self._states: dict[str, deque[int]] = {}
        self._deletions: set[int] = set()
        self._kept: deque[tuple[str, int]] = deque()
        self._recover()

    def _recover(self) -> None:
        found = sorted(self._store.past(), key=_chronological)
        for row, past in found:
            self._end_last(past.identity, past.record.timestamp)
            self._file(row, past)
        for identity, row in self._store.identities():
            timestamp = self._store.record(row).timestamp
            self._end_last(identity, timestamp)
            self._lasts(row, timestamp, FOREVER)

    def __len__(self) -> int:
        """How many past states there are, deletions included."""
        return len(self._kept)

    def updated(
        self, identity: str, row: int, record: Record, previous: Record | None
    ) -> list[int]:
        """A record was inserted or replaced, in a row.

        Returns:
            Rows that past states now have.
        """
        kept = self._keep_state(identity, previous, record.timestamp) if previous else []
        self._lasts(row, record.timestamp, FOREVER)
        return kept

    def deleted(self, identity: str, row: int, previous: Record, moment: int) -> list[int]:
        """A record was deleted.

        Returns:
            Rows that past states now have.
        """
        kept = self._keep_state(identity, previous, moment)
        marker = previous._replace(body=b"", timestamp=moment, expires=0, bookmark="")
        if row not in kept:
            self._lasts(row, FOREVER, NEVER)
        return [*kept, self._keep(Superseded(identity, marker, deleted=True))]

    def _keep_state(self, identity: str, state: Record, end: int) -> list[int]:
        """Keep a state that ends, or let the one before it stand for its time."""
        states = self._states.get(identity)
        if states and states[-1] not in self._deletions:
            since = state.timestamp - int(self._begins[states[-1]])
            if since < self._granularity:
                self._ends[states[-1]] = end
                return []
        row = self._keep(Superseded(identity, state, deleted=False))
        self._ends[row] = end
        return [row]

    def _keep(self, past: Superseded) -> int:
        row = self._store.keep(past)
        self._file(row, past)
        return row

    def _file(self, row: int, past: Superseded) -> None:
        self._states.setdefault(past.identity, deque()).append(row)
        self._kept.append((past.identity, row))
        self._lasts(row, past.record.timestamp, past.record.timestamp)
        if past.deleted:
            self._deletions.add(row)

    def _end_last(self, identity: str, moment: int) -> None:
        states = self._states.get(identity)
        if states and states[-1] not in self._deletions:
            self._ends[states[-1]] = moment

    def _lasts(self, row: int, begin: int, end: int) -> None:
        if row >= len(self._begins):
            more = max(len(self._begins), row + 1 - len(self._begins))
            self._begins = np.concatenate([self._begins, np.full(more, FOREVER, np.int64)])
            self._ends = np.concatenate([self._ends, np.full(more, NEVER, np.int64)])
        self._begins[row] = begin
        self._ends[row] = end

    def trim(self, now: int) -> Iterator[int]:
        """Drop states that are older than the window; gives their rows before they are dropped."""
        horizon = now - self._window
        while self._kept and self._ends[self._kept[0][1]] < horizon:
            identity, row = self._kept[0]
            yield row
            self._kept.popleft()
            states = self._states[identity]
            states.popleft()
            if not states:
                del self._states[identity]
            self._deletions.discard(row)
            self._lasts(row, FOREVER, NEVER)
            self._store.drop(row)

    def next_trim(self) -> int | None:
        """The moment after which a state has to be dropped, None if there is none."""
        return int(self._ends[self._kept[0][1]]) + self._window + 1 if self._kept else None

    def standing(self, moment: int, now: int) -> NDArray[np.bool_] | None:
        """For each row whether its state was the current one at a moment.

        Returns:
            None if the moment lies before the window, of which nothing is known.
        """
        if moment < now - self._window:
            return None
        rows = self._store.rows
        found: NDArray[np.bool_] = (self._begins[:rows] <= moment) & (moment < self._ends[:rows])
        return found

    def oldest_doubtful(self, moment: int) -> int | None:
        """The row of the oldest past state of a moment that may stand for later ones not kept.

        Returns:
            None if all states of that moment are known to be exactly those.
        """
        if not self._granularity:
            return None
        rows = self._store.rows
        begins, ends = self._begins[:rows], self._ends[:rows]
        found = np.flatnonzero((begins <= moment) & (moment < ends) & (ends != FOREVER))
        return int(found[np.argmin(begins[found])]) if len(found) else None

    def rows(self, identity: str) -> list[int]:
        """The rows of a record's past states."""
        return list(self._states.get(identity, ()))


def _chronological(item: tuple[int, Superseded]) -> tuple[int, int, bool]:
    _, past = item
    return past.record.timestamp, past.record.sequence, past.deleted
