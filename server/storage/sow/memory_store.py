"""A record store in memory, for transient topics, views and conflated topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from mypy_extensions import mypyc_attr

from server.message_types.bulk import JoinedBodies, join
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record
from server.storage.sow.store import (
    ChainFilePosition,
    PastVersion,
    PreviousVersions,
    PutResult,
    StoreCallback,
    StoreStatistics,
)

_Fields: TypeAlias = tuple[object, ...]


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryStore:
    """A `RecordStore` that loses its content when the process ends; its commit does nothing."""

    __slots__ = ("_free", "_past", "_records", "_rows", "_sequence", "_stored_bytes")

    def __init__(self) -> None:
        # Plain tuples: unlike instances of classes, the garbage collector stops tracking them.
        self._records: list[_Fields | None] = []
        self._rows: dict[str, int] = {}
        self._past: dict[int, PastVersion] = {}
        self._free: list[int] = []
        self._sequence = 0
        self._stored_bytes = 0

    @property
    def rows(self) -> int:
        """See `RecordStore.rows`."""
        return len(self._records)

    @property
    def last_sequence(self) -> int:
        """See `RecordStore.last_sequence`."""
        return self._sequence

    @property
    def key_mark(self) -> int:
        """See `RecordStore.key_mark`; nothing outlives the store."""
        return 0

    def note_keys(self, mark: int) -> None:
        """See `RecordStore.note_keys`."""

    @property
    def rekeyed_at(self) -> int:
        """See `RecordStore.rekeyed_at`; nothing outlives the store."""
        return 0

    def note_rekeying(self, sequence: int) -> None:
        """See `RecordStore.note_rekeying`."""

    @property
    def beside_log_until(self) -> int:
        """See `RecordStore.beside_log_until`; nothing outlives the store."""
        return 0

    def note_beside_log(self, until: int) -> None:
        """See `RecordStore.note_beside_log`."""

    @property
    def stored_chains(self) -> ChainFilePosition:
        """See `RecordStore.stored_chains`; nothing outlives the store."""
        return ChainFilePosition()

    def note_chains(self, stored: ChainFilePosition) -> None:
        """See `RecordStore.note_chains`."""

    @property
    def statistics(self) -> StoreStatistics:
        """See `RecordStore.statistics`."""
        stored = self._stored_bytes
        return StoreStatistics(len(self._rows) + len(self._past), stored, stored)

    def resident_share(self) -> float:
        """See `RecordStore.resident_share`."""
        return 1.0

    def __len__(self) -> int:
        """See `RecordStore.__len__`."""
        return len(self._rows)

    def row(self, identity: str) -> int | None:
        """See `RecordStore.row`."""
        return self._rows.get(identity)

    def record(self, row: int) -> Record:
        """See `RecordStore.record`."""
        fields = self._records[row]
        if fields is None:
            raise KeyError(row)
        return Record._make(fields)

    def bodies(self, rows: Sequence[int]) -> list[bytes]:
        """See `RecordStore.bodies`."""
        return [self.record(row).body for row in rows]

    def joined_bodies(self, rows: Sequence[int]) -> JoinedBodies:
        """See `RecordStore.joined_bodies`."""
        return join([b"" if row < 0 else self.record(row).body for row in rows])

    def records(self, rows: Sequence[int]) -> list[Record]:
        """See `RecordStore.records`."""
        return [self.record(row) for row in rows]

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `RecordStore.identities`."""
        return iter(self._rows.items())

    def make_room(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """See `RecordStore.make_room`; there is always space."""

    def make_room_for_run(
        self, topic: str, bodies: Sequence[bytes], correlation_ids: Sequence[str] = ()
    ) -> None:
        """See `RecordStore.make_room_for_run`; there is always space."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """See `RecordStore.undisturbed`."""
        return nullcontext()

    def put(self, identity: str, record: Record) -> int:
        """See `RecordStore.put`."""
        row = self._rows.get(identity)
        if row is None:
            row = self._rows[identity] = self._add(tuple(record), len(record.body))
        else:
            self._replace(row, tuple(record), len(record.body))
        self._sequence = max(self._sequence, record.sequence)
        return row

    def put_run(self, run: SowRecordBatch, start: int) -> PutResult:
        """See `RecordStore.put_run`."""
        rows: list[int] = []
        added: list[int] = []
        for key, body, fields in zip(
            run.keys[start:], run.bodies[start:], run.fields(start), strict=True
        ):
            identity = str(key)
            row = self._rows.get(identity)
            if row is None:
                row = self._rows[identity] = self._add(fields, len(body))
                added.append(row)
            else:
                self._replace(row, fields, len(body))
            rows.append(row)
        if rows:
            self._sequence = max(self._sequence, run.sequences[-1])
        return PutResult(start + len(rows), rows, added)

    def delete(self, identity: str, sequence: int) -> int:
        """See `RecordStore.delete`."""
        row = self._rows.pop(identity)
        self._remove(row)
        self._sequence = max(self._sequence, sequence)
        return row

    def keep(self, past: PastVersion) -> int:
        """See `RecordStore.keep`."""
        row = self._add(tuple(past.record), len(past.record.body))
        self._past[row] = past
        return row

    def drop(self, row: int) -> None:
        """See `RecordStore.drop`."""
        del self._past[row]
        self._remove(row)

    def past(self) -> Iterator[tuple[int, PastVersion]]:
        """See `RecordStore.past`."""
        return iter(self._past.items())

    def earlier(self, sequence: int) -> PreviousVersions:
        """See `RecordStore.earlier`; superseded states are not kept."""
        changed = (
            identity for identity, row in self._rows.items() if self._is_later(row, sequence)
        )
        return PreviousVersions({}, set(changed))

    def _is_later(self, row: int, sequence: int) -> bool:
        record = self.record(row)
        return record.sequence > sequence and bool(record.bookmark)

    def commit(self, then: StoreCallback | None = None) -> None:
        """See `RecordStore.commit`."""
        if then is not None:
            then(None)

    def compact(self) -> Iterator[None]:
        """See `RecordStore.compact`."""
        return iter(())

    def close(self) -> None:
        """See `RecordStore.close`."""

    def _add(self, fields: _Fields, size: int) -> int:
        self._stored_bytes += size
        if self._free:
            row = self._free.pop()
            self._records[row] = fields
            return row
        self._records.append(fields)
        return len(self._records) - 1

    def _replace(self, row: int, fields: _Fields, size: int) -> None:
        self._stored_bytes += size - len(self.record(row).body)
        self._records[row] = fields

    def _remove(self, row: int) -> None:
        self._stored_bytes -= len(self.record(row).body)
        self._records[row] = None
        self._free.append(row)
