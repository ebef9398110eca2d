"""EXPLAIN: the scans of a query, with the filters that were pushed down.

    Query in DuckDB (rows=12, 3.1 ms)
      Scan amps.orders, a topic (records=1000, rows=12, 1.9 ms)
        Columns: symbol, qty
        Filter: /symbol = 'IBM'
        Condition in DuckDB: qty % 2 = 1
        Limit: 10

Numbers are in the output of EXPLAIN ANALYZE, which executes the query. They count records that the
user may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from server.sql.query.names import quote
from server.sql.query.pushdown import PlannedScan
from server.sql.query.tables import ScanResult

if TYPE_CHECKING:
    from server.sql.tables.history_stream import HistoryStream

_MAX_LINE = 2000


class TimedScan(NamedTuple):
    """A scan with the numbers of its result.

    Attributes:
        planned: the scan.
        counts: the numbers; None if it was not executed. Those of a stream grow while it is read.
        elapsed_s: the time of all scans of the query together.
    """

    planned: PlannedScan
    counts: FixedCounts | HistoryStream | None = None
    elapsed_s: float = 0.0


class FixedCounts(NamedTuple):
    """The numbers of a scan that has ended.

    Attributes:
        num_rows: the number of rows of the result.
        records_scanned: see `ScanResult.records_scanned`.
    """

    num_rows: int
    records_scanned: int


def counts_of(result: ScanResult) -> FixedCounts | HistoryStream:
    """Return the numbers of a scan, without its rows."""
    if isinstance(result.data, pa.Table):
        return FixedCounts(result.data.num_rows, result.records_scanned)
    return result.data


def explain_lines(
    scans: Sequence[TimedScan], rows: int | None, elapsed_s: float | None
) -> list[str]:
    """Return the lines of EXPLAIN.

    Args:
        scans: the scans.
        rows: the number of rows of the result; None if the query was not executed.
        elapsed_s: the time of all.
    """
    measured = "" if rows is None else f" (rows={rows}, {(elapsed_s or 0) * 1000:.1f} ms)"
    lines = [f"Query in DuckDB{measured}"]
    if not scans:
        lines.append("  No scan of a topic")
    for scan in scans:
        lines.extend(_scan_lines(scan))
    return [line[:_MAX_LINE] for line in lines]


def _scan_lines(scan: TimedScan) -> list[str]:
    request = scan.planned.request
    table = request.table
    measured = ""
    if scan.counts is not None:
        measured = (
            f" (records={scan.counts.records_scanned}, rows={scan.counts.num_rows}, "
            f"{scan.elapsed_s * 1000:.1f} ms)"
        )
    lines = [f"  Scan {quote(table.schema)}.{quote(table.name)}, a {table.kind.value}{measured}"]
    columns = ", ".join(quote(name) for name in request.columns) or "none, only the number of rows"
    lines.append(f"    Columns: {columns}")
    if request.filter is not None:
        lines.append(f"    Filter: {request.filter}")
    if request.as_of is not None:
        lines.append(f"    As of: {request.as_of}")
    lines.extend(f"    Range: {bound}" for bound in request.bounds)
    lines.extend(f"    Condition in DuckDB: {condition}" for condition in scan.planned.residual)
    if request.limit is not None:
        lines.append(f"    Limit: {request.limit}")
    return lines
