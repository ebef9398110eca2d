"""The execution of one query plan: its tables are scanned, and DuckDB computes the result.

The first rows of streams are read at once, so that most failures to read them are known before the
client gets any.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from server.sql.query.cancellation import Cancellation, time_limit, until_cancelled
from server.sql.query.errors import DuckDbError, SqlError
from server.sql.query.explain import TimedScan, counts_of
from server.sql.query.processes.process_query import ProcessQuery, QueryText
from server.sql.query.tables import ScanRequest, ScanResult, TableSource

if TYPE_CHECKING:
    from server.sql.query.processes.process_pool import ProcessPool
    from server.sql.query.query_engine import QueryLimits
    from server.sql.query.query_plan import QueryPlan
    from server.sql.query.results import QueryColumn
    from server.sql.query.session import SqlSession
    from server.sql.tables.history_stream import HistoryStream


class PlanExecution:
    """The execution of one plan.

    Args:
        plan: the plan.
        cancellation: cancels the query.
        session: the session of the client.
        scanned: the results of scans that have been made for it.

    Attributes:
        scans: the scans, with their numbers.
    """

    def __init__(
        self,
        plan: QueryPlan,
        cancellation: Cancellation,
        session: SqlSession,
        scanned: Mapping[ScanRequest, ScanResult],
    ) -> None:
        self.scans: list[TimedScan] = []
        self._plan: Final = plan
        self._cancellation: Final = cancellation
        self._session: Final = session
        self._scanned = scanned
        self._streams: list[HistoryStream] = []
        self._query: ProcessQuery | None = None

    def batches(
        self, pool: ProcessPool, source: TableSource, limits: QueryLimits, started_s: float
    ) -> Iterator[tuple[QueryColumn, ...] | pa.RecordBatch]:
        """Yield the columns, then the batches.

        Args:
            pool: executes the query.
            source: has the tables.
            limits: the limits of queries.
            started_s: when the statement began; the timeout counts from then.
        """
        timeout_s = limits.timeout_s(self._session)
        try:
            with time_limit(timeout_s, started_s, self._cancellation):
                columns = self._open(pool, source, limits)
                yield columns
                if self._query is not None:
                    yield from until_cancelled(self._query.batches(), self._cancellation)
                self._cancellation.check()
        except SqlError:
            self._cancellation.check()
            raise
        except DuckDbError as error:
            self._cancellation.check()
            self._raise_stream_error()
            raise self._plan.translated(error) from None
        finally:
            if self._query is not None:
                self._query.close()
            for stream in self._streams:
                stream.close()

    def _open(
        self, pool: ProcessPool, source: TableSource, limits: QueryLimits
    ) -> tuple[QueryColumn, ...]:
        """Scan the tables and begin the query; return its columns."""
        lease = pool.reserve(self._session.user, self._cancellation)
        try:
            text = self._text(source, limits)
        except BaseException:
            lease.give_back(is_finished=True)
            raise
        try:
            query = pool.begin(lease, text, self._cancellation)
            self._query = query
            columns = self._plan.result_columns(query.names, query.types)
            if self._streams:
                query.read_ahead()
        except DuckDbError as error:
            self._cancellation.check()
            self._raise_stream_error()
            return self._plan.fallback_columns(error)
        return columns

    def _text(self, source: TableSource, limits: QueryLimits) -> QueryText:
        """Scan the tables; return the query for DuckDB."""
        tables = self._plan.tables(self._scan(source))
        return QueryText(
            self._plan.final_sql,
            self._plan.values(),
            tables,
            limits.batch_rows,
            self._session.notify,
        )

    def _scan(self, source: TableSource) -> dict[ScanRequest, ScanResult]:
        """Scan all tables as of one moment; equal requests are one."""
        requests = list(dict.fromkeys(scan.request for scan in self._plan.scans))
        if not requests:
            return {}
        started_s = time.monotonic()
        scanned, self._scanned = self._scanned, {}
        results = (
            dict(scanned)
            if scanned.keys() == set(requests)
            else dict(zip(requests, source.scan(requests), strict=True))
        )
        elapsed_s = time.monotonic() - started_s
        self.scans = [
            TimedScan(scan, counts_of(results[scan.request]), elapsed_s)
            for scan in self._plan.scans
        ]
        self._streams = [
            result.data for result in results.values() if not isinstance(result.data, pa.Table)
        ]
        self._cancellation.check()
        return results

    def _raise_stream_error(self) -> None:
        """Raise the error that has ended a stream, if one has ended so."""
        for stream in self._streams:
            if stream.error is not None:
                raise stream.error from None
