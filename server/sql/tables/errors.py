"""Failures of scans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from server.sql.query.errors import SqlError
from server.sql.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INTERNAL_ERROR,
    INVALID_PARAMETER_VALUE,
    OUT_OF_MEMORY,
    QUERY_CANCELED,
    UNDEFINED_TABLE,
)

if TYPE_CHECKING:
    from server.message_types.paths import Path
    from server.sql.query.tables import SqlType


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


def records_too_large(max_bytes: int) -> ScanTooLargeError:
    """Return the error of a scan of more than some bytes."""
    return ScanTooLargeError(
        f"the records that the query reads take more than {max_bytes >> 20} MB"
    )


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


class MisfitError(Exception):
    """Columns have values of other types than they should have.

    Attributes:
        types: the types that hold the values.
    """

    def __init__(self, types: Mapping[Path, SqlType]) -> None:
        super().__init__("columns have values of other types")
        self.types = types
