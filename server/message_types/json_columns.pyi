"""Types of json_columns.pyx."""

from server.message_types.columns import ColumnReader

class JsonColumnReader(ColumnReader):
    """Reads columns of bodies of the type `json`."""
