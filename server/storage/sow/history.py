"""History: past states of records, and which of them were current at a moment.

A record's states follow each other in time. When an update comes, the state before it is kept if
at least the granularity has passed since the latest kept state; if not, that kept state also covers
the time until the update. So a query of a moment returns states that were published, but perhaps
not the very last before that moment. A deletion is kept as a state that queries never return.

A state is dropped when it has not been current for longer than the window.

The store gets the past states that a change makes before it gets the change. So a crash in between
leaves too many past states, which the next start can detect, and never one too few.

Messages that come together share a moment. If it is known which change was the last one that
counts (`HistoryPoint.sequence`), the places of changes in the instance's order decide instead.

Source: AMPS User Guide, Historical SOW Topic Queries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.storage.sow.records import Record
from server.storage.sow.store import PastVersion, RecordStore

FOREVER: Final = np.iinfo(np.int64).max
NEVER: Final = np.iinfo(np.int64).min


class HistoryPoint(NamedTuple):
    """A point in the past that is queried.

    Attributes:
        timestamp: nanoseconds since 1970.
        sequence: the place of the last change that counts, in the instance's order of changes;
            None if only the moment is known.
    """

    timestamp: int
    sequence: int | None = None


class _StateSpan(NamedTuple):
    """The range in which a state is current: moments, and places in the order of changes."""

    begin: int
    end: int
    first: int
    until: int


_NOWHERE: Final = _StateSpan(FOREVER, NEVER, FOREVER, NEVER)


def _current(record: Record) -> _StateSpan:
    return _StateSpan(record.timestamp, FOREVER, record.sequence, FOREVER)


class _StateSpans:
    """The spans of rows."""

    __slots__ = ("begins", "ends", "firsts", "untils")

    def __init__(self) -> None:
        self.begins = np.empty(0, np.int64)
        self.ends = np.empty(0, np.int64)
        self.firsts = np.empty(0, np.int64)
        self.untils = np.empty(0, np.int64)

    def set_span(self, row: int, span: _StateSpan) -> None:
        """Set the span of a row's state."""
        if row >= len(self.begins):
            count = max(1024, len(self.begins), row + 1 - len(self.begins))
            for name, value in zip(self.__slots__, _NOWHERE, strict=True):
                empty_part = np.full(count, value, np.int64)
                setattr(self, name, np.concatenate([getattr(self, name), empty_part]))
        self.begins[row], self.ends[row], self.firsts[row], self.untils[row] = span

    def end_span(self, row: int, end: int, until: int) -> None:
        """End the span of a row's state."""
        self.ends[row], self.untils[row] = end, until

    def current_at(self, point: HistoryPoint, rows: int) -> NDArray[np.bool_]:
        """Return which of the first rows have states that were current at a point."""
        if point.sequence is None:
            begins, ends, instant = self.begins, self.ends, point.timestamp
        else:
            begins, ends, instant = self.firsts, self.untils, point.sequence
        mask: NDArray[np.bool_] = (begins[:rows] <= instant) & (instant < ends[:rows])
        return mask


class RecordHistory:
    """The past states of one topic; all moments are nanoseconds since 1970.

    Args:
        store: the store of current and past states.
        window: the retention of a state after it was current.
        granularity: the least time between kept states.
    """

    def __init__(self, store: RecordStore, window: int, granularity: int) -> None:
        self._store = store
        self._window = window
        self._granularity = granularity
        self._spans = _StateSpans()
        self._past_rows_by_identity: dict[str, deque[int]] = {}
        self._deletions: set[int] = set()
        self._past_rows_in_order: deque[tuple[str, int]] = deque()
        self._load()

    def _load(self) -> None:
        past_versions = sorted(self._store.past_versions(), key=_in_order)
        for row, past in past_versions:
            self._end_last_span(past.identity, past.record)
            self._add_past_row(row, past)
        for identity, row in self._store.identities():
            record = self._store.read_record(row)
            self._end_last_span(identity, record)
            self._spans.set_span(row, _current(record))

    def shift_times(self, step: int, before: int = FOREVER) -> None:
        """Shift moments by the nanoseconds by which the wall clock was set.

        Args:
            step: nanoseconds.
            before: the place in the order of changes before which moments are shifted.
        """
        spans = self._spans
        spans.begins[(spans.begins != FOREVER) & (spans.firsts < before)] += step
        is_over = (spans.ends != FOREVER) & (spans.ends != NEVER)
        spans.ends[is_over & (spans.untils < before)] += step

    def __len__(self) -> int:
        """Return the number of past states, deletions included."""
        return len(self._past_rows_in_order)

    def plan_past_versions(
        self, identity: str, state: Record, successor: Record, *, deleted: bool
    ) -> list[PastVersion]:
        """Return the past states that a change creates, in their order.

        The store must have them before it has the change: see `find_unfinished`.

        Args:
            identity: the identity of the record.
            state: the record before the change.
            successor: the record after it; for a deletion, the marker of the time without a record.
            deleted: whether the record is deleted.
        """
        states = self._past_rows_by_identity.get(identity)
        row = self._store.find_row(identity)
        begin = state.timestamp if row is None else int(self._spans.begins[row])
        is_covered = (
            states
            and states[-1] not in self._deletions
            and begin - int(self._spans.begins[states[-1]]) < self._granularity
        )
        past_versions = [] if is_covered else [PastVersion(identity, state, is_deleted=False)]
        return (
            [*past_versions, PastVersion(identity, successor, is_deleted=True)]
            if deleted
            else past_versions
        )

    def record_change(
        self,
        identity: str,
        row: int,
        successor: Record,
        past_versions: Sequence[tuple[int, PastVersion]],
        *,
        deleted: bool,
    ) -> None:
        """Update the spans after a change of a record that the store has.

        Args:
            identity: the identity of the record.
            row: the record's row.
            successor: see `plan_past_versions`.
            past_versions: the past states that the change created, with their rows.
            deleted: whether the record was deleted.
        """
        # Not the state's timestamp: the span was shifted when the wall clock was set.
        begin = int(self._spans.begins[row]) if past_versions else 0
        self._spans.set_span(row, _NOWHERE if deleted else _current(successor))
        for past_row, past in past_versions:
            if not past.is_deleted:
                self._add_past_row(past_row, past)
                self._spans.begins[past_row] = begin
        self._end_last_span(identity, successor)
        for past_row, past in past_versions:
            if past.is_deleted:
                self._add_past_row(past_row, past)

    def _add_past_row(self, row: int, past: PastVersion) -> None:
        self._past_rows_by_identity.setdefault(past.identity, deque()).append(row)
        self._past_rows_in_order.append((past.identity, row))
        timestamp, sequence = past.record.timestamp, past.record.sequence
        self._spans.set_span(row, _StateSpan(timestamp, timestamp, sequence, sequence))
        if past.is_deleted:
            self._deletions.add(row)

    def _end_last_span(self, identity: str, successor: Record) -> None:
        states = self._past_rows_by_identity.get(identity)
        if states and states[-1] not in self._deletions:
            self._spans.end_span(states[-1], successor.timestamp, successor.sequence)

    def find_outdated(self, now: int) -> int | None:
        """Return the row of the oldest state if it is older than the window, None if not.

        Args:
            now: the time in nanoseconds since 1970.
        """
        if not self._past_rows_in_order:
            return None
        row = self._past_rows_in_order[0][1]
        return row if self._spans.ends[row] < now - self._window else None

    def drop_oldest(self) -> None:
        """Drop the oldest state.

        Raises:
            RecordStoreError: there is no space to record that; nothing has changed.
        """
        identity, row = self._past_rows_in_order[0]
        self._store.delete_past(row)
        self._past_rows_in_order.popleft()
        states = self._past_rows_by_identity[identity]
        states.popleft()
        if not states:
            del self._past_rows_by_identity[identity]
        self._deletions.discard(row)
        self._spans.set_span(row, _NOWHERE)

    def next_trim(self) -> int | None:
        """Return the moment after which a state has to be dropped, None if there is none."""
        if not self._past_rows_in_order:
            return None
        return int(self._spans.ends[self._past_rows_in_order[0][1]]) + self._window + 1

    def current_rows_at(self, point: HistoryPoint, now: int) -> NDArray[np.bool_] | None:
        """Return for each row whether its state was the current one at a point.

        Returns:
            None if the point lies before the window, for which no states are known.
        """
        if point.timestamp < now - self._window:
            return None
        return self._spans.current_at(point, self._store.row_capacity)

    def find_oldest_inexact(self, point: HistoryPoint) -> int | None:
        """Return the row of the oldest past state at a point that may cover later ones not kept.

        Returns:
            None if all states at that point are known to be exact.
        """
        if not self._granularity:
            return None
        row_capacity = self._store.row_capacity
        mask = self._spans.current_at(point, row_capacity) & (
            self._spans.ends[:row_capacity] != FOREVER
        )
        rows = np.flatnonzero(mask)
        return int(rows[np.argmin(self._spans.begins[rows])]) if len(rows) else None

    def past_rows(self, identity: str) -> list[int]:
        """Return the rows of a record's past states."""
        return list(self._past_rows_by_identity.get(identity, ()))


class IncompleteChanges(NamedTuple):
    """Remains of changes of which a crash let only the past states be stored.

    Attributes:
        rows: past states that end with a change that the record lacks.
        deletions: records with a deletion that lacks only its last entry, each with its sequence.
    """

    rows: list[int]
    deletions: dict[str, int]


def find_unfinished(
    store: RecordStore, past: Iterable[tuple[int, PastVersion]]
) -> IncompleteChanges:
    """Find the past states that were stored without the change that made them.

    A change of a record is stored in several steps: first the state that it ends, then the marker
    of a deletion, then the change itself. The marker has the sequence of the deletion, so a record
    that is older than its marker is deleted. Any other past state that is not older than its record
    is a copy of that record: its next change is not stored.

    Changes before records got other keys were complete by then, and their markers may have the key
    of another record now.

    Args:
        store: the records.
        past: their past states, with their rows.
    """
    rows: dict[int, str] = {}
    deletions: dict[str, int] = {}
    for row, version in past:
        current = store.find_row(version.identity)
        if current is None or version.record.sequence <= store.header.rekey_sequence:
            continue
        record = store.read_record(current)
        if version.record.sequence < record.sequence:
            continue
        if version.is_deleted and version.record.sequence > record.sequence:
            deletions[version.identity] = version.record.sequence
        else:
            rows[row] = version.identity
    return IncompleteChanges(
        [row for row, identity in rows.items() if identity not in deletions], deletions
    )


def _in_order(item: tuple[int, PastVersion]) -> tuple[int, int, bool]:
    """Return the sort key of changes: their sequences, since clocks may have been set back."""
    _, past = item
    return past.record.sequence, past.record.timestamp, past.is_deleted
