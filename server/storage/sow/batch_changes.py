"""The changes of records that are put together, for recipients to which earlier states matter."""

from __future__ import annotations

from collections.abc import Sequence

from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.record_table import RecordTable
from server.storage.sow.records import RecordChange
from server.storage.sow.store import RecordStoreError


def put_with_changes(
    table: RecordTable, batch: SowRecordBatch, *, needs_changes: bool, needs_removals: bool
) -> tuple[Sequence[tuple[int, RecordStoreError]], Sequence[RecordChange | None]]:
    """Put the records of a batch, and delete those of its deletions.

    Args:
        table: the table of the records.
        batch: the records.
        needs_changes: whether the caller needs the changes, and not only new states.
        needs_removals: whether it needs the changes if there are deletions.

    Returns:
        The indexes of the records that cannot be stored, each with the reason; and the change of
        each record, None for those; no changes if the caller does not need them and all records
        are stored.
    """
    if needs_removals and any(batch.deletions):
        return _put_each(table, batch)
    changes: list[RecordChange | None] = []
    try:
        if needs_changes:
            changes += changes_of(batch, table)
    except RecordStoreError:
        return _put_each(table, batch)
    problems: list[tuple[int, RecordStoreError]] = []
    for begin, end, deletes in batch.ranges():
        put = _delete_rows if deletes else RecordTable.put_batch
        part, start = batch.part(begin, end), 0
        while start < end - begin:
            start, problem = put(table, part, start)
            if problem is not None:
                problems.append((begin + start, problem))
                changes = changes or _insertions(batch)
                _remove_change(changes, [*batch.identities()], begin + start)
                start += 1
    return problems, changes


def put_row(table: RecordTable, batch: SowRecordBatch, index: int) -> RecordChange | None:
    """Put a record of a batch, or delete it; return the change, None if there is none.

    Raises:
        RecordStoreError: it cannot be stored; nothing has changed.
    """
    record = batch.record_at(index)
    deletion = batch.deletions[index] if batch.deletions else None
    if deletion is None:
        return table.put(record)
    identity = table.make_identity(record.key, record.topic)
    change = table.remove(identity, record.sequence, record.timestamp)
    deletion.count = int(change is not None)
    return change


def _delete_rows(
    table: RecordTable, batch: SowRecordBatch, start: int
) -> tuple[int, RecordStoreError | None]:
    """Delete the records of a batch of deletions; see `RecordTable.put_batch`."""
    for index in range(start, len(batch.bodies)):
        try:
            put_row(table, batch, index)
        except RecordStoreError as problem:
            return index, problem
    return len(batch.bodies), None


def _put_each(
    table: RecordTable, batch: SowRecordBatch
) -> tuple[Sequence[tuple[int, RecordStoreError]], Sequence[RecordChange | None]]:
    """Put the records of a batch one by one; see `put_with_changes`."""
    problems: list[tuple[int, RecordStoreError]] = []
    changes: list[RecordChange | None] = []
    for index in range(len(batch.bodies)):
        try:
            changes.append(put_row(table, batch, index))
        except RecordStoreError as error:
            problems.append((index, error))
            changes.append(None)
    return problems, changes


def changes_of(batch: SowRecordBatch, table: RecordTable) -> list[RecordChange]:
    """Return the changes that a batch makes if it is put into a table.

    Raises:
        RecordStoreError: an earlier state cannot be read.
    """
    identities = [*batch.identities()]
    states = table.get_all(identities)
    changes: list[RecordChange] = []
    for position, identity in enumerate(identities):
        record = batch.record_at(position)
        changes.append(RecordChange(record.key, record.topic, states.get(identity), record))
        states[identity] = record
    return changes


def _insertions(batch: SowRecordBatch) -> list[RecordChange | None]:
    """Return changes for recipients to which neither the states before nor deletions matter."""
    changes: list[RecordChange | None] = []
    for start, end, deletes in batch.ranges():
        for index in range(start, end):
            record = batch.record_at(index)
            change = RecordChange(record.key, record.topic, None, record)
            changes.append(None if deletes else change)
    return changes


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
