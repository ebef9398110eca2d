"""Errors of SQL statements, with the codes that clients of PostgreSQL expect.

Source: PostgreSQL documentation, Appendix A, PostgreSQL Error Codes.
"""

from __future__ import annotations

from typing import Final

SYNTAX_ERROR: Final = "42601"
UNDEFINED_TABLE: Final = "42P01"
UNDEFINED_COLUMN: Final = "42703"
UNDEFINED_FUNCTION: Final = "42883"
UNDEFINED_OBJECT: Final = "42704"
UNDEFINED_PARAMETER: Final = "42P02"
DUPLICATE_ALIAS: Final = "42712"
AMBIGUOUS_COLUMN: Final = "42702"
GROUPING_ERROR: Final = "42803"
DATATYPE_MISMATCH: Final = "42804"
INVALID_TEXT_REPRESENTATION: Final = "22P02"
NUMERIC_VALUE_OUT_OF_RANGE: Final = "22003"
DIVISION_BY_ZERO: Final = "22012"
DATA_EXCEPTION: Final = "22000"
INVALID_PARAMETER_VALUE: Final = "22023"
PROTOCOL_VIOLATION: Final = "08P01"
INSUFFICIENT_PRIVILEGE: Final = "42501"
FEATURE_NOT_SUPPORTED: Final = "0A000"
INVALID_COLUMN_REFERENCE: Final = "42P10"
INVALID_ROW_COUNT_IN_LIMIT: Final = "2201W"
WINDOWING_ERROR: Final = "42P20"
INVALID_DATETIME_FORMAT: Final = "22007"
DATETIME_FIELD_OVERFLOW: Final = "22008"
CARDINALITY_VIOLATION: Final = "21000"
QUERY_CANCELED: Final = "57014"
OUT_OF_MEMORY: Final = "53200"
PROGRAM_LIMIT_EXCEEDED: Final = "54000"
STATEMENT_TOO_COMPLEX: Final = "54001"
CONFIGURATION_LIMIT_EXCEEDED: Final = "53400"
ADMIN_SHUTDOWN: Final = "57P01"
CRASH_SHUTDOWN: Final = "57P02"
CANT_CHANGE_RUNTIME_PARAM: Final = "55P02"
INTERNAL_ERROR: Final = "XX000"

MEMORY_HINT: Final = "Select fewer columns, filter or aggregate more, or raise MaxMemory."


class SqlError(Exception):
    """A statement failed; the client gets all of this.

    Attributes:
        sqlstate: the code, of five characters.
        message: one sentence without a full stop, in lower case, as PostgreSQL's are.
        detail: more about the cause.
        hint: a way out.
        position: offset of the offending token in the text of the query, in characters from 1.
    """

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        """Return the message with its code, for logs."""
        return f"{self.message} ({self.sqlstate})"


class DuckDbError(Exception):
    """An error of DuckDB, as the process of the query reports it.

    Attributes:
        kinds: the names of its class and of the classes above that.
    """

    def __init__(self, kinds: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.kinds = kinds


class NotAtOnceError(Exception):
    """A statement has to wait for something, so that it needs a thread of its own."""
