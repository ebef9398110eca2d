"""Queries that a scan answers: the same columns, types, rows and order as by DuckDB."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.sql.flight.arrow_types import arrow_type
from server.sql.postgres.formats import encode_data_rows
from server.sql.postgres.pieces import ColumnFormat
from server.sql.query.errors import SqlError
from server.sql.query.query_engine import QueryEngine
from server.sql.query.results import QueryColumn, QueryResult
from server.sql.query.scan_only_plan import MAX_RESULT_BYTES, make_plan
from server.sql.query.statement_parser import parse
from server.sql.query.tables import Column, SqlType, Table, TableKind
from tests.sql.query.memory_source import MemorySource, Record, session
from tests.sql.query.test_pushdown import CONDITIONS
from tests.support.chances import examples

pytestmark = pytest.mark.process

THINGS: Final = Table(
    "amps",
    "things",
    TableKind.TOPIC,
    (
        Column("id", SqlType.BIGINT, path="/id"),
        Column("t", SqlType.TEXT, path="/t"),
        Column("n", SqlType.BIGINT, path="/n"),
        Column("d", SqlType.DOUBLE, path="/d"),
        Column("b", SqlType.BOOLEAN, path="/b"),
        Column("u", SqlType.TEXT),
        Column("tags", SqlType.JSONB),
        Column("at", SqlType.TIMESTAMPTZ),
        Column("raw", SqlType.BYTEA),
        Column("amount", SqlType.NUMERIC),
        Column("Odd name", SqlType.TEXT),
    ),
    key=("id",),
)
LOG: Final = THINGS._replace(schema="history", kind=TableKind.HISTORY)

_TEXTS: Final = ["a", "b", "ab", "", None, "5", "ä", "a\nb", "it's", "x\x00y", "€𝄞"]
_DOUBLES: Final = [1.5, None, 0.1, -2.5, -0.0, 1e300, 5e-324, math.nan, math.inf]
RECORDS: Final[list[Record]] = [
    {
        "id": index,
        "t": _TEXTS[index % len(_TEXTS)],
        "n": [5, -5, 0, None, 6, 2**53 + 1, -(2**63), 2**63 - 1][index % 8],
        "d": _DOUBLES[index % len(_DOUBLES)],
        "b": [True, False, None][index % 3],
        "u": ["x", "a", "", None][index % 4],
        "tags": [["a", "b"], None, [1, 2.5], [{"k": "ä"}], []][index % 5],
        "at": [None, 0, 1_764_500_000_123_456, -1][index % 4],
        "raw": [None, "", "a\x00b", "ä"][index % 4],
        "amount": [None, 0, -12, 10**20][index % 4],
        "Odd name": ["o", None][index % 2],
    }
    for index in range(220)
]


def source() -> MemorySource:
    return MemorySource({THINGS: RECORDS, LOG: RECORDS})


def encoded(result: QueryResult) -> list[bytes]:
    """Return the rows as a client gets them, in texts and in binary."""
    parts = {False: bytearray(), True: bytearray()}
    for batch in result.batches():
        for binary, part in parts.items():
            formats = [ColumnFormat(column.oid, binary=binary) for column in result.columns]
            part += encode_data_rows(batch, formats)
    return [bytes(part) for part in parts.values()]


def types_of(columns: Iterable[QueryColumn]) -> list[tuple[str, int, pa.DataType]]:
    """Return the columns with their types as clients of both protocols get them."""
    return [(one.name, one.oid, arrow_type(one.duckdb_type)) for one in columns]


def outcome(engine: QueryEngine, sql: str, parameters: tuple[object, ...], *, alone: bool) -> Any:
    """Return the columns and rows of a query, or its error.

    Args:
        engine: executes it.
        sql: the query.
        parameters: the values of its parameters.
        alone: whether a scan may answer it.
    """
    (statement,) = parse(sql)
    try:
        result = engine.execute(statement, source(), session(), parameters, pushdown=alone)
        return types_of(result.columns), encoded(result)
    except SqlError as error:
        return error.sqlstate, error.message


def is_scan_only(sql: str, parameters: tuple[object, ...] = ()) -> bool:
    (statement,) = parse(sql)
    assert statement.tree is not None
    plan = make_plan(statement.tree, source().tables(), ())
    return plan is not None and plan.scan(parameters) is not None


ANSWERED: Final[list[tuple[str, tuple[object, ...]]]] = [
    ("select 1", ()),
    ("select -1, 'it''s', NULL, true, false, 2147483648, -2147483648, 9223372036854775807", ()),
    ("select 1 as one, 'x' \"Two\"", ()),
    ("select * from things", ()),
    ("select x.* from things x", ()),
    ('select ID, T, things.n, "Odd name" from Things', ()),
    ("select id, id, t as id, 7, 'c' as c, null from amps.things where n = 5", ()),
    ("select 1 from things where b", ()),
    ("select d, at, raw, amount, tags from things where d > 0 and (n < 5 or n > 5)", ()),
    ("select id from things where id = $1", (17,)),
    ("select id from things where id = $1::bigint", (17,)),
    ("select id from things where t = $1 and n in (5, 6) and b is not null", ("a",)),
    ("select t from things where t = $1::varchar", ("a",)),
    ("select id from things where t = $1 limit 3 offset 1", ("a",)),
    ("select n from things where t in ('a', 'b') and n > 0 limit 5", ()),
    ("select id from things limit 3", ()),
    ("select id from things limit 0", ()),
    ("select id from things where n between 0 and 6 limit 3 offset 2", ()),
    ("select id from things offset 215", ()),
    ("select id from things limit $1 offset $2", (2, 1)),
]
DUCKDB: Final[list[tuple[str, tuple[object, ...]]]] = [
    ("select 1.5", ()),
    ("select 9223372036854775808", ()),
    ("select 1 where true", ()),
    ("select 1 limit 0", ()),
    ("select now()", ()),
    ("select user", ()),
    ("select current_user from things", ()),
    ("select id + 1 from things", ()),
    ("select things from things", ()),
    ("select *, 1 from things", ()),
    ("select distinct t from things", ()),
    ("select id from things order by id", ()),
    ("select count(*) from things", ()),
    ("select id from things where t = 5", ()),
    ("select id from things where t <> 'a'", ()),
    ("select id from things where u = 'a'", ()),
    ("select id from things where id = 1 or 1 = 1", ()),
    ("select id from things limit null", ()),
    ("select id from things limit '3'", ()),
    ("select id from things limit true", ()),
    ("select id from things limit -1", ()),
    ("select id from things limit 1.5", ()),
    ("select id from things where t = E'a\\nb'", ()),
    ("select id from things where t::varchar(1) = 'a'", ()),
    ("select id from things where id = $1", ("5",)),
    ("select id from things where id = $1::regclass", (5,)),
    ("select id from history.things", ()),
    ("select id from things, things x", ()),
    ("select id from things x(a)", ()),
    ("select x.id from things", ()),
    ("select none from things", ()),
    ("select id from none", ()),
    ("select id from things where none = 1", ()),
    ("select id from things where id = $1", ()),
]


@pytest.mark.parametrize(("sql", "parameters"), ANSWERED, ids=[sql for sql, _ in ANSWERED])
def test_a_scan_answers_as_duckdb_does(
    engine: QueryEngine, sql: str, parameters: tuple[object, ...]
) -> None:
    assert is_scan_only(sql, parameters)
    found = outcome(engine, sql, parameters, alone=True)
    assert found == outcome(engine, sql, parameters, alone=False)
    (statement,) = parse(sql)
    description = engine.describe(statement, source(), session())
    assert types_of(description.columns or ()) == found[0]
    assert len(description.parameter_oids) == len(parameters)


@pytest.mark.parametrize(("sql", "parameters"), DUCKDB, ids=[sql for sql, _ in DUCKDB])
def test_duckdb_answers_everything_else(
    engine: QueryEngine, sql: str, parameters: tuple[object, ...]
) -> None:
    assert not is_scan_only(sql, parameters)


_COLUMNS: Final = st.sampled_from(
    ["id", "t", "n", "d", "b", "u", "tags", "at", "raw", "amount", '"Odd name"', "ID", "th.t"]
)
_CONSTANTS: Final = st.sampled_from(["1", "-7", "'x'", "''", "NULL", "true", "3000000000"])
_ITEMS: Final = st.one_of(
    st.lists(st.one_of(_COLUMNS, _CONSTANTS, _COLUMNS.map(lambda name: f"{name} AS z")),
             min_size=1, max_size=5).map(", ".join),
    st.sampled_from(["*", "th.*"]),
)  # fmt: skip
_TAILS: Final = st.sampled_from(["", " limit 7", " offset 3", " limit 5 offset 40", " limit 0"])


@settings(
    max_examples=examples(250, 50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(items=_ITEMS, condition=CONDITIONS, tail=_TAILS)
def test_random_queries_have_the_same_results(
    engine: QueryEngine, items: str, condition: str, tail: str
) -> None:
    where = condition.replace("@", "th.")
    sql = f"select {items} from things th where {where}{tail}"
    found = outcome(engine, sql, (), alone=True)
    assert found == outcome(engine, sql, (), alone=False)


@settings(
    max_examples=examples(100, 20), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    column=st.sampled_from(["id", "n", "d", "t", "b"]),
    sign=st.sampled_from(["=", "<", ">=", "<>"]),
    value=st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([5, 0, 5.0, 1.5, math.nan, "a", "5", "", None, True, "2025-01-01"]),
    ),
    kind=st.sampled_from(["", "::bigint", "::text", "::double precision", "::boolean"]),
)
def test_random_parameters_have_the_same_results(
    engine: QueryEngine, column: str, sign: str, value: object, kind: str
) -> None:
    sql = f"select id, {column} from things where {column} {sign} $1{kind}"
    assert outcome(engine, sql, (value,), alone=True) == outcome(engine, sql, (value,), alone=False)


def test_large_results_are_left_to_a_process(engine: QueryEngine) -> None:
    text = "x" * (MAX_RESULT_BYTES // 100)
    records: list[Record] = [{"id": number, "t": text} for number in range(200)]
    large = MemorySource({THINGS: records})
    (statement,) = parse("select id, t from things where id >= 0")
    rows = sum(batch.num_rows for batch in engine.execute(statement, large, session()).batches())
    assert rows == 200
    assert len(large.requests) == 1, "the rows of the scan are used"


def test_a_plan_is_made_anew_when_the_columns_of_its_table_change(engine: QueryEngine) -> None:
    (statement,) = parse("select * from things limit 1")
    few = THINGS._replace(columns=THINGS.columns[:2])
    for table in (THINGS, few, THINGS):
        result = engine.execute(statement, MemorySource({table: RECORDS}), session())
        assert [column.name for column in result.columns] == [one.name for one in table.columns]
        result.close()


def test_a_plan_is_that_of_its_tree_whatever_the_text_is(engine: QueryEngine) -> None:
    (first,) = parse("select id from things where id = 7")
    (second,) = parse("select t from things where id = 3")
    second = replace(second, text=first.text)  # as of a statement that writes
    for statement, expected in ((first, 7), (second, ""), (first, 7)):
        (batch,) = engine.execute(statement, source(), session()).batches()
        assert batch.column(0).to_pylist() == [expected]
