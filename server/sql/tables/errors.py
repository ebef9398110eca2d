"""Failures of scans. The texts are for clients, the codes are PostgreSQL's (its Appendix A)."""

from __future__ import annotations

from typing import ClassVar


class ScanError(Exception):
    """A scan has failed.

    Attributes:
        sqlstate: the code of the failure.
    """

    sqlstate: ClassVar[str] = "58000"


class ScanCancelledError(ScanError):
    """The scan was cancelled."""

    sqlstate = "57014"


class ScanTooLargeError(ScanError):
    """The records take more memory than a query may use."""

    sqlstate = "53200"


class ColumnsWidenedError(ScanError):
    """A column has values of another type than its table said; the table has that type now.

    A query that is planned again succeeds. The code is that of "cached plan must not change result
    type" in PostgreSQL.
    """

    sqlstate = "0A000"


class TableGoneError(ScanError):
    """There is no such table, or the user may not read it any more."""

    sqlstate = "42P01"


class InvalidFilterError(ScanError):
    """A filter cannot be parsed, or takes too many steps."""

    sqlstate = "42601"
