"""Rows of entries of the transaction log, as Arrow arrays, within a user's permit.

Most entries are messages without extras (correlation ids, and SOW keys that their publisher gave).
Their rows are made of columns: records as in the file, and bodies that are parsed together. For
others, and for filters that cost much or ask for more than fields, entries are taken one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.expressions.backends.compile_columns import ColumnBatch, ColumnFilter
from server.expressions.backends.compile_message import compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT
from server.expressions.regex.budget import SearchAllowance
from server.expressions.regex.patterns import count_regexes
from server.expressions.tree import paths
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import text_column, to_text
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.row_conversion import body_reader, read_fields
from server.storage.journal import JournalEntryKind
from server.storage.journal.read.entry_filter import cut
from server.storage.sow.record_context import asks_for_context
from server.topics.subscriptions.delivery.logged_batch import LoggedEnvelope
from server.topics.subscriptions.delivery.presentation import SelectList
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.expressions import Functions
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.storage.journal import JournalEntry, RawEntryRange
    from server.storage.journal.clock_steps import ClockSteps
    from server.storage.journal.format.records import FileDefinitions

_COMMANDS: Final = {
    JournalEntryKind.PUBLISH: "publish",
    JournalEntryKind.DELTA_PUBLISH: "delta_publish",
    JournalEntryKind.SOW_DELETE: "sow_delete",
}


class EntryBatchRows(NamedTuple):
    """Rows of entries.

    Attributes:
        arrays: the columns; one of NULLs, if none is requested.
        row_count: the number of rows.
        matches: the number of entries that match.
    """

    arrays: Sequence[pa.Array]
    row_count: int
    matches: int


class EntryFilter:
    """Tests entries of the log; used by one thread.

    Args:
        filter_: the filter; None for all entries.
        message_type: parses bodies.
        functions: the functions that the filter may call.
    """

    def __init__(
        self, filter_: Expr | None, message_type: MessageType, functions: Functions
    ) -> None:
        self._allowance: Final = SearchAllowance()
        self._field_count: Final = 0 if filter_ is None else len(paths(filter_))
        self._needs_context: Final = filter_ is not None and asks_for_context(filter_, functions)
        self._matches: Final = (
            None
            if filter_ is None
            else compile_filter(
                with_inferred_types(filter_, message_type),
                functions,
                search_counter=self._allowance,
            )
        )
        self._extract: Final = message_type.extractor(() if filter_ is None else paths(filter_))
        self._column_filter: Final = (
            ColumnFilter(
                with_inferred_types(filter_, message_type),
                functions,
                search_counter=self._allowance,
            )
            if filter_ is not None and not self._needs_context and not count_regexes(filter_)
            else None
        )
        self._read_bodies: Final = body_reader(
            message_type, () if filter_ is None else paths(filter_)
        )

    @property
    def is_by_column(self) -> bool:
        """Whether `mask` can test many bodies at once."""
        return self._matches is None or self._column_filter is not None

    def mask(self, bodies: Sequence[bytes]) -> NDArray[np.bool_] | None:
        """Return which bodies match; None for all."""
        if self._column_filter is None:
            return None
        self._allowance.reset()
        columns = self._read_bodies(bodies) if self._field_count else ()
        return self._column_filter(ColumnBatch(columns, len(bodies)))

    def matches(self, entry: JournalEntry) -> bool:
        """Return whether an entry matches; a deletion has no fields.

        Raises:
            TooCostlyError: that takes too many steps.
        """
        if self._matches is None:
            return True
        self._allowance.reset()
        context = NO_CONTEXT
        if self._needs_context:
            context = LoggedEnvelope(entry).context(entry.topic.name, entry.body)
        if entry.kind == JournalEntryKind.SOW_DELETE:
            return self._matches((None,) * self._field_count, context)
        return self._matches(self._extract(entry.body), context)


class EntryRows:
    """Makes rows of entries; used by one thread.

    Args:
        message_type: parses bodies.
        outputs: the columns, in order.
        permit: what the user may see.
        entry_filter: tests entries.
        clock_steps: the steps of the wall clock, by which times are corrected.
    """

    def __init__(
        self,
        message_type: MessageType,
        outputs: Sequence[FieldColumn | Metadata],
        permit: Permit,
        entry_filter: EntryFilter,
        clock_steps: ClockSteps,
    ) -> None:
        self._filter: Final = entry_filter
        self._clock_steps: Final = clock_steps
        self._outputs: Final = outputs
        self._fields: Final = [one for one in outputs if isinstance(one, FieldColumn)]
        self._read_bodies: Final = body_reader(message_type, [field.path for field in self._fields])
        self._permitted: Final = (
            None
            if permit.select is None
            else SelectList(permit.select_text, permit.select, message_type, is_entitlement=True)
        )

    def read(self, entries: RawEntryRange) -> EntryBatchRows:
        """Return the rows of the entries that match.

        Raises:
            MisfitError: a value does not fit the type of its column.
            TooCostlyError: the filter takes too many steps.
        """
        records = entries.to_array()
        is_plain = not (
            records["extras_length"].any() or (records["kind"] == JournalEntryKind.SOW_DELETE).any()
        )
        if is_plain and self._filter.is_by_column:
            return self._read_columns(entries, records)
        singles = map(entries.entry_at, range(len(entries)))
        return self._read_entries([entry for entry in singles if self._filter.matches(entry)])

    def _read_columns(self, entries: RawEntryRange, records: NDArray[np.void]) -> EntryBatchRows:
        """Return the rows of messages without extras."""
        bodies = cut(entries.records, entries.bodies)
        mask = self._filter.mask(bodies)
        if mask is not None and not mask.all():
            records = records[mask]
            bodies = [bodies[place] for place in np.flatnonzero(mask).tolist()]
        count = len(bodies)
        if not count:
            return EntryBatchRows((), 0, 0)
        field_arrays = iter(read_fields(self._read_bodies, self._fields, bodies))
        arrays = [
            next(field_arrays)
            if isinstance(output, FieldColumn)
            else self._bodies_array(bodies, is_text=output is Metadata.BODY)
            if output in (Metadata.BODY, Metadata.BINARY_BODY)
            else self._record_column(output, records, entries.definitions)
            for output in self._outputs
        ]
        return EntryBatchRows(arrays or [pa.nulls(count, pa.bool_())], count, count)

    def _record_column(
        self, metadata: Metadata, records: NDArray[np.void], definitions: FileDefinitions
    ) -> pa.Array:
        match metadata:
            case Metadata.TXID:
                return pa.array(records["txid"].astype(np.int64))
            case Metadata.BOOKMARK:
                numbers = [_as_texts(records[name]) for name in ("client", "sequence")]
                return pc.binary_join_element_wise(*numbers, "", "|")
            case Metadata.TIMESTAMP:
                times = self._clock_steps.correct_times(
                    records["txid"].tolist(), records["timestamp"].tolist()
                )
                return pa.array(times, SqlType.TIMESTAMPTZ.arrow_type)
            case Metadata.CLIENT:
                return _as_texts(records["client"])
            case Metadata.USER:
                origins, codes = np.unique(records["origin"], return_inverse=True)
                users = text_column(
                    definitions.origins[number].auth_id for number in origins.tolist()
                )
                return users.take(pa.array(codes))
            case Metadata.COMMAND:
                kinds, codes = np.unique(records["kind"], return_inverse=True)
                commands = text_column(_COMMANDS[JournalEntryKind(kind)] for kind in kinds.tolist())
                return commands.take(pa.array(codes))
            case Metadata.KEY:
                return _as_texts(records["sow_key"], mask=records["sow_key"] == 0)
            case Metadata.CORRELATION_ID:
                return pa.nulls(len(records), pa.string())
            case _:
                raise AssertionError(metadata)

    def _read_entries(self, entries: Sequence[JournalEntry]) -> EntryBatchRows:
        """Return the rows of entries of any kind."""
        correction = self._clock_steps.correction
        keys: list[str | None] = []
        rows: list[JournalEntry] = []
        bodies: list[bytes] = []
        body_indexes: list[int | None] = []  # of the rows
        for entry in entries:
            if entry.kind == JournalEntryKind.SOW_DELETE:
                deleted = msgspec.json.decode(entry.body, type=list[str])
                keys += deleted
                rows += [entry] * len(deleted)
                body_indexes += [None] * len(deleted)
                continue
            keys.append(LoggedEnvelope(entry).record_sow_key)
            rows.append(entry)
            body_indexes.append(len(bodies))
            bodies.append(entry.body)
        indexes = None if len(bodies) == len(rows) else pa.array(body_indexes, pa.int64())
        field_arrays = iter(read_fields(self._read_bodies, self._fields, bodies))
        arrays: list[pa.Array] = []
        for output in self._outputs:
            if isinstance(output, FieldColumn):
                array = next(field_arrays)
            elif output in (Metadata.BODY, Metadata.BINARY_BODY):
                array = self._bodies_array(bodies, is_text=output is Metadata.BODY)
            else:
                arrays.append(_metadata_array(output, rows, keys, correction))
                continue
            arrays.append(array if indexes is None else array.take(indexes))
        return EntryBatchRows(arrays or [pa.nulls(len(rows), pa.bool_())], len(rows), len(entries))

    def _bodies_array(self, bodies: Sequence[bytes], *, is_text: bool) -> pa.Array:
        if self._permitted is not None:
            bodies = [self._permitted.apply(body) for body in bodies]
        array = pa.array(bodies, pa.binary())
        return to_text(array) if is_text else array


def _as_texts(numbers: NDArray[np.uint64], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(numbers), mask=mask).cast(pa.string())


def _metadata_array(
    metadata: Metadata,
    rows: Sequence[JournalEntry],
    keys: Sequence[str | None],
    correction: Callable[[int], int],
) -> pa.Array:
    match metadata:
        case Metadata.TXID:
            return pa.array([row.txid for row in rows], pa.int64())
        case Metadata.BOOKMARK:
            return text_column(row.bookmark for row in rows)
        case Metadata.TIMESTAMP:
            times = [row.timestamp + correction(row.txid) for row in rows]
            return pa.array(times, SqlType.TIMESTAMPTZ.arrow_type)
        case Metadata.CLIENT:
            return text_column(str(row.client) for row in rows)
        case Metadata.USER:
            return text_column(row.origin.auth_id for row in rows)
        case Metadata.COMMAND:
            return text_column(_COMMANDS[JournalEntryKind(row.kind)] for row in rows)
        case Metadata.KEY:
            return text_column(keys)
        case Metadata.CORRELATION_ID:
            return text_column(bytes_to_text(row.correlation_id) for row in rows)
        case _:
            raise AssertionError(metadata)
