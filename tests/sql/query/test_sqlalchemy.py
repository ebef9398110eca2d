"""SQLAlchemy's own reflection, over a driver of Python's DB-API that calls the query engine."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy

from server.sql.query.query_engine import QueryEngine
from server.sql.query.statement_parser import parse
from tests.sql.query.memory_source import MemorySource, rows_of, session

pytestmark = pytest.mark.process


WARNINGS: list[str] = []


class Cursor:
    arraysize = 1
    rowcount = -1

    def __init__(self, engine: QueryEngine) -> None:
        self._engine = engine
        self._rows: list[tuple[Any, ...]] = []
        self.description: list[tuple[Any, ...]] | None = None

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        (statement,) = parse(sql)
        result = self._engine.execute(statement, MemorySource(), session(), list(parameters))
        self.description = [(column.name, column.oid, *[None] * 5) for column in result.columns]
        self._rows = rows_of(result)
        WARNINGS.extend(result.warnings)

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def close(self) -> None:
        pass


class Connection:
    def __init__(self, engine: QueryEngine) -> None:
        self._engine = engine

    def cursor(self) -> Cursor:
        return Cursor(self._engine)

    def commit(self) -> None:
        pass

    rollback = close = commit


@pytest.fixture(scope="module")
def database(engine: QueryEngine) -> Iterator[Any]:
    from sqlalchemy.dialects import registry
    from sqlalchemy.dialects.postgresql.base import PGDialect

    driver: Any = types.ModuleType("query_engine_driver")
    driver.connect = lambda **_: Connection(engine)
    driver.paramstyle = "numeric_dollar"
    driver.Error = Exception

    class Dialect(PGDialect):
        driver = "query_engine"
        supports_statement_cache = True
        default_paramstyle = "numeric_dollar"

        @classmethod
        def import_dbapi(cls) -> Any:
            return sys.modules["query_engine_driver"]

    driver.Dialect = Dialect
    sys.modules["query_engine_driver"] = driver
    registry.register("postgresql.query_engine", "query_engine_driver", "Dialect")
    database = sqlalchemy.create_engine("postgresql+query_engine://")
    yield database
    database.dispose()
    del sys.modules["query_engine_driver"]


def test_tables_are_reflected(database: Any) -> None:
    WARNINGS.clear()
    inspector = sqlalchemy.inspect(database)
    assert inspector.get_schema_names() == ["amps", "information_schema", "json"]
    assert inspector.get_table_names() == ["orders"]
    assert inspector.get_view_names() == ["positions"]
    assert inspector.get_materialized_view_names(schema="json") == ["/Odd.Topic"]
    assert inspector.has_table("orders")
    assert not inspector.has_table("nope")
    assert inspector.get_pk_constraint("orders")["constrained_columns"] == ["_key"]
    assert inspector.get_foreign_keys("orders") == []
    assert inspector.get_indexes("orders") == []
    assert inspector.get_table_comment("orders") == {"text": "topic"}
    columns = inspector.get_columns("orders")
    assert [str(column["type"]) for column in columns] == [
        *("TEXT", "BIGINT", "TEXT", "BIGINT", "DOUBLE PRECISION", "BOOLEAN", "TEXT", "JSONB"),
        "TIMESTAMP",
    ]
    assert columns[2]["comment"] == "what is traded"
    assert WARNINGS == []


def test_reflected_tables_are_queried(database: Any) -> None:
    metadata = sqlalchemy.MetaData()
    metadata.reflect(database, views=True)
    orders = metadata.tables["orders"]
    query = sqlalchemy.select(orders.c.symbol, sqlalchemy.func.sum(orders.c.qty).label("total"))
    query = query.where(orders.c.qty > 5).group_by(orders.c.symbol).order_by("symbol")
    with database.connect() as connection:
        assert connection.execute(query).all() == [("IBM", 107), ("MSFT", 50)]
