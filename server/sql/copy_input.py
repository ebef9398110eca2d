"""The data of COPY FROM STDIN: rows in the formats text, csv and binary.

    CopyData of the client -> CopySource -> CopyDecoder on a worker thread -> values of rows

A statement takes the data when it is ready for them, and the connection reads no further than that,
so neither side keeps more than one piece. Source: PostgreSQL 16 documentation, COPY, File Formats;
src/backend/commands/copyfromparse.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from server.sql.postgres.errors import FormatError
from server.sql.postgres.messages import BINARY_FORMAT
from server.sql.postgres.parameters import decode_parameters
from server.sql.query.errors import SqlError
from server.sql.sqlstate import (
    BAD_COPY_FILE_FORMAT,
    CHARACTER_NOT_IN_REPERTOIRE,
    PROGRAM_LIMIT_EXCEEDED,
    QUERY_CANCELED,
)

if TYPE_CHECKING:
    from server.sql.query.statement import CopyFormat

MAX_ROW_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a row."""

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEAD: Final = Struct(">II")
"""Flags, and the length of an extension, behind the signature."""
_FIELD_COUNT: Final = Struct(">h")
_LENGTH: Final = Struct(">i")
_END: Final = "\\."
"""A line that ends the data."""

_ESCAPED: Final = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.)|\Z)", re.DOTALL)
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class CopySource:
    """The data that a client sends for one COPY, piece by piece.

    A statement that waits for a piece occupies no thread; see `LiveWait`, which it is like.
    """

    def __init__(self) -> None:
        self._resume: Callable[[], None] | None = None
        self._piece: bytes | None = b""
        self._failure: str | None = None

    # ---- on the event loop's thread

    def begin(self, resume: Callable[[], None]) -> None:
        """Call `resume` when there is a piece, or no more."""
        self._resume = resume

    def end(self) -> None:
        """Do not call `resume` any more."""
        self._resume = None

    def wake(self) -> None:
        """End the wait now."""
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def add(self, piece: bytes | None) -> None:
        """Add a piece; None for the end of the data."""
        self._piece = piece
        self.wake()

    def fail(self, reason: str) -> None:
        """End the data by a failure of the client."""
        self._failure = reason
        self.wake()

    # ---- on worker threads

    def take(self) -> bytes | None:
        """Return the piece that was waited for; None at the end of the data.

        Raises:
            SqlError: the client has ended the data by a failure.
        """
        if self._failure is not None:
            raise SqlError(QUERY_CANCELED, f"COPY from stdin failed: {self._failure}")
        return self._piece


class CopyDecoder(Protocol):
    """Decodes the rows of a COPY."""

    def decode(self, piece: bytes | None) -> Iterator[Sequence[object]]:
        """Yield the values of the rows that a piece of the data completes.

        Args:
            piece: the piece; None for the end of the data.

        Raises:
            SqlError: the data are malformed, or a value is no value of its type.
        """
        ...


def make_decoder(copy: CopyFormat, names: Sequence[str], types: Sequence[int]) -> CopyDecoder:
    """Return the decoder of a COPY.

    Args:
        copy: the format.
        names: the names of the columns.
        types: the OIDs of the columns, for the binary format.
    """
    return _BinaryDecoder(types) if copy.format == "binary" else _LineDecoder(copy, names)


class _LineDecoder:
    """Splits the formats text and csv into lines, and lines into texts."""

    def __init__(self, copy: CopyFormat, names: Sequence[str]) -> None:
        self._copy: Final = copy
        self._names: Final = names
        self._is_csv: Final = copy.format == "csv"
        self._skips_header = copy.header
        self._number = 0
        self._pieces: list[bytes] = []  # of a line that is not complete
        self._size = 0
        self._open_lines: list[str] = []  # of a row that goes on in the next line
        self._open_size = 0
        self._is_quoted = False
        self._is_at_end = False
        delimiter, quote, escape = map(re.escape, (copy.delimiter, copy.quote, copy.escape))
        self._field: Final = re.compile(
            rf"((?:[^{delimiter}\\]|\\.?)*+)({delimiter}|\Z)", re.DOTALL
        )
        self._plain: Final = re.compile(f"[^{quote}{delimiter}]+")
        self._quoted: Final = re.compile(f"[^{quote}{escape}]+")

    def decode(self, piece: bytes | None) -> Iterator[Sequence[str | None]]:
        """See `CopyDecoder`."""
        for line in self._lines(piece):
            row = self._complete(line)
            if row is None:
                continue
            self._is_at_end |= row == _END
            if self._is_at_end:
                return
            self._number += 1
            if self._skips_header:
                self._skips_header = False
                self._check_header(row)
            else:
                yield self._split(row)
        if piece is None and self._open_lines:
            raise self._malformed("unterminated CSV quoted field")

    def _lines(self, piece: bytes | None) -> Iterator[str]:
        """Yield the lines that a piece completes; the rest is a line at the end of the data."""
        if piece is None:
            rest = b"".join(self._pieces)
            self._pieces = []
            if rest:
                yield self._decode(rest)
            return
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces, self._size = [], 0
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size + self._open_size > MAX_ROW_BYTES:
            raise SqlError(PROGRAM_LIMIT_EXCEEDED, "a row of the data is too long")
        for line in lines:
            yield self._decode(line)

    def _decode(self, line: bytes) -> str:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise self._wrong(
                CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding UTF8"
            )
        return text

    def _complete(self, line: str) -> str | None:
        """Return the row that a line completes; None if it goes on in the next one."""
        self._open_lines.append(line)
        if self._goes_on(line):
            return None
        row = "\n".join(self._open_lines)
        self._open_lines.clear()
        self._open_size = 0
        return row.removesuffix("\r")

    def _goes_on(self, line: str) -> bool:
        """Return whether a line ends within a value."""
        copy = self._copy
        self._open_size += len(line)
        if not self._is_csv:
            return (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if copy.escape == copy.quote:
            self._is_quoted ^= line.count(copy.quote) % 2 == 1
            return self._is_quoted
        is_escaped = False
        for character in line:
            if is_escaped:
                is_escaped = False
            elif self._is_quoted and character == copy.escape:
                is_escaped = True
            elif character == copy.quote:
                self._is_quoted = not self._is_quoted
        return self._is_quoted

    def _check_header(self, row: str) -> None:
        """Check the names of a header, if the statement asks for it (HEADER MATCH)."""
        if self._copy.matches_header and self._split(row) != list(self._names):
            raise self._malformed("the header does not have the names of the columns")

    def _split(self, row: str) -> list[str | None]:
        values = self._split_csv(row) if self._is_csv else self._split_text(row)
        expected = len(self._names)
        if len(values) > expected:
            raise self._malformed("extra data after last expected column")
        if len(values) < expected:
            raise self._malformed(f'missing data for column "{self._names[len(values)]}"')
        return values

    def _split_text(self, row: str) -> list[str | None]:
        delimiter, null = self._copy.delimiter, self._copy.null
        if "\\" not in row:
            return [None if value == null else value for value in row.split(delimiter)]
        values: list[str | None] = []
        position, goes_on = 0, True
        while goes_on:
            field = self._field.match(row, position)
            assert field is not None  # noqa: S101 - it matches any text
            position, goes_on = field.end(), bool(field[2])
            values.append(None if field[1] == null else self._unescaped(field[1]))
        return values

    def _unescaped(self, text: str) -> str:
        return self._decode(_ESCAPED.sub(_unescape, text.encode()))

    def _split_csv(self, row: str) -> list[str | None]:
        copy = self._copy
        if copy.quote not in row:
            return [None if value == copy.null else value for value in row.split(copy.delimiter)]
        values: list[str | None] = []
        value, was_quoted, position = "", False, 0
        while position < len(row):
            character = row[position]
            if character == copy.delimiter:
                values.append(None if value == copy.null and not was_quoted else value)
                value, was_quoted = "", False
                position += 1
            elif character == copy.quote:
                was_quoted = True
                text, position = self._read_quoted(row, position + 1)
                value += text
            else:
                plain = self._plain.match(row, position)
                assert plain is not None  # noqa: S101 - it begins with another character
                value += plain[0]
                position = plain.end()
        values.append(None if value == copy.null and not was_quoted else value)
        return values

    def _read_quoted(self, row: str, position: int) -> tuple[str, int]:
        """Return the text up to a closing quote, and where it ends."""
        quote, escape = self._copy.quote, self._copy.escape
        texts: list[str] = []
        while True:
            plain = self._quoted.match(row, position)
            if plain is not None:
                texts.append(plain[0])
                position = plain.end()
            character, following = row[position : position + 1], row[position + 1 : position + 2]
            if character == escape and following in (quote, escape) and following:
                texts.append(following)
                position += 2
            elif character == quote or not character:
                return "".join(texts), position + 1
            else:  # an escape character before another one stands for itself
                texts.append(character)
                position += 1

    def _malformed(self, problem: str) -> SqlError:
        return self._wrong(BAD_COPY_FILE_FORMAT, problem)

    def _wrong(self, sqlstate: str, problem: str) -> SqlError:
        return SqlError(sqlstate, problem, detail=f"It is in row {self._number}.")


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])
    return _ESCAPES.get(character, character or b"\\")


class _BinaryDecoder:
    """Splits the binary format into values of its columns' types."""

    def __init__(self, types: Sequence[int]) -> None:
        self._types: Final = types
        self._formats: Final = [BINARY_FORMAT] * len(types)
        self._buffer = bytearray()
        self._has_head = False
        self._is_at_end = False
        self._number = 0

    def decode(self, piece: bytes | None) -> Iterator[Sequence[object]]:
        """See `CopyDecoder`."""
        if self._is_at_end:
            return
        if piece is None:
            if self._buffer or not self._has_head:
                raise self._wrong(BAD_COPY_FILE_FORMAT, "unexpected end of the data")
            return
        self._buffer += piece
        position = 0 if self._has_head else self._read_head()
        end = position
        while position >= 0 and not self._is_at_end:
            spans, end = self._read_row(position)
            if end < 0:
                break
            position = end
            if not self._is_at_end:
                self._number += 1
                yield self._decode(spans)
        del self._buffer[: max(position, 0)]
        if len(self._buffer) > MAX_ROW_BYTES:
            raise SqlError(PROGRAM_LIMIT_EXCEEDED, "a row of the data is too long")

    def _decode(self, spans: Sequence[tuple[int, int]]) -> Sequence[object]:
        values = [None if end < start else bytes(self._buffer[start:end]) for start, end in spans]
        try:
            return decode_parameters(values, self._types, self._formats)
        except FormatError as error:
            raise self._wrong(error.sqlstate, str(error)) from None

    def _read_head(self) -> int:
        """Return where the first row begins; -1 if the head is not complete."""
        head = len(_SIGNATURE) + _HEAD.size
        if len(self._buffer) < head:
            return -1
        _, extension = _HEAD.unpack_from(self._buffer, len(_SIGNATURE))
        if not self._buffer.startswith(_SIGNATURE):
            raise SqlError(BAD_COPY_FILE_FORMAT, "COPY file signature not recognized")
        if len(self._buffer) < head + extension:
            return -1
        self._has_head = True
        return head + int(extension)

    def _read_row(self, position: int) -> tuple[list[tuple[int, int]], int]:
        """Return where the values of a row begin and end, and where it ends.

        A NULL ends before it begins. The end of the row is -1 if it is not complete.
        """
        buffer = self._buffer
        spans: list[tuple[int, int]] = []
        if len(buffer) < position + _FIELD_COUNT.size:
            return spans, -1
        (count,) = _FIELD_COUNT.unpack_from(buffer, position)
        position += _FIELD_COUNT.size
        if count == -1:
            self._is_at_end = True
            return spans, position
        if count != len(self._types):
            raise self._wrong(
                BAD_COPY_FILE_FORMAT, f"row field count is {count}, expected {len(self._types)}"
            )
        for _ in range(count):
            if len(buffer) < position + _LENGTH.size:
                return spans, -1
            (length,) = _LENGTH.unpack_from(buffer, position)
            position += _LENGTH.size
            spans.append((position, position + length))
            position += max(length, 0)
        return spans, position if position <= len(buffer) else -1

    def _wrong(self, sqlstate: str, problem: str) -> SqlError:
        return SqlError(sqlstate, problem, detail=f"It is after row {self._number}.")
