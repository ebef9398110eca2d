"""Types of json_columns.pyx."""

from pipeline.native.columns import ColumnReader

class JsonColumnReader(ColumnReader):
    """Reads columns of bodies of the type `json`."""
