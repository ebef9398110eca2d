"""Types of fix_columns.pyx."""

from collections.abc import Sequence

from pipeline.arrow_fill import ColumnRequest
from pipeline.native.columns import ColumnReader

class FixColumnReader(ColumnReader):
    """Reads columns of bodies of the types `fix` and `nvfix`.

    Args:
        wanted: the columns, without OBJECT and PART; their names have neither `=` nor a separator.
        separator: the byte that ends a field.
        fix_times: times may also have the format of FIX.
    """

    def __init__(
        self, wanted: Sequence[ColumnRequest], separator: int, *, fix_times: bool
    ) -> None: ...
