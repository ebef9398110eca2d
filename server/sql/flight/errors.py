"""Errors as gRPC reports them: a status, and a text with the SQLSTATE and the position."""

from __future__ import annotations

from typing import Final

import grpc

from server.sql.query.errors import SqlError
from server.sql.result_columns import ResultChangedError
from server.sql.sqlstate import INTERNAL_ERROR, QUERY_CANCELED
from server.sql.tables.errors import ColumnsWidenedError

_Code = grpc.StatusCode

_CODES: Final = {
    "0A000": _Code.UNIMPLEMENTED,
    "26000": _Code.NOT_FOUND,
    "42501": _Code.PERMISSION_DENIED,
    "42P01": _Code.NOT_FOUND,
    QUERY_CANCELED: _Code.CANCELLED,
}
"""The status of a SQLSTATE."""

_CLASS_CODES: Final = {
    "08": _Code.INVALID_ARGUMENT,
    "21": _Code.INVALID_ARGUMENT,
    "22": _Code.INVALID_ARGUMENT,
    "23": _Code.FAILED_PRECONDITION,
    "25": _Code.FAILED_PRECONDITION,
    "28": _Code.UNAUTHENTICATED,
    "40": _Code.ABORTED,
    "42": _Code.INVALID_ARGUMENT,
    "53": _Code.RESOURCE_EXHAUSTED,
    "54": _Code.RESOURCE_EXHAUSTED,
    "55": _Code.FAILED_PRECONDITION,
    "57": _Code.UNAVAILABLE,
}
"""The status of a class of SQLSTATEs, its first two characters."""

_MAX_TEXT: Final = 4_000
"""Characters of the text: it is a header, of which clients accept 8 KB."""


def status_of(error: SqlError) -> grpc.StatusCode:
    """Return the status of an error; ABORTED if another execution of the statement succeeds."""
    if isinstance(error, ResultChangedError | ColumnsWidenedError):
        return _Code.ABORTED
    sqlstate = error.sqlstate
    return _CODES.get(sqlstate) or _CLASS_CODES.get(sqlstate[:2]) or _Code.INTERNAL


def text_of(error: SqlError) -> str:
    """Return the text of an error."""
    place = f", position {error.position}" if error.position else ""
    lines = [f"{error.message} (SQLSTATE {error.sqlstate}{place})"]
    if error.detail:
        lines.append(f"DETAIL: {error.detail}")
    if error.hint:
        lines.append(f"HINT: {error.hint}")
    return "\n".join(lines)[:_MAX_TEXT]


def internal_error(defect: Exception) -> SqlError:
    """Return the error that stands for a defect of the server."""
    return SqlError(INTERNAL_ERROR, f"internal error: {type(defect).__name__}")
