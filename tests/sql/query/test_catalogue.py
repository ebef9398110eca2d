"""What tools ask of the catalogue: their own queries, recorded in tests/sql/catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from server.sql.query.pg_catalog import FIRST_OID, PgCatalog
from server.sql.query.query_engine import QueryEngine
from server.sql.query.statement_parser import parse
from server.sql.query.tables import Column, SqlType, Table, TableKind
from tests.sql.query.memory_source import CAMEL, ORDERS, POSITIONS, MemorySource, rows_of, run
from tests.sql.query.memory_source import session as new_session

pytestmark = pytest.mark.process


ORDERS_OID = str(PgCatalog([ORDERS, POSITIONS, CAMEL], new_session()).class_oid(None, "orders"))


class Question(NamedTuple):
    tool: str
    name: str
    sql: str
    parameters: list[Any]
    rows: list[list[Any]]


def questions() -> Iterator[Question]:
    for file in sorted((Path(__file__).parents[1] / "catalogue").glob("*.sql")):
        text = file.read_text("utf-8").replace('":orders"', ORDERS_OID)
        for block in text.replace(":orders", ORDERS_OID).split("\n\n")[1:]:
            lines = block.strip().splitlines()
            if not lines:
                continue
            name = lines[0].removeprefix("-- ")
            parameters: list[Any] = []
            rows = []
            sql = []
            for line in lines[1:]:
                if line.startswith("--$ "):
                    parameters = json.loads(line[4:])
                elif line.startswith("--> "):
                    if line != "--> no rows":
                        rows.append(json.loads(line[4:]))
                else:
                    sql.append(line)
            yield Question(file.stem, name, "\n".join(sql), parameters, rows)


@pytest.mark.parametrize(
    "question", list(questions()), ids=lambda item: f"{item.tool}: {item.name}"
)
def test_a_tool_gets_its_answer(engine: QueryEngine, question: Question) -> None:
    (statement,) = parse(question.sql)
    described = engine.describe(statement, MemorySource(), new_session())
    result = engine.execute(statement, MemorySource(), new_session(), question.parameters)
    assert json.loads(json.dumps(rows_of(result), default=str)) == question.rows
    assert described.columns == result.columns
    unknown = "unknown" in question.name or "Keywords" in question.name
    assert bool(result.warnings) is unknown


def test_there_is_a_question_of_each_tool() -> None:
    found = list(questions())
    assert len(found) >= 45
    assert {item.tool for item in found} >= {
        *("psql", "asyncpg", "psycopg", "pgjdbc", "psqlodbc", "adbc", "duckdb")
    }


def test_the_types_that_drivers_read_in_binary_are_told(engine: QueryEngine) -> None:
    columns, _ = run(engine, "select oid, typname, typtype, typlen, typarray from pg_type")
    assert [column.oid for column in columns] == [26, 25, 18, 21, 26]
    columns, _ = run(
        engine, "select indkey, 'orders'::regclass::oid, relkind from pg_index, pg_class"
    )
    assert [column.oid for column in columns] == [22, 26, 18]


def test_oids_are_the_same_after_a_restart_and_distinct() -> None:
    tables = [
        Table("amps", f"topic{number}", TableKind.TOPIC, (Column("a", SqlType.TEXT),), ("a",))
        for number in range(2000)
    ]
    first = PgCatalog(tables, new_session())
    second = PgCatalog(tables[::-1], new_session())
    oids = [first.class_oid("amps", table.name) for table in tables]
    assert oids == [second.class_oid("amps", table.name) for table in tables]
    assert len(set(oids)) == 2000
    assert min(oid for oid in oids if oid is not None) >= FIRST_OID


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select 'orders'::regclass::oid = (select oid from pg_class where relname = 'orders')",
         [(True,)]),
        ("select '\"json\".\"/Odd.Topic\"'::regclass::text", [("/Odd.Topic",)]),
        ("select 1259::regclass, 23::regtype, 'int8[]'::regtype::oid",
         [("pg_class", "integer", 1016)]),
        ("select to_regclass('orders') is not null, to_regclass('nope'), to_regtype('bigint')",
         [(True, None, 20)]),
        ("select format_type(1043, 24), format_type(1016, null), format_type(0, -1)",
         [("character varying(20)", "bigint[]", "-")]),
        (("select pg_table_is_visible(oid) from pg_class where relname in ('orders', '/Odd.Topic') "
         "order by relname"), [(False,), (True,)]),
        ("select obj_description(oid) from pg_class where relname = 'positions'", [("view",)]),
        ("select has_table_privilege('orders', 'SELECT'), has_table_privilege('orders', 'INSERT')",
         [(True, False)]),
        ("select current_schemas(true), current_schema", [(["amps", "pg_catalog"], "amps")]),
        ("select quote_ident('a'), quote_ident('A b'), quote_ident('a\"b')",
         [("a", '"A b"', '"a""b"')]),
        ("select user, current_user, session_user, current_database()",
         [("ann", "ann", "ann", "trading")]),
        ("""select "user", t."user", user from (values ('x')) as t("user")""",
         [("x", "x", "ann")]),
        ("select table_name from information_schema.tables where table_schema = 'amps' order by 1",
         [("orders",), ("positions",)]),
        (("select column_name, data_type, is_nullable from information_schema.columns "
         "where table_name = 'orders' and ordinal_position in (1, 4) order by ordinal_position"),
         [("_key", "text", "NO"), ("qty", "bigint", "YES")]),
        ("select column_name from information_schema.key_column_usage where table_name = 'orders'",
         [("_key",)]),
        ("select count(*) from pg_catalog.pg_trigger", [(0,)]),
        ("select count(*) from pg_no_such_thing where x = 1 and z > 2", [(0,)]),
        ("select name, setting from pg_settings where name = 'server_version'",
         [("server_version", "16.0")]),
    ],
)  # fmt: skip
def test_functions_of_the_catalogue(engine: QueryEngine, sql: str, rows: list[Any]) -> None:
    assert run(engine, sql)[1] == rows


def test_set_config_sets_and_describe_does_not(engine: QueryEngine) -> None:
    session = new_session()
    (statement,) = parse("select set_config('application_name', $1, false)")
    engine.describe(statement, MemorySource(), session)
    assert session.setting("application_name") == ""
    result = engine.execute(statement, MemorySource(), session, ["mine"])
    assert rows_of(result) == [("mine",)]
    assert session.setting("application_name") == "mine"


def test_a_tool_that_asks_for_more_than_there_is_gets_nothing(engine: QueryEngine) -> None:
    (statement,) = parse("select pg_no_such_function(c.oid) as x, c.relfuture from pg_class c")
    result = engine.execute(statement, MemorySource(), new_session())
    assert rows_of(result) == []
    assert [column.name for column in result.columns] == ["x", "relfuture"]
    assert any("relfuture" in warning for warning in result.warnings)
    assert any("pg_no_such_function" in warning for warning in result.warnings)


def test_settings_in_the_catalogue_are_those_of_the_session(engine: QueryEngine) -> None:
    first, second = new_session(), new_session()
    first.set("application_name", "one")
    sql = "select setting from pg_settings where name = 'application_name'"
    assert run(engine, sql, sql_session=first)[1] == [("one",)]
    assert run(engine, sql, sql_session=second)[1] == [("",)]
