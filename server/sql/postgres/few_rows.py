"""DataRow messages of a few rows of plain types, value by value.

Operations of Arrow and numpy cost 30 to 60 us per column, however few the values are: several times
as much as to find the record of a key. The bytes are the same as those of `formats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from server.sql.postgres.types import BOOL, FLOAT8, INT2, INT4, INT8, TEXT, VARCHAR

if TYPE_CHECKING:
    from server.sql.postgres.pieces import ColumnFormat

MAX_FEW_ROWS: Final = 4

_MAX_BYTES: Final = 1024 * 1024
"""The size of the rows."""

_HEAD: Final = Struct(">ciH")
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)

_ARROW_TYPES: Final[Mapping[int, pa.DataType]] = {
    BOOL: pa.bool_(),
    INT2: pa.int16(),
    INT4: pa.int32(),
    INT8: pa.int64(),
    FLOAT8: pa.float64(),
    TEXT: pa.string(),
    VARCHAR: pa.string(),
}
"""The types that are encoded here, if arrays have just these types."""


def encode_few_rows(batch: pa.RecordBatch, columns: Sequence[ColumnFormat]) -> bytes | None:
    """Encode a record batch as DataRow messages.

    Args:
        batch: the rows.
        columns: the type and the format of each column.

    Returns:
        None if `formats` has to encode it.
    """
    if batch.num_rows > MAX_FEW_ROWS or batch.nbytes > _MAX_BYTES:
        return None
    for array, column in zip(batch.columns, columns, strict=True):
        if _ARROW_TYPES.get(column.type_oid) != array.type:
            return None
    rows = [b""] * batch.num_rows
    for array, column in zip(batch.columns, columns, strict=True):
        encode = (_BINARY if column.binary else _TEXT)[column.type_oid]
        for number, value in enumerate(array.to_pylist()):
            if value is None:
                rows[number] += _NULL
                continue
            content = encode(value)
            if content is None:
                return None
            rows[number] += _LENGTH.pack(len(content)) + content
    count = len(columns)
    return b"".join(_HEAD.pack(b"D", len(row) + 6, count) + row for row in rows)


def _float_text(value: float) -> bytes | None:
    """Return the text of a number; None if it may have an exponent."""
    if value and not 1e-4 <= abs(value) < 1e10:
        return None
    return repr(value).removesuffix(".0").encode()


def _integer_text(value: int) -> bytes:
    return b"%d" % value


_TEXT: Final[Mapping[int, Callable[[Any], bytes | None]]] = {
    BOOL: lambda value: b"t" if value else b"f",
    INT2: _integer_text,
    INT4: _integer_text,
    INT8: _integer_text,
    FLOAT8: _float_text,
    TEXT: str.encode,
    VARCHAR: str.encode,
}
_BINARY: Final[Mapping[int, Callable[[Any], bytes | None]]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT2: Struct(">h").pack,
    INT4: Struct(">i").pack,
    INT8: Struct(">q").pack,
    FLOAT8: Struct(">d").pack,
    TEXT: str.encode,
    VARCHAR: str.encode,
}
