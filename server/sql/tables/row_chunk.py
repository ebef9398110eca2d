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


class RowChunk(NamedTuple):
    """Some rows of a scan.

    Attributes:
        row_count: the number of rows.
        columns: the columns of the requested fields, perhaps with other rows.
        offsets: the rows of the columns; None for all.
        bodies: the bodies to read the fields from, where there are no columns.
        metadata: the requested metadata.
    """

    row_count: int
    columns: Sequence[Column] | None = None
    offsets: NDArray[np.intp] | None = None
    bodies: Sequence[bytes] | None = None
    metadata: Mapping[Metadata, pa.Array] | None = None
