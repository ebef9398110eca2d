"""Functions about the session and its tables, intervals as parameters, and EXPLAIN of errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.sql.support import ORDERS, SqlServer, sql_server, user
from tests.support.waiting import wait_until

USERS = user(
    "ann",
    '{ topic = "orders", read = true, write = "/id > 0" }',
    '{ topic = "prices", read = true }',
    '{ topic = "work", read = true, write = true }',
    '{ topic = "positions", read = true, write = true }',
)
TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/symbol</Key>
    <Durability>transient</Durability>
  </Topic>
  <View>
    <Name>positions</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/symbol AS /symbol</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/symbol</Field></Grouping>
  </View>
  <Queue><Name>work</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    directory = tmp_path_factory.mktemp("functions")
    with sql_server(directory, users=USERS, topics=TOPICS) as server:
        server.publish("orders", *ORDERS[1:], user_id="ann", pw="ann")
        yield server


@pytest.fixture
def connection(sql: SqlServer) -> Iterator[psycopg.Connection[Any]]:
    with sql.connect(user="ann", password="ann") as one:
        yield one


def value(connection: psycopg.Connection[Any], query: str, *parameters: object) -> object:
    """The only value of a query's result."""
    ((found,),) = connection.execute(query, parameters or None).fetchall()
    return found


def has_record(connection: psycopg.Connection[Any], number: int) -> bool:
    return value(connection, "SELECT count(*) FROM orders WHERE id = %s", number) == 1


@pytest.mark.parametrize("prepare", [False, True])
def test_pg_notify_publishes(connection: psycopg.Connection[Any], prepare: bool) -> None:
    number = 100 + prepare
    found = connection.execute(
        "SELECT pg_notify(%s, %s)", ("orders", f'{{"id": {number}}}'), prepare=prepare
    ).fetchall()
    assert found == [("",)]
    wait_until(lambda: has_record(connection, number))


def test_pg_notify_is_called_for_each_row(connection: psycopg.Connection[Any]) -> None:
    connection.execute("LISTEN orders")
    query = (
        "SELECT id, pg_notify('orders', json_object('id', id + 200)::text) FROM orders WHERE id < 4"
    )
    assert len(connection.execute(query).fetchall()) == 3
    received = [note.payload for note in connection.notifies(timeout=60, stop_after=3)]
    assert sorted(received) == ['{"id":201}', '{"id":202}', '{"id":203}']


def test_pg_notify_is_refused_as_notify(connection: psycopg.Connection[Any]) -> None:
    for query, error in (
        ("SELECT pg_notify('prices', '{\"symbol\": \"x\"}')", psycopg.errors.Error),
        ("SELECT pg_notify('', 'x')", psycopg.errors.InvalidParameterValue),
        ("SELECT pg_notify(NULL, 'x')", psycopg.errors.InvalidParameterValue),
        ("SELECT pg_notify('orders')", psycopg.errors.UndefinedFunction),
        ("SELECT amps_notify(1, 'orders', '{}')", psycopg.errors.UndefinedFunction),
        ("SELECT \"amps_notify\"(1, 'orders', '{}')", psycopg.errors.UndefinedFunction),
        ("SELECT pg_catalog.amps_notify(1, 'orders', '{}')", psycopg.errors.UndefinedFunction),
        ("SELECT system.main.amps_notify(1, 'orders', '{}')", psycopg.errors.Error),
        ("SELECT * FROM amps_notify(1, 'orders', '{}')", psycopg.errors.Error),
    ):
        with pytest.raises(error):
            connection.execute(query)
    connection.execute("BEGIN")
    with pytest.raises(psycopg.errors.Error, match="NOTIFY"):
        connection.execute("SELECT pg_notify('orders', '{}')")
    connection.execute("ROLLBACK")


def test_explain_of_pg_notify_publishes_nothing(connection: psycopg.Connection[Any]) -> None:
    connection.execute("EXPLAIN SELECT pg_notify('orders', '{\"id\": 300}')")
    connection.execute("SELECT pg_notify('orders', '{\"id\": 301}')")
    wait_until(lambda: has_record(connection, 301))
    assert not has_record(connection, 300)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'orders', 'INSERT'", True),
        ("'orders', 'update'", True),
        ("'ann', 'amps.orders', 'DELETE'", True),
        ("'orders', 'TRUNCATE'", False),
        ("'orders', 'TRUNCATE, DELETE'", True),
        ("'prices', 'INSERT'", False),
        ("'prices', 'SELECT, INSERT'", True),
        ("'positions', 'INSERT'", False),
        ("'work', 'INSERT'", True),
        ("'work', 'DELETE'", False),
        ("'orders'::regclass, 'INSERT'", True),
        ("'orders', 'SELECT'", True),
        ("'pg_class', 'SELECT'", True),
        ("99999, 'SELECT'", None),
        ("99999, 'INSERT'", None),
        ("(SELECT oid FROM pg_class WHERE relname = 'prices'), 'UPDATE'", False),
    ],
)
def test_privileges_are_the_permission_to_publish(
    connection: psycopg.Connection[Any], arguments: str, expected: bool | None
) -> None:
    assert value(connection, f"SELECT has_table_privilege({arguments})") is expected


@pytest.mark.parametrize("privilege", ["SELECT", "INSERT"])
def test_privileges_need_a_table(connection: psycopg.Connection[Any], privilege: str) -> None:
    for table in ("'nothing'", "'amps.nothing'", "'nothing'::text"):
        with pytest.raises(psycopg.errors.UndefinedTable, match="nothing"):
            connection.execute(f"SELECT has_table_privilege({table}, '{privilege}')")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute(f"SELECT has_table_privilege(%s, '{privilege}')", ("nothing",))


def test_privileges_of_columns_are_those_of_the_table(connection: psycopg.Connection[Any]) -> None:
    assert value(connection, "SELECT has_column_privilege('orders', 'id', 'INSERT')") is True
    assert value(connection, "SELECT has_any_column_privilege('prices', 'UPDATE')") is False
    query = (
        "SELECT string_agg(privilege_type, ' ' ORDER BY privilege_type)"
        " FROM information_schema.table_privileges WHERE table_name = 'orders'"
        " AND table_schema = 'amps'"
    )
    assert value(connection, query) == "DELETE INSERT SELECT UPDATE"


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("price", "double precision"),
        ("id", "bigint"),
        ("symbol", "text"),
        ("live", "boolean"),
        ("_timestamp", "timestamp with time zone"),
        ("1.5", "numeric"),
        ("1::smallint", "smallint"),
        ("1::real", "real"),
        ("'x'::bytea", "bytea"),
        ("now()::timestamp", "timestamp without time zone"),
        ("'{}'::jsonb", "jsonb"),
        ("array_agg(price)", "double precision[]"),
    ],
)
def test_types_have_the_names_of_postgresql(
    connection: psycopg.Connection[Any], expression: str, name: str
) -> None:
    found = connection.execute(f"SELECT pg_typeof({expression}) FROM orders LIMIT 1").fetchone()
    assert found == (name,)


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN SELECT nothing FROM orders",
        "EXPLAIN SELECT id FROM orders WHERE nothing = 1",
        "EXPLAIN SELECT id FROM orders ORDER BY nothing",
    ],
)
def test_explain_of_an_unknown_column(connection: psycopg.Connection[Any], query: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn, match="nothing"):
        connection.execute(query)
    lines = connection.execute("EXPLAIN SELECT id FROM orders WHERE id = %s", (1,)).fetchall()
    assert ("    Columns: id",) in lines


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "interval", [timedelta(hours=1, microseconds=5), timedelta(days=-3, seconds=2), timedelta()]
)
def test_intervals_are_parameters(
    connection: psycopg.Connection[Any], interval: timedelta, binary: bool
) -> None:
    placeholder = "%b" if binary else "%t"
    assert value(connection, f"SELECT {placeholder}::interval", interval) == interval
    query = f"SELECT count(*) > 0 FROM orders WHERE _timestamp > now() - {placeholder}"
    assert value(connection, query, abs(interval) + timedelta(hours=1)) is True
    listed = value(connection, f"SELECT ({placeholder}::interval[])[1]", [interval])
    assert listed == interval


@pytest.mark.parametrize("binary", [False, True])
def test_arrays_of_arrays(connection: psycopg.Connection[Any], binary: bool) -> None:
    for query, result in (
        ("SELECT ARRAY[ARRAY[1]]", [[1]]),
        ("SELECT ARRAY[ARRAY['a', NULL], ARRAY['b c', '{']]", [["a", None], ["b c", "{"]]),
        ("SELECT ARRAY[ARRAY[ARRAY[1.5::float8], ARRAY[2]]]", [[[1.5], [2.0]]]),
        ("SELECT array_agg(x) FROM (SELECT ARRAY[id, qty] x FROM orders WHERE id < 2)", [[1, 10]]),
        ("SELECT ARRAY[ARRAY[]::int[]]", []),
    ):
        assert connection.execute(query, binary=binary).fetchone() == (result,)
    with pytest.raises(psycopg.errors.ArraySubscriptError):
        connection.execute("SELECT ARRAY[ARRAY[1], ARRAY[2, 3]]", binary=binary)
    assert value(connection, "SELECT array_agg(o) FROM (SELECT id FROM orders LIMIT 1) o") == [
        {"id": 1}
    ]


def test_settings_that_rows_name(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET application_name = 'x'")
    rows = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings"
        " WHERE name IN ('DateStyle', 'application_name') ORDER BY 1"
    ).fetchall()
    assert sorted(rows) == [("DateStyle", "ISO, MDY"), ("application_name", "x")]
    query = "SELECT current_setting(n, {}) FROM (VALUES ('JIT'), (NULL), ('none')) v(n)"
    assert connection.execute(query.format("true")).fetchall() == [("off",), (None,), (None,)]
    for unknown in (query.format("false"), "SELECT current_setting('none', false)"):
        with pytest.raises(psycopg.errors.UndefinedObject, match='parameter "none"'):
            connection.execute(unknown)
    assert value(connection, "SELECT current_setting('none', %s)", True) is None


def test_psql_lists_a_setting(sql: SqlServer) -> None:
    result = sql.psql(r"\dconfig date*", user="ann", password="ann")
    assert (result.stdout, result.stderr) == ("DateStyle|ISO, MDY\n", "")
