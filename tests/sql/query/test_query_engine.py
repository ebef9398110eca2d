"""Execution: rows, types, names, parameters, errors, hostile statements."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from server.sql.query.cancellation import Cancellation
from server.sql.query.duckdb_functions import ALLOWED
from server.sql.query.errors import SqlError
from server.sql.query.pg_functions import CONSTANTS, FORBIDDEN, LOOKUPS
from server.sql.query.query_engine import QueryEngine
from server.sql.query.rewrite import ExpressionRewriter
from server.sql.query.statement_parser import parse
from tests.sql.query.memory_source import MemorySource, run, session

pytestmark = pytest.mark.process


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select 1", [(1,)]),
        ("values (1, 'a'), (2, NULL)", [(1, "a"), (2, None)]),
        ("select symbol, sum(qty) from orders group by symbol order by symbol nulls first",
         [(None, Decimal(-3)), ("", None), ("IBM", Decimal(107)), ("MSFT", Decimal(50))]),
        ("select id from orders order by qty", [(5,), (3,), (2,), (1,), (4,)]),
        ("select id from orders order by qty desc", [(4,), (1,), (2,), (3,), (5,)]),
        ("select o.id, p.total from orders o join positions p on o.symbol = p.symbol order by 1",
         [(1, 107), (3, 107)]),
        (("select distinct on (symbol) symbol, id from orders where symbol <> '' "
         "order by symbol, id desc"), [("IBM", 3), ("MSFT", 2)]),
        ("select id, row_number() over (order by id desc) from orders where id < 3 order by id",
         [(1, 2), (2, 1)]),
        ("select count(*) filter (where open), string_agg(symbol, ',' order by id) from orders",
         [(2, "IBM,MSFT,IBM,")]),
        ("select o.id, l.twice from orders o, lateral (select o.qty * 2 as twice) l where id = 1",
         [(1, 200)]),
        (("with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) "
         "select * from n"), [(1,), (2,), (3,)]),
        ("select * from generate_series(1, 3) g(i)", [(1,), (2,), (3,)]),
        ("select generate_series(1, 3)", [(1,), (2,), (3,)]),
        ("select tags ->> 0, tags -> 1 from orders where id = 2", [("a", '"b"')]),
        ("select 7 / 2, -7 / 2, 7 % 3, 7.0 / 2", [(3, -3, 1, 3.5)]),
        ("select E'a\\n\\x41', 'a\\nb', $$it's$$", [("a\nA", "a\\nb", "it's")]),
        ("select E'a\\\\nb', E'\\\\\\\\'", [("a\\nb", "\\\\")]),
        ("select E'it''s', E'it\\'s'", [("it's", "it's")]),
        ("select E'a\\\\b' = 'a\\b', length(E'a\\\\b')", [(True, 3)]),
        (("select 'a_b' like 'a\\_b', 'axb' like 'a\\_b', 'ABC' ilike 'a%', 'abc' ~ '^a', "
         "'abc' !~* 'X', 'a%' like 'a!%' escape '!'"), [(True, False, True, True, True, True)]),
        ("select date_trunc('day', timestamptz '2026-01-02 03:04:05Z')",
         [(datetime.datetime(2026, 1, 2, tzinfo=UTC),)]),
        ("select extract(epoch from timestamptz '1970-01-02 00:00:00Z')::bigint", [(86400,)]),
        ("select 5::text, '5'::int, true::int, 'abc'::varchar(2), 1.5::numeric(10, 2)",
         [("5", 5, 1, "ab", Decimal("1.50"))]),
        ("select '{1,2}'::int[], array['a', null], (array[1, 2])[1]", [([1, 2], ["a", None], 1)]),
        ("select id from orders where id = any('{1,3}')", [(1,), (3,)]),
        ("select encode('\\x01ff'::bytea, 'hex') is not null", [(True,)]),
        ("select id from orders union select total from positions order by 1 limit 2",
         [(1,), (2,)]),
        ("select \"client.name\" from orders where id = 1", [("Ann",)]),
        ("select Symbol from AMPS.Orders where ID = 1", [("IBM",)]),
        ("select amps.orders.id from amps.orders where amps.orders.id = 2", [(2,)]),
        ("select (select max(total) from positions) from orders where id = 1", [(107,)]),
        ("select count from (select count(*) from orders) x", [(5,)]),
        ("select column1 from (values (1), (2)) v order by 1", [(1,), (2,)]),
        ("select coalesce(qty, 0), nullif(symbol, ''), greatest(1, 2) from orders where id = 4",
         [(0, None, 2)]),
        ("select 1 where 'a' = any(array['a', 'b']) and 3 <> all(array[1, 2])", [(1,)]),
        ("select lpad('a', 3, 'x'), repeat('ab', 2), replace('aa', 'a', 'b')",
         [("xxa", "abab", "bb")]),
        ("table positions", [("IBM", 107), ("SAP", 1)]),
        ("select id from orders where id = 1 and symbol <> ''", [(1,)]),
        ("select regexp_replace('abab', 'a', 'x'), regexp_replace('abab', 'a', 'x', 'g')",
         [("xbab", "xbxb")]),
        ("select replace('a', 'b', null)", [(None,)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_query_answers(engine: QueryEngine, sql: str, rows: list[Any]) -> None:
    assert run(engine, sql)[1] == rows


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select 1, 'a', qty, qty + 1, count(*), sum(qty) as s from orders group by qty",
         ["?column?", "?column?", "qty", "?column?", "count", "s"]),
        ("select version(), now(), current_date, lower('A'), coalesce(1, 2)",
         ["version", "now", "current_date", "lower", "coalesce"]),
        ("select 1::bigint, qty::text, 'a'::text, null, true from orders",
         ["int8", "qty", "text", "?column?", "bool"]),
        ("select case when true then 1 end, exists (select 1), array[1], (select 5 as x)",
         ["case", "exists", "array", "x"]),
        ("select o.qty, p.* from orders o, positions p", ["qty", "symbol", "total"]),
        ("select a.id, b.id from orders a, orders b", ["id", "id"]),
        ("select date_trunc('day', now()), extract(year from now()), random()",
         ["date_trunc", "extract", "random"]),
        ('select "orderId", "ORDERID", orderid from json."/Odd.Topic"',
         ["orderId", "ORDERID", "orderid"]),
        ('select * from json."/Odd.Topic"', ["orderId", "ORDERID"]),
        ('select QTY as "Two Words", Qty as X from orders', ["Two Words", "x"]),
        ("select sum(qty) over () from orders", ["sum"]),
        ("select 1 as a union select 2 as b", ["a"]),
    ],
)  # fmt: skip
def test_columns_have_the_names_that_postgresql_gives(
    engine: QueryEngine, sql: str, names: list[str]
) -> None:
    assert [column.name for column in run(engine, sql)[0]] == names


def test_columns_have_the_types_that_clients_know(engine: QueryEngine) -> None:
    sql = (
        "select true, 1::smallint, 1, 1::bigint, 1::real, 1::float8, 1.5::numeric, 'a', "
        "'\\x01'::bytea, date '2026-01-01', time '10:00', timestamp '2026-01-01 10:00', now(), "
        "interval '1 day', tags, null, array[1], array['a'], sum(1::bigint), count(*), "
        "'00000000-0000-0000-0000-000000000001'::uuid from orders group by tags"
    )
    expected = [16, 21, 23, 20, 700, 701, 1700, 25, 17, 1082, 1083, 1114, 1184, 1186, 3802, 25]
    expected += [1007, 1009, 1700, 20]
    assert [column.oid for column in run(engine, sql)[0]][:20] == expected


def test_a_description_is_that_of_the_result(engine: QueryEngine) -> None:
    for sql in (
        "select * from orders",
        "select symbol, sum(qty * price), max(tags) from orders where id = $1 group by 1",
        'select * from json."/Odd.Topic"',
        "select oid, relkind from pg_class where relname = $1",
        "show server_version",
        "explain select 1",
    ):
        (statement,) = parse(sql)
        described = engine.describe(statement, MemorySource(), session())
        values = [1 if "id = $1" in sql else "orders"] * len(described.parameter_oids)
        assert described.columns == run(engine, sql, *values)[0]
    source = MemorySource()
    engine.describe(parse("select * from orders")[0], source, session())
    assert source.requests == []
    (begin,) = parse("begin")
    assert engine.describe(begin, source, session()).columns is None


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("with orders as (select * from orders where id > 3) select id from orders order by 1",
         [(4,), (5,)]),
        ("with orders as (select * from orders) select orders.tags from orders where orders.id = 2",
         [('["a", "b"]',)]),
        ("with a as (select 1 x) select * from (with a as (select x + 1 x from a) select * from a)",
         [(2,)]),
        (("with a as (with b as (select 1 x) select * from b), b as (select 2 x) "
         "select a.x, b.x from a, b"), [(1, 2)]),
        ("with a as (select 1 x), b as (select x + 1 x from a) select a.x, b.x from a, b",
         [(1, 2)]),
        (("with recursive t(n) as (select 1 union all select n + 1 from t where t.n < 5) "
         "select sum(n) from t"), [(Decimal(15),)]),
        ("with orders as (select 1 id) select o.id from amps.orders o, orders where o.id = 3",
         [(3,)]),
        ("with \"Orders\" as (select 0 id) select id from orders where id = 3", [(3,)]),
        (("with pg_class as (select relname from pg_class where relname = 'orders') "
         "select * from pg_class"), [("orders",)]),
        *(
            ((f"with {name} as (select 'cte' s) select o.symbol, {name}.s from orders o, {name} "
             "where o.id = 1"), [("IBM", "cte")])
            for name in ("s0", "t0", "c0", "_rs0", "_rt0", "_rc0", '"_R_s0"', "_r__s0")
        ),
    ],
)  # fmt: skip
def test_names_in_with_are_visible_as_in_postgresql(
    engine: QueryEngine, sql: str, rows: list[Any]
) -> None:
    assert run(engine, sql)[1] == rows
    (statement,) = parse(sql)
    assert engine.describe(statement, MemorySource(), session()).columns == run(engine, sql)[0]


def test_errors_of_names_in_with_have_the_names_of_the_client(engine: QueryEngine) -> None:
    assert failure(engine, "with a as (select 1), a as (select 2) select 1 from a").sqlstate == (
        "42712"
    )
    error = failure(engine, "with recursive mine as (select * from mine) select * from mine")
    assert "mine" in error.message
    assert failure(engine, "with b as (select * from a), a as (select 1) table b").sqlstate == (
        "42P01"
    )


@pytest.mark.parametrize("table", ["orders", "positions", "(select * from orders)"])
@pytest.mark.parametrize(
    "suffix",
    [
        "x tablesample bernoulli (10)",
        "x tablesample system (10) repeatable (1)",
        "pivot (count(*) for symbol in ('IBM'))",
        "unpivot (value for name in (symbol))",
        "using sample 10",
        "using sample reservoir(10 rows)",
    ],
)
def test_pivots_and_samples_are_refused(engine: QueryEngine, table: str, suffix: str) -> None:
    error = failure(engine, f"select * from {table} {suffix}")
    assert error.sqlstate == "0A000"
    assert error.hint is not None


def test_settings_that_parameters_name_are_described_and_read(engine: QueryEngine) -> None:
    for sql, values in (
        ("select current_setting($1)", ["server_version"]),
        ("select current_setting($1, true)", ["my.none"]),
        ("select set_config($1, $2, false)", ["application_name", "x"]),
    ):
        (statement,) = parse(sql)
        described = engine.describe(statement, MemorySource(), session())
        assert described.columns is not None
        assert [column.oid for column in described.columns] == [25]
        assert run(engine, sql, *values)[0] == described.columns
    assert run(engine, "select current_setting($1)", "server_version")[1] == [("16.0",)]
    assert run(engine, "select current_setting($1)", None)[1] == [(None,)]
    assert run(engine, "select current_setting(null)")[1] == [(None,)]
    assert failure(engine, "select set_config(null, 'x', false)").sqlstate == "22023"


@pytest.mark.parametrize(
    ("sql", "oids"),
    [
        ("select $1", (25,)),
        ("select id from orders where qty > $1 and symbol = $2 and price < $3 and open = $4",
         (20, 25, 701, 16)),
        ("select id from orders where id in ($1, $2) and qty between $3 and $4", (20,) * 4),
        ("select id from orders where symbol = any($1) and id = any($2)", (1009, 1016)),
        ("select $1::int, cast($2 as timestamptz), $3::text[]", (23, 1184, 1009)),
        ("select id from orders limit $1 offset $2", (20, 20)),
        ("select id from orders where symbol like $1", (25,)),
        ("select qty + $1 from orders", (20,)),
        ("select $2::int, $1::date", (1082, 23)),
        ("select $1::regclass", (25,)),
        ("select 1 from orders where $1 = symbol and $1 <> ''", (25,)),
    ],
)  # fmt: skip
def test_types_of_parameters_are_inferred(
    engine: QueryEngine, sql: str, oids: tuple[int, ...]
) -> None:
    (statement,) = parse(sql)
    assert engine.describe(statement, MemorySource(), session()).parameter_oids == oids
    asked = engine.describe(statement, MemorySource(), session(), [oids[0], 0])
    assert asked.parameter_oids == oids


def test_parameters_beside_quotes_are_parameters(engine: QueryEngine) -> None:
    sql = (
        "select $1, '$2', \"$3\", $$ $4 $$, $a$ $5 $a$, e'\\'$6' /* $7 */ "
        "from (select '' as \"$3\") x where $1 <> '' and $8 = '''' -- $9"
    )
    (statement,) = parse(sql)
    assert statement.parameter_count == 8
    values = ["a", *[None] * 6, "'"]
    assert run(engine, sql, *values)[1] == [("a", "$2", "", " $4 ", " $5 ", "'$6")]


def test_parameters_of_all_types(engine: QueryEngine) -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    values = [
        *(True, 5, 2.5, Decimal("1.25"), "it's; --", b"\x00\xff", now, now.date(), None),
        *([1, None], ["a", "b"]),
    ]
    sql = (
        "select $1::bool, $2::int8, $3::float8, $4::numeric, $5::text, $6::bytea, "
        "$7::timestamptz, $8::date, $9::text, $10::int8[], $11::text[]"
    )
    (row,) = run(engine, sql, *values)[1]
    assert list(row) == values
    assert run(engine, "select $1::bigint, $2::date", "7", "2026-01-02")[1] == [
        (7, datetime.date(2026, 1, 2))
    ]


def test_parameters_directly_behind_operators(engine: QueryEngine) -> None:
    """`<$1` is no operator `<@`."""
    sql = "select 2<$1::int, 2^$2::int, 5>$1::int, 1<=$1::int, array[1]<@$3::int[]"
    assert run(engine, sql, 3, 3, [1, 2])[1] == [(True, 8.0, True, True, True)]


NUMERIC = 1700


@pytest.mark.parametrize("text", ["0.12345678912345", "1e-10", "1e30", "-12345.678", "3"])
def test_numeric_parameters_are_not_rounded(engine: QueryEngine, text: str) -> None:
    """They are doubles, as columns are, and not decimals of 9 places."""
    (statement,) = parse("select $1")
    result = engine.execute(
        statement, MemorySource(), session(), (Decimal(text),), parameter_oids=(NUMERIC,)
    )
    (batch,) = result.batches()
    assert batch.column(0).to_pylist() == [float(text)]


def failure(engine: QueryEngine, sql: str, *parameters: object) -> SqlError:
    with pytest.raises(SqlError) as caught:
        run(engine, sql, *parameters)
    return caught.value


@pytest.mark.parametrize(
    ("sql", "sqlstate", "text", "position"),
    [
        ("select * from ordres", "42P01", "Perhaps you meant orders.", 15),
        ("select * from amps.Orderz", "42P01", "amps.orders", 20),
        ('select * from "ORDER"', "42P01", None, 15),
        ("select * from '/etc/passwd'", "42P01", None, None),
        ("select qyt from orders", "42703", "Perhaps you meant the column qty.", 8),
        ("select o.nope from orders o", "42703", None, 10),
        ("select nope.id from orders", "42P01", None, None),
        ("select id from orders, positions where symbol = 'a'", "42702", None, 40),
        ("select foo(1)", "42883", None, None),
        ("select other.foo(1)", "42883", None, None),
        ("select 1::nosuchtype", "42704", None, None),
        ("select 'x'::int", "22P02", None, None),
        ("select 1 / 0", "22012", None, None),
        ("select 1 % 0", "22012", None, None),
        ("select qty / (qty - qty) from orders", "22012", None, None),
        ("select 9223372036854775807 + 1::bigint", "22003", None, None),
        ("select id, count(*) from orders", "42803", None, None),
        ("select (select id from orders)", "21000", None, None),
        ("select '{1'::int[]", "22P02", None, None),
        ("select $1::int", "08P01", None, None),
        ("select 'nope'::regclass", "42P01", None, None),
        ("select current_setting('nope')", "42704", None, None),
        ("show nope", "42704", None, None),
    ],
)
def test_an_error_has_its_code(
    engine: QueryEngine, sql: str, sqlstate: str, text: str | None, position: int | None
) -> None:
    error = failure(engine, sql)
    assert error.sqlstate == sqlstate
    assert "\n" not in error.message
    assert "LINE" not in error.message
    if text is not None:
        assert text in (error.hint or "")
    if position is not None:
        assert error.position == position


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from read_parquet('x')",
        'select * from "/etc/passwd"',
        'select * from "x.csv"',
        "select * from glob('/*')",
        "select * from duckdb_settings()",
        "select * from duckdb_secrets()",
        "select * from query('select 1')",
        "select * from query_table('orders')",
        "select * from t0",
        "select * from s0",
        "select * from main.t0",
        "select * from temp.s0",
        "select * from memory.main.s0",
        "select * from sqlite_master",
        "select * from engine",
        "select * from information_schema_x.tables",
        "select * from range(10)",
        "select * from repeat('a', 10)",
        "select * from test_all_types()",
        "select * from pandas_scan(1, 2, 3)",
        "select * from arrow_scan(1, 2, 3)",
        "select getenv('HOME')",
        "select getvariable('x')",
        "select nextval('x')",
        "select json_serialize_sql('select 1')",
        "select json_execute_serialized_sql('x')",
        "select write_log('x')",
        "select current_query()",
        "select duckdb_settings()",
        "select range(1000000000)",
        "select list_resize([1], 1000000000)",
        "select printf('%1000000000d', 1)",
        "select format('{:1000000000d}', 1)",
        "select repeat('a', 1000000000)",
        "select repeat(repeat('a', 5000), 5000000)",
        "select lpad('a', 1000000000, 'x')",
        "select rpad('a', 1000000000)",
        "select replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
        "select replace(repeat('a', 10000), 'a', repeat('b', 10000))",
        "select regexp_replace(repeat('a', 10000), 'a', repeat('b', 10000), 'g')",
        "select generate_series(1, 100000000000)",
        "select pg_read_file('/etc/passwd')",
        "select pg_ls_dir('/')",
        "select lo_import('/etc/passwd')",
        "select dblink('x')",
        "select * from orders where id = (select id from read_csv('x'))",
        "with t as (select * from read_csv('x')) select * from t",
        "select * from orders, lateral read_csv('x') r",
        "select 1 from orders order by (select count(*) from read_csv('x'))",
        "select columns(*) from read_csv('x')",
        "select * from (from read_csv('x'))",
        "select main.getenv('HOME')",
        "select * from (describe orders)",
        "select * from (describe select 1)",
        "select * from (summarize orders)",
        "select * from (pivot duckdb_tables on x) x",
        "select system.main.getenv('HOME')",
        "select * from main.read_csv('/etc/passwd')",
        "select * from system.main.duckdb_settings()",
        "copy (select * from read_csv('x')) to stdout",
        "explain analyze select * from read_csv('x')",
        "select \"getenv\"('HOME')",
        'select "current_query"()',
        'select "Current_Query"()',
        "select \"current_setting\"('secret_directory')",
        'select "range"(1, 20000000)',
        "select \"printf\"('%1000000000d', 1)",
        "select \"json_serialize_sql\"('select 1')",
        "select \"write_log\"('x')",
        "select \"getvariable\"('x')",
        'select "sleep_ms"(100000)',
        "select sleep_ms(100000)",
        "select pg_sleep(100000)",
        "select length(\"repeat\"('a', 1000000000))",
        "select space(1000000000)",
        "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
        "select editdist3(repeat('a', 200000), repeat('b', 200000))",
        "select \"damerau_levenshtein\"(repeat('a', 200000), repeat('b', 200000))",
        "select 1; select * from read_text('/etc/passwd')",
        "select date_part('epoch from now()), * from query(''select 42'') --', now())",
        'select extract("epoch from now()) ; create table evil as select (1" from now())',
        *(
            template.format(name)
            for name in ("duckdb_databases", "sqlite_master", "duckdb_logs", '"x.csv"')
            for template in (
                "with a as (select * from {0}), {0} as (select 1) select * from a",
                "with {0} as (select * from {0}) select * from {0}",
                "with recursive {0} as (select * from {0}) select * from {0}",
                "with recursive {0} as (select * from {0} union all select 1) select * from {0}",
                "with recursive a as (select * from {0}), {0} as (select 1) select * from a",
                "with a as (with {0} as (select 1) select 1) select * from {0}",
                "select * from (with {0} as (select 1) select 1) a, {0}",
            )
        ),
    ],
)
def test_a_hostile_statement_is_an_error(engine: QueryEngine, sql: str) -> None:
    error = failure(engine, sql)
    assert error.sqlstate not in ("XX000", "42501"), "DuckDB was asked"


def test_functions_of_duckdb_that_are_not_listed_cannot_be_called(engine: QueryEngine) -> None:
    refused = engine.refused_functions("ann", Cancellation())
    assert {"getvariable", "duckdb_settings", "current_connection_id", "finalize"} <= refused
    assert not FORBIDDEN & ALLOWED
    for name in sorted(refused):
        quoted = name.replace('"', '""')
        if name in CONSTANTS or name in LOOKUPS or name in ExpressionRewriter._METHODS:
            continue
        error = failure(engine, f'select "{quoted}"(id) from orders')
        assert error.sqlstate in ("42883", "42601"), name


@pytest.mark.parametrize(
    "name",
    ["pg_settings_x", "pg_shadow", "pg_hba_file_rules", "pg_file_settings", "pg_largeobject"],
)
def test_unknown_relations_of_the_catalogue_are_empty(engine: QueryEngine, name: str) -> None:
    assert run(engine, f"select count(*) from {name}")[1] == [(0,)]
    assert run(engine, f"select * from pg_catalog.{name}")[1] == []


def test_settings_of_duckdb_stay(engine: QueryEngine) -> None:
    assert failure(engine, "select set_config('memory_limit', '1TB', false)").sqlstate == "42704"
    with pytest.raises(SqlError):
        session().set("threads", "100")
    assert failure(engine, "select current_setting('memory_limit')").sqlstate == "42704"


def test_quotes_in_names_and_texts_stay_quotes(engine: QueryEngine) -> None:
    assert run(engine, "select 'a''; select 1; --' as \"x\"\"; --\"") == (
        run(engine, 'select $1::text as "x""; --"', "a'; select 1; --")
    )
    assert failure(engine, 'select * from "orders""; drop"').sqlstate == "42P01"


# ---- EXPLAIN, SHOW, settings


def explained(engine: QueryEngine, sql: str) -> list[str]:
    return [row[0] for row in run(engine, sql)[1]]


def test_explain_tells_what_is_pushed_down(engine: QueryEngine) -> None:
    sql = "explain select symbol from orders where qty > 5 and qty % 2 = 1"
    assert explained(engine, sql) == [
        "Query in DuckDB",
        "  Scan amps.orders, a topic",
        "    Columns: symbol, qty",
        "    Filter: /qty > 5",
        '    Condition in DuckDB: "qty" % 2 = 1',
    ]
    assert explained(engine, "explain select 1") == ["Query in DuckDB", "  No scan of a topic"]
    assert "    Limit: 2" in explained(engine, "explain select id from orders limit 2")


def test_explain_analyze_tells_numbers(engine: QueryEngine) -> None:
    first, second, *_ = explained(engine, "explain analyze select id from orders where qty > 5")
    assert first.startswith("Query in DuckDB (rows=3, ")
    assert second.startswith("  Scan amps.orders, a topic (records=5, rows=3, ")


def test_show_and_set() -> None:
    engine = QueryEngine()
    own = session()
    assert run(engine, "show server_version", sql_session=own)[1] == [("16.0",)]
    own.set("application_name", "psql")
    assert run(engine, "show application_name", sql_session=own)[1] == [("psql",)]
    assert ("TimeZone", "UTC", "Time zone of dates and times.") in run(engine, "show all")[1]
    assert own.reported()["application_name"] == "psql"
    own.set("my.own", "1")
    own.reset()
    assert own.setting("my.own", missing_ok=True) is None
    for name, value, sqlstate in (
        ("nope", "1", "42704"),
        ("server_version", "9", "55P02"),
        ("client_encoding", "latin1", "22023"),
        ("statement_timeout", "soon", "22023"),
    ):
        with pytest.raises(SqlError) as caught:
            own.set(name, value)
        assert caught.value.sqlstate == sqlstate
    engine.close()


def test_lists_of_many_parameters_are_planned_in_linear_time(engine: QueryEngine) -> None:
    markers = ", ".join(f"${number}" for number in range(1, 1001))
    sql = f"select id from orders where id in ({markers}) order by id"
    (statement,) = parse(sql)
    description = engine.describe(statement, MemorySource(), session())
    assert set(description.parameter_oids) == {20}
    assert run(engine, sql, *range(3, 1003))[1] == [(3,), (4,), (5,)]


@pytest.mark.parametrize("sql", ["= any($1)", "= all($1)", "<> all(($1))"])
def test_parameters_of_any_and_all_are_arrays(engine: QueryEngine, sql: str) -> None:
    (statement,) = parse(f"select id from orders where id {sql}")
    assert engine.describe(statement, MemorySource(), session()).parameter_oids == (1016,)
