"""Types of bson_columns.pyx."""

from collections.abc import Sequence

from pipeline.arrow_fill import ColumnRequest
from pipeline.native.columns import ColumnReader

class BsonColumnReader(ColumnReader):
    """Reads columns of bodies of the type `bson`.

    Args:
        wanted: the columns, without PART.
        unit: unit of numbers that are times, in microseconds; 0 if no number is a time.
    """

    def __init__(self, wanted: Sequence[ColumnRequest], unit: int) -> None: ...
