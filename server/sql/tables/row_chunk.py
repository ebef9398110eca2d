"""Rows of a scan, as they are passed from the engine's thread to a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from server.expressions.backends.columns import Column
    from server.sql.tables.columns import Metadata


class SegmentRows(NamedTuple):
    """Rows of a segment: see `column_segments`.

    Attributes:
        number: the number of the segment.
        length: the number of its rows.
        columns: for each field that is read or tested, the columns of the blocks.
        mask: the mask of the rows to test; None for all.
    """

    number: int
    length: int
    columns: Sequence[Sequence[Column]]
    mask: NDArray[np.bool_] | None


class RowChunk(NamedTuple):
    """Some rows of a scan.

    Attributes:
        row_count: the number of rows; of a segment those to test.
        columns: the columns of the requested fields, perhaps with other rows.
        offsets: the rows of the columns; None for all.
        bodies: the bodies to read the fields from, where there are no columns.
        metadata: the requested metadata.
        segment: rows that are still to be tested by the filter; with nothing of the above.
    """

    row_count: int
    columns: Sequence[Column] | None = None
    offsets: NDArray[np.intp] | None = None
    bodies: Sequence[bytes] | None = None
    metadata: Mapping[Metadata, pa.Array] | None = None
    segment: SegmentRows | None = None
