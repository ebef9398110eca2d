"""Tables in memory: records as JSON bodies, whose filters are those of the product."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from server.expressions import parse, paths
from server.expressions.backends.compile_message import compile_filter
from server.message_types.registry import MessageTypes
from server.sql.query.cancellation import Cancellation
from server.sql.query.query_engine import QueryEngine
from server.sql.query.results import QueryColumn, QueryResult
from server.sql.query.session import SqlSession
from server.sql.query.statement_parser import parse as parse_sql
from server.sql.query.tables import (
    Column,
    ScanRequest,
    ScanResult,
    SqlType,
    Table,
    TableKind,
    TableSource,
)

Record = dict[str, Any]

ORDERS = Table(
    "amps",
    "orders",
    TableKind.TOPIC,
    (
        Column("_key", SqlType.TEXT, "the SOW key"),
        Column("id", SqlType.BIGINT, path="/id"),
        Column("symbol", SqlType.TEXT, "what is traded", path="/symbol"),
        Column("qty", SqlType.BIGINT, path="/qty"),
        Column("price", SqlType.DOUBLE, path="/price"),
        Column("open", SqlType.BOOLEAN, path="/open"),
        Column("client.name", SqlType.TEXT, path="/client/name"),
        Column("tags", SqlType.JSONB),
        Column("_timestamp", SqlType.TIMESTAMPTZ),
    ),
    key=("_key",),
)

RECORDS: list[Record] = [
    {"id": 1, "symbol": "IBM", "qty": 100, "price": 1.5, "open": True, "client": {"name": "Ann"}},
    {"id": 2, "symbol": "MSFT", "qty": 50, "price": 20.0, "open": False, "tags": ["a", "b"]},
    {"id": 3, "symbol": "IBM", "qty": 7, "price": 2.25, "open": True, "client": {"name": ""}},
    {"id": 4, "symbol": "", "qty": None, "price": 3},
    {"id": 5, "qty": -3, "client": {"name": "Bob"}},
]

POSITIONS = Table(
    "amps",
    "positions",
    TableKind.VIEW,
    (
        Column("symbol", SqlType.TEXT, path="/symbol"),
        Column("total", SqlType.BIGINT, path="/total"),
    ),
)

CAMEL = Table(
    "json",
    "/Odd.Topic",
    TableKind.CONFLATED,
    (
        Column("orderId", SqlType.BIGINT, path="/orderId"),
        Column("ORDERID", SqlType.TEXT, path="/ORDERID"),
    ),
    key=("orderId",),
)


def _value(record: Record, column: Column) -> Any:
    if column.name == "_key":
        return str(record["id"])
    if column.type is SqlType.JSONB:
        tree = record.get(column.name)
        return None if tree is None else json.dumps(tree)
    found: Any = record
    for step in column.name.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if column.type is SqlType.DOUBLE and found is not None:
        return float(found)
    return found


class MemorySource(TableSource):
    """A source of tables in memory.

    Attributes:
        requests: all scans.
        on_scan: called at the beginning of each.
    """

    def __init__(self, contents: dict[Table, Sequence[Record]] | None = None) -> None:
        self._contents = contents or {
            ORDERS: RECORDS,
            POSITIONS: [{"symbol": "IBM", "total": 107}, {"symbol": "SAP", "total": 1}],
            CAMEL: [{"orderId": 1, "ORDERID": "one"}],
        }
        self.requests: list[ScanRequest] = []
        self.on_scan: Callable[[], object] = lambda: None

    def tables(self) -> Sequence[Table]:
        return list(self._contents)

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        self.on_scan()
        self.requests.extend(requests)
        return [self._scan(request) for request in requests]

    def _scan(self, request: ScanRequest) -> ScanResult:
        records = list(self._contents[request.table])
        chosen = records
        if request.filter is not None:
            tree = parse(request.filter)
            predicate = compile_filter(tree)
            extract = MessageTypes().get("json").extractor(paths(tree))
            chosen = [
                record
                for record in records
                if predicate(
                    tuple(extract(json.dumps(record).encode()))
                    if all(value == value for value in record.values())
                    else tuple(record.get(str(path[0])) for path in paths(tree))  # JSON has no NaN
                )
            ]
        if request.limit is not None:
            chosen = chosen[: request.limit]
        known = {column.name: column for column in request.table.columns}
        columns = [known[name] for name in request.columns]
        arrays = [
            pa.array([_value(record, column) for record in chosen], column.type.arrow_type)
            for column in columns
        ]
        if not arrays:
            empty = pa.table({"rows": pa.nulls(len(chosen))}).select([])
            return ScanResult(empty, len(records))
        return ScanResult(pa.table(arrays, names=list(request.columns)), len(records))


def session() -> SqlSession:
    return SqlSession("ann", "trading", 42)


def run(
    engine: QueryEngine,
    sql: str,
    *parameters: object,
    source: TableSource | None = None,
    sql_session: SqlSession | None = None,
    cancellation: Cancellation | None = None,
    pushdown: bool = True,
) -> tuple[tuple[QueryColumn, ...], list[tuple[Any, ...]]]:
    """The columns and rows of the last statement of a text."""
    statement = parse_sql(sql)[-1]
    result = engine.execute(
        statement,
        source or MemorySource(),
        sql_session or session(),
        parameters,
        cancellation=cancellation,
        pushdown=pushdown,
    )
    return result.columns, rows_of(result)


def rows_of(result: QueryResult) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for batch in result.batches():
        columns = [column.to_pylist() for column in batch.columns]
        rows.extend(zip(*columns, strict=True))
    return rows
