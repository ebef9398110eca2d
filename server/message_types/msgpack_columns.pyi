"""Types of msgpack_columns.pyx."""

from collections.abc import Sequence

from server.message_types.columns import ColumnReader, WantedColumn

class MsgpackColumnReader(ColumnReader):
    """Reads columns of bodies of the type `msgpack`.

    Args:
        wanted: the columns, without PART.
        unit: microseconds that a number counts which is a time; 0 if none is.
    """

    def __init__(self, wanted: Sequence[WantedColumn], unit: int) -> None: ...
