"""The metadata columns of every entry, independent of its message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from pipeline.journal.partitions import JournalBlock, JournalNames, RecordArray
from pipeline.journal.predicates import ORDERINGS, ColumnPredicate
from pipeline.packed_bodies import PackedBodies
from server.storage.journal.format.entry import JournalEntryKind
from server.storage.journal.format.layout import unpack_extras

COMMANDS: Final = {
    "publish": JournalEntryKind.PUBLISH,
    "delta_publish": JournalEntryKind.DELTA_PUBLISH,
    "sow_delete": JournalEntryKind.SOW_DELETE,
}
"""The values of the column `command`, by the kinds of entries that are client messages."""

RowMask: TypeAlias = npt.NDArray[np.bool_]
ColumnBuilder: TypeAlias = Callable[[JournalBlock], pa.Array]

_NAMES: Final = {int(kind): name for name, kind in COMMANDS.items()}
_MAX_LINEAR_MEMBERS: Final = 8
"""Up to this number, comparisons take less time than `np.isin`, which sorts."""

_PAST_LONG: Final = np.uint64(2**63)

ENTRY_METADATA: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "message_type": StringType(),
    "command": StringType(),
    "bookmark": StringType(),
    "txid": LongType(),
    "client": StringType(),
    "sequence": LongType(),
    "timestamp": TimestampType(),
    "length": LongType(),
    "sow_key": StringType(),
    "correlation_id": StringType(),
    "expiration": IntegerType(),
    "user": StringType(),
    "instance": StringType(),
}
"""Name and type of each; described in docs/pipeline_journals.md."""


def metadata_column(name: str, block: JournalBlock) -> pa.Array:
    """Return a metadata column of a block."""
    return _BUILDERS[name](block)


def body_column(block: JournalBlock) -> pa.Array:
    """Return the bodies of a block."""
    return PackedBodies(block.data, block.starts, block.starts + block.lengths).to_arrow()


def is_record_test(predicate: ColumnPredicate) -> bool:
    """Return whether `record_mask` can test a predicate; otherwise, `metadata_mask` can."""
    if predicate.column in ("txid", "timestamp"):
        return predicate.operation in ORDERINGS
    return predicate.column in ("topic", "message_type", "command", "instance")  # never NULL


def record_mask(predicate: ColumnPredicate, records: RecordArray, names: JournalNames) -> RowMask:
    """Return the mask of the records for which a predicate is true; see `is_record_test`."""
    match predicate.column:
        case "topic":
            return _by_number(predicate, records["topic"], names.topics)
        case "message_type":
            return _by_number(predicate, records["topic"], names.message_types)
        case "command":
            return _by_number(predicate, records["kind"], _NAMES)
        case "instance":
            return np.full(len(records), predicate.test()(names.instance))
        case _:
            numbers = records[predicate.column].astype(np.int64)
            return np.asarray(ORDERINGS[predicate.operation](numbers, predicate.values[0]))


def is_among(numbers: RecordArray, members: Collection[int]) -> RowMask:
    """Return the mask of the numbers that are wanted."""
    if len(members) > _MAX_LINEAR_MEMBERS:
        return np.isin(numbers, list(members))
    mask: RowMask = np.zeros(len(numbers), np.bool_)
    for member in members:
        mask |= numbers == member
    return mask


def metadata_mask(predicate: ColumnPredicate, block: JournalBlock) -> RowMask:
    """Return the mask of a block's entries that match a predicate on a metadata column."""
    return predicate.match_mask(metadata_column(predicate.column, block))


def _by_number(
    predicate: ColumnPredicate, numbers: RecordArray, names: Mapping[int, str]
) -> RowMask:
    test = predicate.test()
    return is_among(numbers, [number for number, name in names.items() if test(name)])


def _named(numbers: RecordArray, names: Mapping[int, str]) -> pa.Array:
    """Return a column of names from one of numbers."""
    unique_numbers, indexes = np.unique(numbers, return_inverse=True)
    return pa.array([names.get(int(number)) for number in unique_numbers], pa.string()).take(
        pa.array(indexes)
    )


def _decimal(numbers: RecordArray) -> pa.Array:
    """Return unsigned numbers as text, as AMPS writes them."""
    return pa.array(np.ascontiguousarray(numbers)).cast(pa.string())


def _unless_zero(numbers: RecordArray, column: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(numbers != 0), column, pa.scalar(None, column.type))


def _bookmark(block: JournalBlock) -> pa.Array:
    client, sequence = block.records["client"], block.records["sequence"]
    return pc.binary_join_element_wise(_decimal(client), _decimal(sequence), "", "|")


def _sequence(block: JournalBlock) -> pa.Array:
    numbers = block.records["sequence"]
    return pa.array(numbers.astype(np.int64), mask=numbers >= _PAST_LONG)


def _timestamp(block: JournalBlock) -> pa.Array:
    moments = np.ascontiguousarray(block.records["timestamp"])
    return pa.array(moments).cast(pa.timestamp("us", tz="UTC"))


def _sow_key(block: JournalBlock) -> pa.Array:
    keys = _unless_zero(block.records["sow_key"], _decimal(block.records["sow_key"]))
    if not block.records["extras_length"].any():
        return keys
    stored_keys = [_text(unpack_extras(extras)[1]) for extras in block.extras()]
    return pc.coalesce(pa.array(stored_keys, pa.string()), keys)


def _expiration(block: JournalBlock) -> pa.Array:
    seconds = block.records["expiration"]
    return _unless_zero(seconds, pa.array(seconds.astype(np.int32)))


def _correlation_id(block: JournalBlock) -> pa.Array:
    if not block.records["extras_length"].any():
        return pa.nulls(len(block.records), pa.string())
    return pa.array([_text(unpack_extras(extras)[0]) for extras in block.extras()], pa.string())


def _text(data: bytes) -> str | None:
    return data.decode("utf-8", "replace") if data else None


_BUILDERS: Final[Mapping[str, ColumnBuilder]] = {
    "topic": lambda block: _named(block.records["topic"], block.names.topics),
    "message_type": lambda block: _named(block.records["topic"], block.names.message_types),
    "command": lambda block: _named(block.records["kind"], _NAMES),
    "bookmark": _bookmark,
    "txid": lambda block: pa.array(block.records["txid"].astype(np.int64)),
    "client": lambda block: _decimal(block.records["client"]),
    "sequence": _sequence,
    "timestamp": _timestamp,
    "length": lambda block: pa.array(block.records["body_length"].astype(np.int64)),
    "sow_key": _sow_key,
    "correlation_id": _correlation_id,
    "expiration": _expiration,
    "user": lambda block: _named(block.records["origin"], block.names.users),
    "instance": lambda block: pa.array([block.names.instance] * len(block.records), pa.string()),
}
