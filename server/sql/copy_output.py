"""The data of COPY TO STDOUT: rows in the formats text, csv and binary.

The values are those of DataRow messages, in the text or the binary format of their types. Source:
PostgreSQL 16 documentation, COPY, File Formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.sql.postgres import messages
from server.sql.postgres.formats import (
    MAX_ENCODED_SIZE,
    column_pieces,
    encode_data_rows,
    is_large,
)
from server.sql.postgres.pieces import (
    BINARY,
    EMPTY,
    ColumnFormat,
    content_of,
    fixed_width,
    join_pieces,
    value_lengths,
)

if TYPE_CHECKING:
    from server.sql.postgres.types import ResultColumn
    from server.sql.query.statement import CopyFormat

_LENGTH: Final = Struct(">i")
_ROW_HEAD: Final = 5
"""Bytes of a DataRow message before its content: its code and its length."""

_COPY_HEAD: Final = np.dtype([("type", "S1"), ("length", ">i4")])
_BINARY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_END: Final = b"\xff\xff"

_ESCAPES: Final = {
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


class CopyMarks(NamedTuple):
    """The separators of the values of COPY in the formats text and csv.

    Attributes:
        delimiter: separates the values of a row.
        null: stands for NULL.
        special: finds bytes that have to be escaped or quoted.
        quoted: whole values that have to be quoted.
    """

    delimiter: bytes
    null: bytes
    special: re.Pattern[bytes]
    quoted: frozenset[bytes]


def encode_copy_lines(
    batch: pa.RecordBatch, columns: Sequence[ColumnFormat], marks: CopyMarks
) -> bytes | None:
    """Encode a record batch as CopyData messages, each with a line.

    Returns:
        None if a value has to be escaped or quoted, or the batch is too large: its values have to
        be encoded one by one.
    """
    rows = batch.num_rows
    if rows == 0 or is_large(batch):
        return None
    texts: list[pa.Array] = []
    size = 0
    for array, column in zip(batch.columns, columns, strict=True):
        pieces = column_pieces(array, column)
        values = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, EMPTY)
        content = content_of(values)
        size += len(content)
        if marks.special.search(content) is not None or size > MAX_ENCODED_SIZE:
            return None
        if marks.quoted:
            in_quotes = pc.is_in(values, pa.array(list(marks.quoted), BINARY), skip_nulls=True)
            if pc.any(in_quotes).as_py():
                return None
        texts.append(values)
    lines = pc.binary_join_element_wise(
        *texts,
        pa.scalar(marks.delimiter, BINARY),
        null_handling="replace",
        null_replacement=marks.null,
    )
    end = pa.scalar(b"\n", BINARY)
    head = np.empty(rows, _COPY_HEAD)
    head["type"] = b"d"
    head["length"] = value_lengths([lines, end]) + 4
    return content_of(join_pieces([fixed_width(head), lines, end]))


class CopyEncoder:
    """Encodes rows as CopyData messages.

    Args:
        copy: the format.
        columns: the columns of the rows.
    """

    def __init__(self, copy: CopyFormat, columns: Sequence[ResultColumn]) -> None:
        self._copy: Final = copy
        self._columns: Final = columns
        self._is_binary: Final = copy.format == "binary"
        self._formats: Final = [
            ColumnFormat(column.type_oid, binary=self._is_binary) for column in columns
        ]
        self._head = _BINARY_HEAD if self._is_binary else b""  # drivers want it with the first row
        special = re.escape(copy.delimiter + "".join(_ESCAPES))
        self._text_special: Final = re.compile(f"[{special}]")
        self._csv_special: Final = re.compile(f"[{re.escape(copy.delimiter + copy.quote)}\n\r]")
        is_csv = copy.format == "csv"
        pattern = self._csv_special if is_csv else self._text_special
        null = copy.null.encode()
        self._marks: Final = CopyMarks(
            copy.delimiter.encode(),
            null,
            re.compile(pattern.pattern.encode()),
            frozenset({null, b"\\."}) if is_csv else frozenset(),
        )

    def begin(self) -> bytes:
        """Return CopyOutResponse, and the header before the rows."""
        format_code = messages.BINARY_FORMAT if self._is_binary else messages.TEXT_FORMAT
        start = messages.copy_out_response(
            [format_code] * len(self._columns), binary=self._is_binary
        )
        if self._copy.header and not self._is_binary:
            names = [column.name.encode() for column in self._columns]
            return start + messages.copy_data(self._line(names))
        return start

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return the messages of rows."""
        if not self._is_binary:
            lines = encode_copy_lines(batch, self._formats, self._marks)
            if lines is not None:
                return lines
        data = encode_data_rows(batch, self._formats)
        if self._is_binary:
            head, self._head = self._head, b""
            contents = _contents(data)
            first = [messages.copy_data(head + next(contents))] if batch.num_rows else []
            return b"".join([*first, *map(messages.copy_data, contents)])
        return b"".join(
            messages.copy_data(self._line(_values(content))) for content in _contents(data)
        )

    def end(self) -> bytes:
        """Return the trailer after the rows, and CopyDone."""
        end = messages.copy_data(self._head + _BINARY_END) if self._is_binary else b""
        return end + messages.COPY_DONE

    def _line(self, values: Sequence[bytes | None]) -> bytes:
        field = self._csv_field if self._copy.format == "csv" else self._text_field
        return (self._copy.delimiter.join(map(field, values)) + "\n").encode()

    def _text_field(self, value: bytes | None) -> str:
        if value is None:
            return self._copy.null
        return self._text_special.sub(
            lambda match: _ESCAPES.get(match[0], f"\\{match[0]}"), value.decode()
        )

    def _csv_field(self, value: bytes | None) -> str:
        if value is None:
            return self._copy.null
        text = value.decode()
        quote, escape = self._copy.quote, self._copy.escape
        if text != self._copy.null and not self._csv_special.search(text) and text != "\\.":
            return text
        escaped = text if escape == quote else text.replace(escape, escape * 2)
        return quote + escaped.replace(quote, escape + quote) + quote


def _contents(data: bytes) -> Iterator[bytes]:
    """Yield the contents of DataRow messages."""
    position = 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position + 1)
        end = position + 1 + length
        yield data[position + _ROW_HEAD : end]
        position = end


def _values(content: bytes) -> list[bytes | None]:
    """Return the values of a row."""
    values: list[bytes | None] = []
    position = 2  # after the number of columns
    while position < len(content):
        (length,) = _LENGTH.unpack_from(content, position)
        position += _LENGTH.size
        if length < 0:
            values.append(None)
        else:
            values.append(content[position : position + length])
            position += length
    return values
