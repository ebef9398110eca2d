"""Adds the version of records to the rows of a table, for UPDATE and DELETE.

The version is the sequence of a record's last change. A row is changed only if its record still has
the version that the statement has read: no change of another client is lost, and none is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from server.sql.query.tables import ScanRequest, ScanResult, Table, TableSource
from server.sql.tables.columns import Metadata

_VERSION: Final = Metadata.SEQUENCE.value


class VersionedRows:
    """A `TableSource` with one more column in one of its tables.

    Args:
        source: the tables.
        table: the table with the column.

    Attributes:
        version_column: the name of the column, which no other column of the table has.
    """

    def __init__(self, source: TableSource, table: Table) -> None:
        self._source: Final = source
        self._name: Final = (table.schema, table.name)
        names = {column.name.lower() for column in table.columns}
        name = "_version"
        while name in names:
            name = f"_{name}"
        self.version_column: Final = name

    def tables(self) -> Sequence[Table]:
        """See `TableSource.tables`."""
        column = _VERSION._replace(name=self.version_column)
        return [
            table._replace(columns=(*table.columns, column)) if self._is_versioned(table) else table
            for table in self._source.tables()
        ]

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """See `TableSource.scan`."""
        results = self._source.scan([self._to_scanned(request) for request in requests])
        return [
            result._replace(data=result.data.rename_columns(list(request.columns)))
            if isinstance(result.data, pa.Table)
            and self._is_versioned(request.table)
            and request.columns
            else result
            for request, result in zip(requests, results, strict=True)
        ]

    def _is_versioned(self, table: Table) -> bool:
        return (table.schema, table.name) == self._name

    def _to_scanned(self, request: ScanRequest) -> ScanRequest:
        if not self._is_versioned(request.table):
            return request
        columns = tuple(
            _VERSION.name if name == self.version_column else name for name in request.columns
        )
        table = request.table
        scanned = table._replace(columns=(*table.columns[:-1], _VERSION))
        return request._replace(table=scanned, columns=columns)
