"""The interface of a record store: rows of records, found by identity, that can be made durable.

A store numbers its records: a *row* is a small integer that stays with a record from its first
version to its deletion, and is then given to another. Columns and snapshots are arrays over rows.

An *identity* is the text that identifies a record: the SOW key, or the topic and the key in a topic
with a Pattern (see `identity_of`).

All calls come from the engine's thread. Two implementations pass the same suite of tests:
`MemoryStore` and `FileStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeAlias

from server.message_types.bulk import JoinedBodies
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record


class RecordStoreError(Exception):
    """A change cannot be stored, or a record cannot be read. The text is for the client.

    The store is as it was before.
    """


class RecordTooLargeError(RecordStoreError):
    """A record is larger than the store accepts."""


StoreCallback: TypeAlias = Callable[[RecordStoreError | None], None]
"""Called once, when the changes are on stable storage, or with the reason why they may not be."""


class PastVersion(NamedTuple):
    """A past state of a record, kept for historical queries.

    Attributes:
        identity: the identity of the record.
        record: the state; its body is empty if `is_deleted`.
        is_deleted: the record was deleted at `record.timestamp`.
    """

    identity: str
    record: Record
    is_deleted: bool


class PutResult(NamedTuple):
    """The outcome of putting a batch.

    Attributes:
        end: the place of the first record that has not been put; the batch's length if all have.
        rows: the rows of the records that have been put.
        added_rows: the rows among these that belong to new records.
        problem: why the record at `end` cannot be put; None if it has not been tried.
    """

    end: int
    rows: Sequence[int]
    added_rows: Sequence[int]
    problem: RecordStoreError | None = None


class PreviousVersions(NamedTuple):
    """The earlier states of records that have changed since; see
    `RecordStore.find_previous_versions`.

    Attributes:
        states: by identity, the earlier states; None for a record that did not exist.
        unknown_identities: the identities of records with an earlier state that the store no longer
            has.
    """

    states: dict[str, Record | None]
    unknown_identities: set[str]


class StoreStatistics(NamedTuple):
    """The size of a store; zeros where a figure does not apply to the store.

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


class ChainFilePosition(NamedTuple):
    """The part of a topic's file of chained ids that is on stable storage; zeros if unknown.

    Attributes:
        until_sequence: the sequence up to which the ids of all messages are stored.
        size: the size of the file at that time, in bytes.
    """

    until_sequence: int = 0
    size: int = 0


MAX_CHANGE_SEQUENCE: Final = (1 << 64) - 1
"""A sequence that no change has."""


class StoreHeader(Protocol):
    """Values that a store has for as long as its records are kept; durable with the next commit.

    Attributes:
        key_scheme_digest: a digest of the way in which all records got their SOW keys; 0 if it is
            unknown, or if there is no single way.
        rekey_sequence: the last sequence before records got other SOW keys; 0 if they never did.
            Deletions up to it name keys that other records may have now.
        unlogged_until: the highest sequence of the changes noted to be in no transaction log; 0 if
            there are none, `MAX_CHANGE_SEQUENCE` if all following changes are such.
        chain_file_position: the part of the file of chained ids that is on stable storage.
    """

    key_scheme_digest: int
    rekey_sequence: int
    unlogged_until: int
    chain_file_position: ChainFilePosition


class RecordStore(Protocol):
    """Holds the records of a topic."""

    @property
    def header(self) -> StoreHeader:
        """The values of the store as a whole; changes are durable with the next commit."""

    @property
    def row_capacity(self) -> int:
        """One more than the highest row in use so far."""

    @property
    def last_sequence(self) -> int:
        """The highest sequence of any change that the store has seen, deletions included."""

    @property
    def statistics(self) -> StoreStatistics:
        """The size of the store."""

    def resident_share(self) -> float:
        """Return the share of the content that is in memory, 0 to 1; for files, from samples."""

    def __len__(self) -> int:
        """Return the number of records, without past states."""

    def find_row(self, identity: str) -> int | None:
        """Return the row of a record; None if there is none."""

    def read_record(self, row: int) -> Record:
        """Read a row that is in use.

        Raises:
            RecordStoreError: it is lost.
        """

    def read_bodies(self, rows: Sequence[int]) -> list[bytes]:
        """Read the bodies of rows that are in use.

        Raises:
            RecordStoreError: one of them is lost.
        """

    def read_joined_bodies(self, rows: Sequence[int]) -> JoinedBodies:
        """Read the bodies of rows that are in use, joined; an empty one for each negative number.

        Raises:
            RecordStoreError: one of them is lost.
        """

    def read_records(self, rows: Sequence[int]) -> list[Record]:
        """Read rows that are in use.

        Raises:
            RecordStoreError: one of them is lost.
        """

    def identities(self) -> Iterator[tuple[str, int]]:
        """Iterate over identity and row of every record; the store must not change meanwhile."""

    def ensure_space(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """Make sure that the store has space to put, delete or keep these next, in sequence.

        Args:
            records: the records to be written.
            to_delete: they serve deletions, which may use the space reserved for deletions.

        Raises:
            RecordStoreError: there is no space, or a record is too large. Nothing has changed.
        """

    def ensure_space_for_batch(self, batch: SowRecordBatch) -> None:
        """Make sure that the store has space to put a batch of records next. See `ensure_space`.

        Raises:
            RecordStoreError: as for `ensure_space`.
        """

    def pause_cleaning(self) -> None:
        """Let only puts and deletions write from now on, into the space made for them."""

    def resume_cleaning(self) -> None:
        """Let cleaning write again, and catch up with the puts made meanwhile."""

    def put(self, identity: str, record: Record) -> int:
        """Insert or replace a record.

        Returns:
            Its row.

        Raises:
            RecordStoreError: there is no space, or the record is larger than the store accepts.
        """

    def put_batch(self, batch: SowRecordBatch, start: int) -> PutResult:
        """Insert or replace the records of a batch; the first that cannot be put ends it.

        Args:
            batch: the records.
            start: the place of the first of them.
        """

    def delete(self, identity: str, sequence: int) -> int:
        """Remove a record that exists.

        Returns:
            The row that it had.

        Raises:
            RecordStoreError: there is no space to record the deletion.
        """

    def put_past(self, past: PastVersion) -> int:
        """Store a past state in a row of its own, which no identity maps to.

        Raises:
            RecordStoreError: as for `put`.
        """

    def delete_past(self, row: int) -> None:
        """Remove a past state.

        Raises:
            RecordStoreError: there is no space to record the removal.
        """

    def past_versions(self) -> Iterator[tuple[int, PastVersion]]:
        """Iterate over the past states, each with its row."""

    def find_previous_versions(self, sequence: int) -> PreviousVersions:
        """Return the states, at a sequence, of records that entries of the log changed since.

        Call it before any change is made after the store was opened.

        Raises:
            RecordStoreError: the states cannot be read.
        """

    def commit(self, callback: StoreCallback | None = None) -> None:
        """Request that all changes so far are put on stable storage; does not wait.

        Changes that could not be put there are part of the next commit.

        Args:
            callback: called on the engine's thread after the attempt.
        """

    def compact(self) -> Iterator[None]:
        """Free unused space, in slices between which records may change.

        Raises:
            RecordStoreError: there is no space to work in.
        """

    def close(self) -> None:
        """Commit, wait for the commit, and release all resources."""


def identity_of(record: Record, *, pattern: bool) -> str:
    """Return the text that identifies a record within its store.

    Args:
        record: the record.
        pattern: whether the store holds many logical topics.
    """
    return f"{record.topic}\0{record.key}" if pattern else record.key


@contextmanager
def cleaning_paused(stores: Sequence[RecordStore]) -> Iterator[None]:
    """Return a context in which only puts and deletions write to some stores."""
    for store in stores:
        store.pause_cleaning()
    try:
        yield
    finally:
        for store in stores:
            store.resume_cleaning()
