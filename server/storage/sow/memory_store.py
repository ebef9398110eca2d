"""A record store in memory, for transient topics, views and conflated topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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
    StoreHeader,
    StoreStatistics,
)

_Fields: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class _MemoryHeader:
    """The `StoreHeader` of a store that nothing outlives."""

    key_scheme_digest: int
    rekey_sequence: int
    unlogged_until: int
    chain_file_position: ChainFilePosition


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryStore:
    """A `RecordStore` that loses its content when the process ends; its commit does nothing."""

    def __init__(self) -> None:
        self.header: Final[StoreHeader] = _MemoryHeader(0, 0, 0, ChainFilePosition())
        # Plain tuples: unlike instances of classes, the garbage collector stops tracking them.
        self._records: list[_Fields | None] = []
        self._row_by_identity: dict[str, int] = {}
        self._past_versions: dict[int, PastVersion] = {}
        self._free_rows: list[int] = []
        self._last_sequence = 0
        self._stored_bytes = 0

    @property
    def row_capacity(self) -> int:
        """See `RecordStore.row_capacity`."""
        return len(self._records)

    @property
    def last_sequence(self) -> int:
        """See `RecordStore.last_sequence`."""
        return self._last_sequence

    @property
    def statistics(self) -> StoreStatistics:
        """See `RecordStore.statistics`."""
        stored = self._stored_bytes
        return StoreStatistics(
            len(self._row_by_identity) + len(self._past_versions), stored, stored
        )

    def resident_share(self) -> float:
        """See `RecordStore.resident_share`."""
        return 1.0

    def __len__(self) -> int:
        """See `RecordStore.__len__`."""
        return len(self._row_by_identity)

    def find_row(self, identity: str) -> int | None:
        """See `RecordStore.find_row`."""
        return self._row_by_identity.get(identity)

    def read_record(self, row: int) -> Record:
        """See `RecordStore.read_record`."""
        fields = self._records[row]
        if fields is None:
            raise KeyError(row)
        return Record._make(fields)

    def read_bodies(self, rows: Sequence[int]) -> list[bytes]:
        """See `RecordStore.read_bodies`."""
        return [self.read_record(row).body for row in rows]

    def read_joined_bodies(self, rows: Sequence[int]) -> JoinedBodies:
        """See `RecordStore.read_joined_bodies`."""
        return join([b"" if row < 0 else self.read_record(row).body for row in rows])

    def read_records(self, rows: Sequence[int]) -> list[Record]:
        """See `RecordStore.read_records`."""
        return [self.read_record(row) for row in rows]

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `RecordStore.identities`."""
        return iter(self._row_by_identity.items())

    def ensure_space(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """See `RecordStore.ensure_space`; there is always space."""

    def ensure_space_for_batch(self, batch: SowRecordBatch) -> None:
        """See `RecordStore.ensure_space_for_batch`; there is always space."""

    def pause_cleaning(self) -> None:
        """See `RecordStore.pause_cleaning`."""

    def resume_cleaning(self) -> None:
        """See `RecordStore.resume_cleaning`."""

    def put(self, identity: str, record: Record) -> int:
        """See `RecordStore.put`."""
        row = self._row_by_identity.get(identity)
        if row is None:
            row = self._row_by_identity[identity] = self._add_row(tuple(record), len(record.body))
        else:
            self._replace_row(row, tuple(record), len(record.body))
        self._last_sequence = max(self._last_sequence, record.sequence)
        return row

    def put_batch(self, batch: SowRecordBatch, start: int) -> PutResult:
        """See `RecordStore.put_batch`."""
        rows: list[int] = []
        added: list[int] = []
        for identity, body, fields in zip(
            batch.identities(start), batch.bodies[start:], batch.record_tuples(start), strict=True
        ):
            row = self._row_by_identity.get(identity)
            if row is None:
                row = self._row_by_identity[identity] = self._add_row(fields, len(body))
                added.append(row)
            else:
                self._replace_row(row, fields, len(body))
            rows.append(row)
        if rows:
            self._last_sequence = max(self._last_sequence, batch.sequences[-1])
        return PutResult(start + len(rows), rows, added)

    def delete(self, identity: str, sequence: int) -> int:
        """See `RecordStore.delete`."""
        row = self._row_by_identity.pop(identity)
        self._remove_row(row)
        self._last_sequence = max(self._last_sequence, sequence)
        return row

    def put_past(self, past: PastVersion) -> int:
        """See `RecordStore.put_past`."""
        row = self._add_row(tuple(past.record), len(past.record.body))
        self._past_versions[row] = past
        return row

    def delete_past(self, row: int) -> None:
        """See `RecordStore.delete_past`."""
        del self._past_versions[row]
        self._remove_row(row)

    def past_versions(self) -> Iterator[tuple[int, PastVersion]]:
        """See `RecordStore.past_versions`."""
        return iter(self._past_versions.items())

    def find_previous_versions(self, sequence: int) -> PreviousVersions:
        """See `RecordStore.find_previous_versions`; superseded states are not kept."""
        changed = (
            identity
            for identity, row in self._row_by_identity.items()
            if self._is_later(row, sequence)
        )
        return PreviousVersions({}, set(changed))

    def _is_later(self, row: int, sequence: int) -> bool:
        record = self.read_record(row)
        return record.sequence > sequence and bool(record.bookmark)

    def commit(self, callback: StoreCallback | None = None) -> None:
        """See `RecordStore.commit`."""
        if callback is not None:
            callback(None)

    def compact(self) -> Iterator[None]:
        """See `RecordStore.compact`."""
        return iter(())

    def close(self) -> None:
        """See `RecordStore.close`."""

    def _add_row(self, fields: _Fields, size: int) -> int:
        self._stored_bytes += size
        if self._free_rows:
            row = self._free_rows.pop()
            self._records[row] = fields
            return row
        self._records.append(fields)
        return len(self._records) - 1

    def _replace_row(self, row: int, fields: _Fields, size: int) -> None:
        self._stored_bytes += size - len(self.read_record(row).body)
        self._records[row] = fields

    def _remove_row(self, row: int) -> None:
        self._stored_bytes -= len(self.read_record(row).body)
        self._records[row] = None
        self._free_rows.append(row)
