"""The changes of records that are put together, for recipients to which earlier states matter."""

from __future__ import annotations

from collections.abc import Sequence

from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.record_table import RecordTable
from server.storage.sow.records import Record, RecordChange
from server.storage.sow.store import RecordStore, RecordStoreError


def put_with_changes(
    table: RecordTable, batch: SowRecordBatch, *, needs_changes: bool
) -> tuple[Sequence[tuple[int, RecordStoreError]], Sequence[RecordChange | None]]:
    """Put the records of a batch.

    Args:
        table: the table of the records.
        batch: the records.
        needs_changes: whether the caller needs the changes, and not only new states.

    Returns:
        The indexes of the records that cannot be stored, each with the reason; and the change of
        each record, None for those; no changes if the caller does not need them and all records
        are stored.
    """
    count = len(batch.bodies)
    changes: list[RecordChange | None] = []
    try:
        if needs_changes:
            changes += changes_of(batch, table.store)
    except RecordStoreError:
        return _put_each(table, batch)
    problems: list[tuple[int, RecordStoreError]] = []
    start = 0
    while start < count:
        start, problem = table.put_batch(batch, start)
        if problem is not None:
            problems.append((start, problem))
            changes = changes or [_insertion(batch.record_at(at)) for at in range(count)]
            _remove_change(changes, [*batch.identities()], start)
            start += 1
    return problems, changes


def _put_each(
    table: RecordTable, batch: SowRecordBatch
) -> tuple[Sequence[tuple[int, RecordStoreError]], Sequence[RecordChange | None]]:
    """Put the records of a batch one by one; see `put_with_changes`."""
    problems: list[tuple[int, RecordStoreError]] = []
    changes: list[RecordChange | None] = []
    for index in range(len(batch.bodies)):
        try:
            changes.append(table.put(batch.record_at(index)))
        except RecordStoreError as error:
            problems.append((index, error))
            changes.append(None)
    return problems, changes


def changes_of(batch: SowRecordBatch, store: RecordStore) -> list[RecordChange]:
    """Return the changes that a batch makes if it is put into a store.

    Raises:
        RecordStoreError: an earlier state cannot be read.
    """
    identities = [*batch.identities()]
    rows = {identity: store.find_row(identity) for identity in identities}
    known = {identity: row for identity, row in rows.items() if row is not None}
    states = dict(zip(known, store.read_records([*known.values()]), strict=True))
    changes: list[RecordChange] = []
    for position, identity in enumerate(identities):
        record = batch.record_at(position)
        changes.append(RecordChange(record.key, record.topic, states.get(identity), record))
        states[identity] = record
    return changes


def _insertion(record: Record) -> RecordChange:
    """Return the change to a record, for recipients to which the state before does not matter."""
    return RecordChange(record.key, record.topic, None, record)


def _remove_change(
    changes: list[RecordChange | None], identities: Sequence[str], position: int
) -> None:
    """Remove a change that has not been made; the next one of its record has its state before."""
    failed = changes[position]
    changes[position] = None
    for later in range(position + 1, len(identities)):
        change = changes[later]
        if failed is not None and change is not None and identities[later] == identities[position]:
            changes[later] = change._replace(previous=failed.previous)
            return
