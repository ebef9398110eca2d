"""The contract of a record store: rows of records, found by identity, that can be made durable.

A store numbers its records: a *row* is a small integer that stays with a record from its first
version to its deletion, and is then given to another. Columns and snapshots are arrays over rows.

An *identity* is the text that tells records apart: the SOW key, or the topic and the key in a topic
with a Pattern (see `identity_of`).

All calls come from the engine's thread. Two implementations pass the same suite of tests:
`MemoryStore` and `FileStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol, TypeAlias

from server.message_types.bulk import JoinedBodies
from server.sow.record_run import RecordRun
from server.sow.records import Record


class StoreError(Exception):
    """A change cannot be stored, or a record not be read any more. The text is for whoever asked.

    The store is as it was before.
    """


class RecordTooLarge(StoreError):
    """A record is larger than the store takes any."""


Settled: TypeAlias = Callable[[StoreError | None], None]
"""Called once when what was written is on stable storage, or with the reason why it may not be."""


class Superseded(NamedTuple):
    """A past state of a record, kept for historical queries.

    Attributes:
        identity: the identity of the record that it was a state of.
        record: the state; its body is empty if `deleted`.
        deleted: the record was deleted at `record.timestamp`.
    """

    identity: str
    record: Record
    deleted: bool


class PutRun(NamedTuple):
    """How far a run has been put.

    Attributes:
        end: the place of the first record that has not been put; their number if all have.
        rows: of those that have been.
        added: the rows among these that are of new records.
        problem: why that first one cannot be put; None if it has not been tried.
    """

    end: int
    rows: Sequence[int]
    added: Sequence[int]
    problem: StoreError | None = None


class Earlier(NamedTuple):
    """What records were that have changed since; see `RecordStore.earlier`.

    Attributes:
        states: by identity, what they were; None for one that was not there.
        unknown: the identities of those of which the store does not know it any more.
    """

    states: dict[str, Record | None]
    unknown: set[str]


class Statistics(NamedTuple):
    """How much a store holds; zeros where a store has no such thing.

    Attributes:
        records: current records and past states.
        stored_bytes: bytes of the records, with their headers.
        allocated_bytes: bytes that the store occupies.
        slab_size: bytes of one slab.
        slabs: slabs allocated.
        path: the file.
        maps: memory maps of it.
    """

    records: int
    stored_bytes: int
    allocated_bytes: int
    slab_size: int = 0
    slabs: int = 0
    path: str = ""
    maps: int = 0


class StoredChains(NamedTuple):
    """How far the file of chained ids of a topic is on stable storage; zeros if that is unknown.

    Attributes:
        until: the sequence up to which the ids of all messages are.
        size: bytes that the file then had.
    """

    until: int = 0
    size: int = 0


ALWAYS: Final = (1 << 64) - 1
"""A sequence that no change has."""


class RecordStore(Protocol):
    """Where a topic's records are."""

    @property
    def rows(self) -> int:
        """One more than the highest row in use so far."""

    @property
    def last_sequence(self) -> int:
        """The highest sequence of any change that the store has seen, deletions included."""

    @property
    def key_mark(self) -> int:
        """What stands for the way in which all of its records got their SOW keys; 0 if unknown."""

    def note_keys(self, mark: int) -> None:
        """Note that way, as long as the records are kept.

        Args:
            mark: what stands for it; 0 if there is no single one.
        """

    @property
    def rekeyed_at(self) -> int:
        """The last sequence before records got other SOW keys; 0 if they never did.

        Deletions up to it name keys that other records may have now.
        """

    def note_rekeying(self, sequence: int) -> None:
        """Note that, as long as the records are kept. See `rekeyed_at`."""

    @property
    def beside_log_until(self) -> int:
        """The highest sequence of those changes that were noted to be in no transaction log.

        0 if none were, `ALWAYS` if all are that come next.
        """

    def note_beside_log(self, until: int) -> None:
        """Note that as long as the records are kept. See `beside_log_until`."""

    @property
    def stored_chains(self) -> StoredChains:
        """How far chained ids were noted to be on stable storage."""

    def note_chains(self, stored: StoredChains) -> None:
        """Note that as long as the records are kept. See `stored_chains`."""

    @property
    def statistics(self) -> Statistics:
        """How much the store holds."""

    def resident_share(self) -> float:
        """How much of what it holds is in memory, from 0 to 1; of what is in a file, by samples."""

    def __len__(self) -> int:
        """The number of records, past states not counted."""

    def row(self, identity: str) -> int | None:
        """Find a record; None if there is none."""

    def record(self, row: int) -> Record:
        """Read a row that is in use.

        Raises:
            StoreError: it is lost.
        """

    def bodies(self, rows: Sequence[int]) -> list[bytes]:
        """Read the bodies of rows that are in use.

        Raises:
            StoreError: one of them is lost.
        """

    def joined_bodies(self, rows: Sequence[int]) -> JoinedBodies:
        """Read the bodies of rows that are in use, joined; an empty one for each negative number.

        Raises:
            StoreError: one of them is lost.
        """

    def records(self, rows: Sequence[int]) -> list[Record]:
        """Read rows that are in use.

        Raises:
            StoreError: one of them is lost.
        """

    def identities(self) -> Iterator[tuple[str, int]]:
        """Every record's identity and row; the store must not change meanwhile."""

    def make_room(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """Make sure that these can be put, deleted or kept next, one after the other.

        Args:
            records: what is to be written.
            to_delete: it serves deletions, which may use room that is kept for them.

        Raises:
            StoreError: there is no room, or one is too large. Nothing has changed.
        """

    def make_room_for_run(
        self, topic: str, bodies: Sequence[bytes], correlation_ids: Sequence[str] = ()
    ) -> None:
        """Make sure that the records of a run can be put next. See `make_room`.

        Args:
            topic: theirs.
            bodies: theirs.
            correlation_ids: theirs; empty if there are none.

        Raises:
            StoreError: as there.
        """

    def undisturbed(self) -> AbstractContextManager[None]:
        """Within this, nothing is written but what is put or deleted: that has the room made."""

    def put(self, identity: str, record: Record) -> int:
        """Insert or replace a record.

        Returns:
            Its row.

        Raises:
            StoreError: there is no room, or the record is larger than the store takes.
        """

    def put_run(self, run: RecordRun, start: int) -> PutRun:
        """Insert or replace the records of a run; what is the matter with one ends it.

        Args:
            run: the records, of a store that does not hold many logical topics.
            start: the place of the first of them.
        """

    def delete(self, identity: str, sequence: int) -> int:
        """Remove a record that exists.

        Returns:
            The row that it had.

        Raises:
            StoreError: there is no room to write that down.
        """

    def keep(self, past: Superseded) -> int:
        """Store a past state in a row of its own, which no identity finds.

        Raises:
            StoreError: as for `put`.
        """

    def drop(self, row: int) -> None:
        """Remove a past state.

        Raises:
            StoreError: there is no room to write that down.
        """

    def past(self) -> Iterator[tuple[int, Superseded]]:
        """Every past state with its row."""

    def earlier(self, sequence: int) -> Earlier:
        """What the records were, of those changed since by entries of the log, at some sequence.

        Called before anything has been changed since the store was opened.

        Raises:
            StoreError: it cannot be read.
        """

    def commit(self, then: Settled | None = None) -> None:
        """Ask for all changes so far to be put on stable storage; does not wait.

        What could not be put there is part of the next commit.

        Args:
            then: called on the engine's thread when it has been tried.
        """

    def compact(self) -> Iterator[None]:
        """Give unused space back, in slices between which records may change.

        Raises:
            StoreError: there is no room to work in.
        """

    def close(self) -> None:
        """Commit, wait for that, and let go of all resources."""


def identity_of(record: Record, *, pattern: bool) -> str:
    """What tells a record apart within its store.

    Args:
        record: the record.
        pattern: whether the store holds many logical topics.
    """
    return f"{record.topic}\0{record.key}" if pattern else record.key
