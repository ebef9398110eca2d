"""Failures of scans."""

from __future__ import annotations

from server.sql.query.errors import (
    FEATURE_NOT_SUPPORTED,
    INTERNAL_ERROR,
    INVALID_PARAMETER_VALUE,
    OUT_OF_MEMORY,
    QUERY_CANCELED,
    UNDEFINED_TABLE,
    SqlError,
)


class ScanError(SqlError):
    """A scan has failed.

    Args:
        message: the failure, for the client.
    """

    code = INTERNAL_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message)


class ScanCancelledError(ScanError):
    """The scan was cancelled."""

    code = QUERY_CANCELED


class ScanTooLargeError(ScanError):
    """The records take more memory than a query may use."""

    code = OUT_OF_MEMORY


class ColumnsWidenedError(ScanError):
    """A column has values of another type than its table said; the table has that type now.

    A query that is planned again succeeds. The code is that of "cached plan must not change result
    type" in PostgreSQL.
    """

    code = FEATURE_NOT_SUPPORTED


class TableGoneError(ScanError):
    """There is no such table, or the user may not read it any more."""

    code = UNDEFINED_TABLE


class InvalidFilterError(ScanError):
    """A filter cannot be parsed, or takes too many steps."""


class UnknownBookmarkError(ScanError):
    """The log has no message with a bookmark."""

    code = INVALID_PARAMETER_VALUE
