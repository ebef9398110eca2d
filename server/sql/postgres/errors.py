"""Errors as PostgreSQL reports them: a SQLSTATE, a message, and where there is more to say, more.

Source: PostgreSQL 16, Appendix A (error codes) and 55.8 (error and notice message fields).
"""

from __future__ import annotations

from typing import Final, NamedTuple

PROTOCOL_VIOLATION: Final = "08P01"
CONNECTION_FAILURE: Final = "08006"
FEATURE_NOT_SUPPORTED: Final = "0A000"
NUMERIC_VALUE_OUT_OF_RANGE: Final = "22003"
INVALID_DATETIME_FORMAT: Final = "22007"
DATETIME_FIELD_OVERFLOW: Final = "22008"
CHARACTER_NOT_IN_REPERTOIRE: Final = "22021"
INVALID_PARAMETER_VALUE: Final = "22023"
ARRAY_SUBSCRIPT_ERROR: Final = "2202E"
INVALID_TEXT_REPRESENTATION: Final = "22P02"
INVALID_BINARY_REPRESENTATION: Final = "22P03"
INVALID_SQL_STATEMENT_NAME: Final = "26000"
INVALID_AUTHORIZATION: Final = "28000"
INVALID_PASSWORD: Final = "28P01"  # noqa: S105 - a code
INVALID_CURSOR_NAME: Final = "34000"
DUPLICATE_CURSOR: Final = "42P03"
DUPLICATE_PREPARED_STATEMENT: Final = "42P05"
NAME_TOO_LONG: Final = "42622"
CANNOT_COERCE: Final = "42846"
CONFIGURATION_LIMIT_EXCEEDED: Final = "53400"
PROGRAM_LIMIT_EXCEEDED: Final = "54000"

ERROR: Final = "ERROR"
FATAL: Final = "FATAL"
NOTICE: Final = "NOTICE"
WARNING: Final = "WARNING"


class Diagnostic(NamedTuple):
    """The content of an ErrorResponse or a NoticeResponse.

    Attributes:
        sqlstate: five characters.
        message: one line for people.
        severity: ERROR ends a statement, FATAL the connection; NOTICE and WARNING end nothing.
        detail: more about the problem; empty for none.
        hint: what to do about it; empty for none.
        position: where in the statement, in characters from 1 on; 0 for nowhere.
        routine: the function of PostgreSQL that has this error, for drivers that act on it; empty
            for none.
    """

    sqlstate: str
    message: str
    severity: str = ERROR
    detail: str = ""
    hint: str = ""
    position: int = 0
    routine: str = ""


class FormatError(ValueError):
    """A value that cannot be decoded from, or encoded in, the format that the client asked for.

    Attributes:
        sqlstate: the code for the client.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
