"""The metadata of records as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import text_column
from server.sql.tables.columns import Metadata
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND

if TYPE_CHECKING:
    from server.storage.sow.records import Record

BODY_METADATA: Final = frozenset({Metadata.BODY, Metadata.BINARY_BODY})
"""The metadata that are bodies; their arrays have bytes, also of texts."""


def to_metadata_arrays(
    records: Sequence[Record], wanted: Sequence[Metadata]
) -> Mapping[Metadata, pa.Array]:
    """Return the metadata of records."""
    return {metadata: _CONVERSIONS[metadata](records) for metadata in wanted}


def _timestamps(nanoseconds: Sequence[int]) -> pa.Array:
    """Convert times in nanoseconds since 1970; 0 is NULL."""
    times = np.array(nanoseconds, np.int64)
    return pa.array(
        times // NANOSECONDS_IN_MICROSECOND, SqlType.TIMESTAMPTZ.arrow_type, mask=times == 0
    )


def _bodies(records: Sequence[Record]) -> pa.Array:
    return pa.array([record.body for record in records], pa.binary())


_CONVERSIONS: Final[Mapping[Metadata, Callable[[Sequence[Record]], pa.Array]]] = {
    Metadata.TOPIC: lambda records: text_column([record.topic for record in records]),
    Metadata.KEY: lambda records: text_column([record.key for record in records]),
    Metadata.TIMESTAMP: lambda records: _timestamps([record.timestamp for record in records]),
    Metadata.BOOKMARK: lambda records: text_column([record.bookmark for record in records]),
    Metadata.CORRELATION_ID: lambda records: text_column(
        [record.correlation_id for record in records]
    ),
    Metadata.EXPIRES: lambda records: _timestamps([record.expires for record in records]),
    Metadata.BODY: _bodies,
    Metadata.BINARY_BODY: _bodies,
    Metadata.SEQUENCE: lambda records: pa.array(
        [record.sequence for record in records], pa.int64()
    ),
}
