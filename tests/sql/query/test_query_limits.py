"""Limits of queries: cancellation, timeouts, memory, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.query.query_engine import QueryEngine, QueryLimits
from server.sql.query.statement_parser import parse
from tests.sql.query.memory_source import MemorySource, rows_of, run, session

pytestmark = pytest.mark.process

LONG = (
    "select sum(a.i * b.i) from generate_series(1, 100000) a(i), generate_series(1, 1000000) b(i)"
)


@pytest.fixture(scope="module")
def small_engine() -> Iterator[QueryEngine]:
    engine = QueryEngine(QueryLimits(max_memory_bytes=64 * 1024 * 1024, max_threads=1))
    yield engine
    engine.close()


def test_a_query_is_cancelled_from_another_thread(engine: QueryEngine) -> None:
    cancellation = Cancellation()
    threading.Timer(0.2, cancellation.cancel).start()
    started = time.monotonic()
    with pytest.raises(SqlError) as caught:
        run(engine, LONG, cancellation=cancellation)
    assert (caught.value.sqlstate, caught.value.message) == (
        "57014",
        "canceling statement due to user request",
    )
    assert time.monotonic() - started < 20


def test_a_query_is_cancelled_before_it_starts_in_its_scan_and_between_batches(
    engine: QueryEngine,
) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(SqlError, match="user request"):
        run(engine, "select 1", cancellation=cancellation)
    cancellation = Cancellation()
    source = MemorySource()
    source.on_scan = cancellation.cancel
    with pytest.raises(SqlError, match="user request"):
        run(engine, "select * from orders", source=source, cancellation=cancellation)
    cancellation = Cancellation()
    (statement,) = parse("select * from generate_series(1, 1000000)")
    result = engine.execute(statement, MemorySource(), session(), cancellation=cancellation)
    batches = result.batches()
    assert next(batches).num_rows > 0
    cancellation.cancel()
    with pytest.raises(SqlError, match="user request"):
        rows_of(result)


def test_a_statement_ends_after_its_timeout() -> None:
    engine = QueryEngine(QueryLimits(statement_timeout_s=0.2))
    with pytest.raises(SqlError, match="statement timeout") as caught:
        run(engine, LONG)
    assert caught.value.sqlstate == "57014"
    engine.close()


def test_a_client_may_shorten_the_timeout(engine: QueryEngine) -> None:
    own = session()
    own.set("statement_timeout", "200ms")
    with pytest.raises(SqlError, match="statement timeout"):
        run(engine, LONG, sql_session=own)


def test_a_query_that_needs_more_memory_is_an_error(small_engine: QueryEngine) -> None:
    sql = "select i, count(*) from generate_series(1, 50000000) g(i) group by i order by 2, 1"
    with pytest.raises(SqlError) as caught:
        run(small_engine, sql)
    assert caught.value.sqlstate == "53200"
    assert caught.value.hint is not None
    assert run(small_engine, "select 1")[1] == [(1,)]


def test_endless_rows_are_computed_as_they_are_read(engine: QueryEngine) -> None:
    (statement,) = parse("select i, 'x' || i from generate_series(1, 100000000000) g(i)")
    result = engine.execute(statement, MemorySource(), session())
    batches = result.batches()
    assert [next(batches).num_rows for _ in range(3)] == [2048] * 3
    result.close()


def test_queries_run_in_several_threads(engine: QueryEngine) -> None:
    outcomes: list[Any] = []

    def work(number: int) -> None:
        sql = "select $1::int from orders where id = $1"
        outcomes.extend(run(engine, sql, number % 5 + 1) for _ in range(5))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 40
    assert all(len(rows) == 1 for _, rows in outcomes)


def test_all_tables_of_a_query_are_scanned_at_once(engine: QueryEngine) -> None:
    source = MemorySource()
    calls: list[int] = []
    source.on_scan = lambda: calls.append(1)
    run(engine, "select * from orders, positions, (select id from orders) x limit 1", source=source)
    assert calls == [1]


def test_the_time_of_planning_counts_for_the_timeout(engine: QueryEngine) -> None:
    own = session()
    own.set("statement_timeout", "20ms")

    class SlowSource(MemorySource):
        def tables(self) -> Any:
            time.sleep(0.05)
            return super().tables()

    (statement,) = parse("select id from orders")
    source = SlowSource()
    with pytest.raises(SqlError, match="statement timeout"):
        engine.execute(statement, source, own)
    assert source.requests == []
