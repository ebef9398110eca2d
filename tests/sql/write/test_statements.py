"""INSERT, UPDATE and DELETE, by a table of statements with their results."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.sql.support import SqlServer
from tests.sql.write.support import bodies, write_server


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with write_server(tmp_path_factory.mktemp("sql")) as server:
        yield server


@pytest.fixture
def connection(sql: SqlServer) -> Iterator[psycopg.Connection[Any]]:
    with sql.connect() as connection:
        for topic in ("orders", "lines", "given", "nv", "doc", "packed", "bsons", "raw", "tags"):
            connection.execute(f"DELETE FROM {topic}")
        yield connection


class Case(NamedTuple):
    """Statements with their tags, and the bodies that are in a topic then."""

    statements: list[tuple[str, str]]
    topic: str
    bodies: list[Any]


CASES = {
    "values": Case(
        [("INSERT INTO orders (id, symbol, ok, px) VALUES (1, 'A', true, 1.5)", "INSERT 0 1")],
        "orders",
        [{"id": 1, "symbol": "A", "ok": True, "px": 1.5}],
    ),
    "NULL is no field": Case(
        [("INSERT INTO orders (id, a, b) VALUES (1, NULL, DEFAULT), (2, 'x', 1)", "INSERT 0 2")],
        "orders",
        [{"id": 1}, {"id": 2, "a": "x", "b": 1}],
    ),
    "nested": Case(
        [('INSERT INTO orders (id, "n.a", "n.b.c") VALUES (1, 1, 2)', "INSERT 0 1")],
        "orders",
        [{"id": 1, "n": {"a": 1, "b": {"c": 2}}}],
    ),
    "arrays and objects": Case(
        [
            (
                """INSERT INTO orders (id, a, b, c) VALUES
                (1, '[1, "x"]'::jsonb, ARRAY['x', 'y'], '{"k": [{}]}'::jsonb)""",
                "INSERT 0 1",
            )
        ],
        "orders",
        [{"id": 1, "a": [1, "x"], "b": ["x", "y"], "c": {"k": [{}]}}],
    ),
    "a message as it is": Case(
        [("""INSERT INTO orders (_body) VALUES ('{"id": 1, "x": {}}')""", "INSERT 0 1")],
        "orders",
        [{"id": 1, "x": {}}],
    ),
    "INSERT replaces": Case(
        [
            ("INSERT INTO orders (id, a) VALUES (1, 1)", "INSERT 0 1"),
            ("INSERT INTO orders (id, b) VALUES (1, 2)", "INSERT 0 1"),
        ],
        "orders",
        [{"id": 1, "b": 2}],
    ),
    "ON CONFLICT merges": Case(
        [
            ("INSERT INTO orders (id, a, z) VALUES (1, 1, 1)", "INSERT 0 1"),
            (
                (
                    "INSERT INTO orders (id, b, z) VALUES (1, 2, NULL), (2, 3, NULL)"
                    " ON CONFLICT (id) DO UPDATE SET b = EXCLUDED.b, z = excluded.z"
                ),
                "INSERT 0 2",
            ),
        ],
        "orders",
        [{"id": 1, "a": 1, "z": None, "b": 2}, {"id": 2, "b": 3}],
    ),
    "INSERT SELECT": Case(
        [
            (
                "INSERT INTO orders (id, a) SELECT g, g * 2 FROM generate_series(1, 3) t(g)",
                "INSERT 0 3",
            ),
            (
                (
                    "INSERT INTO orders (id, a) WITH x AS (SELECT id FROM orders) SELECT id + 10, 0"
                    " FROM x WHERE id > 1"
                ),
                "INSERT 0 2",
            ),
        ],
        "orders",
        [
            {"id": 1, "a": 2},
            {"id": 12, "a": 0},
            {"id": 13, "a": 0},
            {"id": 2, "a": 4},
            {"id": 3, "a": 6},
        ],
    ),
    "UPDATE": Case(
        [
            ("INSERT INTO orders (id, a, b) VALUES (1, 1, 'x'), (2, 2, 'y')", "INSERT 0 2"),
            ("UPDATE orders o SET a = o.a * 10, b = b || id::text WHERE o.id > 1", "UPDATE 1"),
            ("UPDATE orders SET c = (SELECT max(a) FROM orders)", "UPDATE 2"),
            ("UPDATE orders SET c = 0 WHERE id > 5", "UPDATE 0"),
        ],
        "orders",
        [{"id": 1, "a": 1, "b": "x", "c": 20}, {"id": 2, "a": 20, "b": "y2", "c": 20}],
    ),
    "UPDATE to NULL, to the empty text, and of objects": Case(
        [
            ("""INSERT INTO orders (id, a, b, o) VALUES (1, 1, 'x', '{"k": 1}')""", "INSERT 0 1"),
            ("UPDATE orders SET a = NULL, b = ''", "UPDATE 1"),
            ("""UPDATE orders SET o = '{"l": 2}'::jsonb""", "UPDATE 1"),
        ],
        "orders",
        [{"id": 1, "a": None, "b": "", "o": {"l": 2}}],
    ),
    "DELETE": Case(
        [
            (
                "INSERT INTO orders (id, a) SELECT g, g FROM generate_series(1, 100) t(g)",
                "INSERT 0 100",
            ),
            ("DELETE FROM orders WHERE a % 2 = 0 OR id >= 9", "DELETE 96"),
            ("DELETE FROM orders o WHERE o.id = 1 AND o.a = 1", "DELETE 1"),
            ("DELETE FROM orders WHERE id = 1", "DELETE 0"),
        ],
        "orders",
        [{"id": 3, "a": 3}, {"id": 5, "a": 5}, {"id": 7, "a": 7}],
    ),
    "a key of two fields": Case(
        [
            (
                """INSERT INTO lines ("order", "at.line", v) VALUES (1, 1, 'a'), (1, 2, 'b')""",
                "INSERT 0 2",
            ),
            ("""UPDATE lines SET v = 'c' WHERE "at.line" = 2""", "UPDATE 1"),
            ("""DELETE FROM lines WHERE "at.line" = 1""", "DELETE 1"),
        ],
        "lines",
        [{"order": 1, "at": {"line": 2}, "v": "c"}],
    ),
    "keys that the publisher gives": Case(
        [
            ("INSERT INTO given (_key, a) VALUES ('x,y', 1), ('k', 2), ('l', 3)", "INSERT 0 3"),
            ("UPDATE given SET a = a + 10 WHERE _key <> 'l'", "UPDATE 2"),
            ("DELETE FROM given WHERE a = 11", "DELETE 1"),
        ],
        "given",
        [{"a": 12}, {"a": 3}],
    ),
    "texts take the type of their column": Case(
        [
            ("INSERT INTO orders (id, ok, px, t) VALUES (1, true, 1.5, 'x')", "INSERT 0 1"),
            ("INSERT INTO orders (id, ok, px, t) VALUES ('2', 'no', '2', 5)", "INSERT 0 1"),
        ],
        "orders",
        [{"id": 1, "ok": True, "px": 1.5, "t": "x"}, {"id": 2, "ok": False, "px": 2, "t": 5}],
    ),
}


@pytest.mark.parametrize(("number", "case"), [*enumerate(CASES.values())], ids=CASES)
def test_statements_write(connection: psycopg.Connection[Any], number: int, case: Case) -> None:
    own = f"case{number}"
    for text, tag in case.statements:
        assert connection.execute(text.replace("orders", own)).statusmessage == tag
    topic = own if case.topic == "orders" else case.topic
    assert bodies(connection, topic) == sorted(case.bodies, key=json.dumps)


def test_the_information_schema_tells_what_can_be_written(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("INSERT INTO orders (id, a) VALUES (7, 1)")
    tables = """SELECT table_name, is_insertable_into FROM information_schema.tables
        WHERE table_schema = 'amps' AND table_name IN ('orders', 'work', 'totals') ORDER BY 1"""
    assert connection.execute(tables).fetchall() == [
        ("orders", "YES"),
        ("totals", "NO"),
        ("work", "YES"),
    ]
    columns = """SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'amps' AND table_name IN ('orders', 'work', 'totals')
        AND is_updatable = 'YES'"""
    updatable = connection.execute(columns).fetchall()
    assert ("orders", "a") in updatable
    assert {("orders", "id"), ("orders", "_key"), ("orders", "_body")}.isdisjoint(updatable)
    assert {table for table, _ in updatable} == {"orders"}


def test_metadata_that_are_null_are_not_given(connection: psycopg.Connection[Any]) -> None:
    """Spark writes all columns, also those that the server makes."""
    connection.execute("DELETE FROM orders")
    columns = "id, a, _key, _timestamp, _bookmark, _correlation_id, _body"
    insert = f"INSERT INTO orders ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
    unset = [None] * 4
    with connection.cursor() as cursor:
        cursor.executemany(insert, [(1, 5, *unset, None), (None, None, *unset, '{"id":2}')])
    connection.execute(f"INSERT INTO orders ({columns}) SELECT 3, 6, NULL, NULL, NULL, 'c', NULL")
    assert bodies(connection, "orders") == [{"id": 1, "a": 5}, {"id": 2}, {"id": 3, "a": 6}]
    found = connection.execute("SELECT _correlation_id FROM orders WHERE id = 3").fetchone()
    assert found == ("c",)


REFUSED = [
    ("INSERT INTO orders VALUES (1)", "0A000", "needs the names"),
    ("INSERT INTO orders (id, a) VALUES (1)", "42601", "more target columns"),
    ("INSERT INTO orders (id) VALUES (1, 2)", "42601", "more expressions"),
    ("INSERT INTO orders (id, id) VALUES (1, 2)", "42701", "more than once"),
    ('INSERT INTO orders (id, n, "n.a") VALUES (1, 2, 3)', "42701", "is a field of"),
    ("INSERT INTO orders (a) VALUES (1)", "23502", "null value in column"),
    ("INSERT INTO orders (id, a) VALUES (NULL, 1)", "23502", "null value in column"),
    ("INSERT INTO orders (_body, id) VALUES ('{}', 1)", "428C9", "cannot be written"),
    ("INSERT INTO orders (_key, id) VALUES ('x', 1)", "428C9", "cannot be written"),
    ("INSERT INTO orders (_timestamp, id) VALUES (now(), 1)", "428C9", "cannot be written"),
    ("INSERT INTO orders (_key) VALUES (NULL)", "428C9", "cannot be written"),
    ("INSERT INTO raw (_body, a) VALUES (NULL, 1)", "0A000", "cannot be made of fields"),
    ("INSERT INTO orders (_body) VALUES (NULL)", "23502", "null value in column"),
    ("INSERT INTO orders (_body) VALUES (1)", "42804", "is of type text"),
    ("INSERT INTO orders (id, x) VALUES (1, 'Infinity'::float8)", "22003", "no finite number"),
    ("INSERT INTO orders (id, x) VALUES (1, '\\x00'::bytea)", "42804", "no values of type bytea"),
    ("INSERT INTO orders (id, a) VALUES (1, 2) ON CONFLICT DO NOTHING", "0A000", "ON CONFLICT"),
    (
        (
            "INSERT INTO orders (id, a, b) VALUES (1, 2, 3) ON CONFLICT (id) DO UPDATE"
            " SET a = EXCLUDED.a"
        ),
        "0A000",
        "all columns",
    ),
    (
        "INSERT INTO orders (id, a) VALUES (1, 2) ON CONFLICT (a) DO UPDATE SET a = EXCLUDED.a",
        "42P10",
        "no unique constraint",
    ),
    (
        "INSERT INTO orders (id, a) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET a = 5",
        "0A000",
        "ON CONFLICT",
    ),
    ("INSERT INTO nothing (id) VALUES (1)", "42P01", "does not exist"),
    ("INSERT INTO xml.orders_ (id) VALUES (1)", None, ""),
    ("INSERT INTO nosuch.orders (id) VALUES (1)", "42P01", "does not exist"),
    ("INSERT INTO totals (qty) VALUES (1)", "42809", "cannot write to view"),
    ("INSERT INTO regions (id) VALUES (1)", "0A000", "pattern"),
    ('INSERT INTO json."/AMPS/own" (id) VALUES (1)', "42809", "the server's own"),
    ("INSERT INTO raw (a) VALUES (1)", "0A000", "cannot be made of fields"),
    ("INSERT INTO packed (id, o) VALUES (1, '{}'::jsonb)", "0A000", "no objects"),
    ("INSERT INTO nv (id, a) VALUES (1, chr(1) || 'evil=1')", "22023", "cannot have this value"),
    ("""INSERT INTO nv (id, "a=b") VALUES (1, 2)""", "42703", "cannot be the name"),
    ("""INSERT INTO doc ("row.id", "row.a") VALUES (1, chr(2))""", "22023", "this value"),
    ("""INSERT INTO doc ("row.id", "row.a b") VALUES (1, 'x')""", "22023", "cannot be built"),
    ("INSERT INTO orders (id) SELECT id FROM none", "42P01", "does not exist"),
    ("UPDATE orders SET id = 2", "0A000", "a part of the key"),
    ("UPDATE lines SET at = 2", "0A000", "a part of the key"),
    ("UPDATE orders SET _body = '{}'", "428C9", "cannot be written"),
    ("UPDATE orders SET a = 1, a = 2", "42701", "more than once"),
    ("UPDATE orders SET (a, b) = (1, 2)", "0A000", "one column at a time"),
    ("UPDATE orders SET a = 1 FROM lines", "0A000", "FROM"),
    ("UPDATE orders SET a = 1 WHERE nothing = 1", "42703", "does not exist"),
    ("UPDATE orders SET a = id / 0", "22012", "division by zero"),
    ("UPDATE totals SET qty = 1", "42809", "cannot write to view"),
    ("UPDATE events SET a = 1", "42809", "no table"),
    ("UPDATE nothing SET a = 1", "42P01", "does not exist"),
    ("DELETE FROM totals", "42809", "cannot write to view"),
    ("DELETE FROM work", "42809", "no table"),
    ("DELETE FROM orders USING lines WHERE true", "0A000", "USING"),
    ("DELETE FROM orders LIMIT 1", "0A000", "not supported"),
    ("DELETE FROM pg_class", "42P01", "does not exist"),
    ("DELETE FROM orders; DROP TABLE orders", "0A000", "tables are not defined"),
    ("TRUNCATE orders", "0A000", "not supported here"),
    ("MERGE INTO orders USING lines ON true WHEN MATCHED THEN DELETE", "0A000", "MERGE"),
    ("COPY orders FROM STDIN", "0A000", "COPY FROM needs the names"),
    ("COPY orders (id) FROM '/etc/passwd'", "0A000", "no file of the server"),
    ("COPY orders (id) FROM PROGRAM 'ls'", "0A000", "no file of the server"),
    ("COPY orders (id) FROM STDIN WHERE id > 1", "22023", "not recognized"),
    ("COPY orders (id) FROM STDIN (FORMAT csv) WHERE id > 1", "42601", "WHERE"),
    ("COPY orders (id, id) FROM STDIN", "42701", "more than once"),
    ("COPY orders (id, new) FROM STDIN (FORMAT binary)", "0A000", "do not tell its type"),
    ("COPY orders (_bookmark) FROM STDIN", "428C9", "cannot be written"),
    ("COPY totals (qty) FROM STDIN", "42809", "cannot write to view"),
    ("COPY nothing (id) FROM STDIN", "42P01", "does not exist"),
    ("COPY (SELECT 1) FROM STDIN", "42601", "syntax error"),
    ("EXPLAIN DELETE FROM orders", "0A000", "not supported here"),
    ("WITH x AS (SELECT 1) INSERT INTO orders (id) SELECT * FROM x", "0A000", "writes nothing"),
    ("WITH x AS (DELETE FROM orders) SELECT 1", "0A000", "writes nothing"),
    ("SET amperage.writes = maybe", "22023", "invalid value"),
]


@pytest.mark.parametrize(("text", "sqlstate", "message"), REFUSED, ids=[one[0] for one in REFUSED])
def test_statements_are_refused_and_write_nothing(
    connection: psycopg.Connection[Any], text: str, sqlstate: str | None, message: str
) -> None:
    connection.execute("INSERT INTO orders (id, a) VALUES (7, 1)")
    if sqlstate is None:  # an ad hoc topic, written with its message type, is one
        assert connection.execute(text).statusmessage == "INSERT 0 1"
        return
    with pytest.raises(psycopg.Error, match=message) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == sqlstate
    assert bodies(connection, "orders") == [{"id": 7, "a": 1}]


@pytest.mark.parametrize("topic", ["nv", "packed", "bsons"])
def test_other_message_types(connection: psycopg.Connection[Any], topic: str) -> None:
    connection.execute(f"INSERT INTO {topic} (id, a, b) VALUES (1, 'x', 2.5), (2, 'y', NULL)")
    connection.execute(f"UPDATE {topic} SET a = a || 'z' WHERE a = 'x'")
    connection.execute(f"UPDATE {topic} SET b = NULL, a = 'n' WHERE a = 'y'")
    rows = connection.execute(f"SELECT id::text, a, b::text FROM {topic} ORDER BY 1").fetchall()
    assert rows == [("1", "xz", "2.5"), ("2", "n", None)]
    assert connection.execute(f"DELETE FROM {topic} WHERE a = 'n'").statusmessage == "DELETE 1"


def test_xml_and_fix(connection: psycopg.Connection[Any]) -> None:
    text = """INSERT INTO doc ("row.id", "row.@k", "row.n") VALUES (1, '"', '<&')"""
    connection.execute(text)
    connection.execute("""UPDATE doc SET "row.n" = "row.n" || %s""", ("'\r\n]]>",))
    row = connection.execute("""SELECT "row.id", "row.@k", "row.n" FROM doc""").fetchone()
    assert row == ("1", '"', "<&'\r\n]]>")
    connection.execute("""INSERT INTO tags ("1", "55") VALUES ('k', 'IBM')""")
    connection.execute("""UPDATE tags SET "55" = '=x='""")
    assert connection.execute("SELECT _body FROM tags").fetchone() == ("1=k\x0155==x=\x01",)


def test_binary_messages(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO raw (_body) VALUES (%s)", (b"\0\xff",))
    connection.execute("INSERT INTO raw (_key, _body) VALUES ('k', '\\x0102')")
    rows = connection.execute("SELECT _body FROM raw ORDER BY _key").fetchall()
    assert rows == [(b"\0\xff",), (b"\1\2",)]


def test_topics_of_a_pattern(connection: psycopg.Connection[Any]) -> None:
    connection.execute('INSERT INTO "region/1" (id, a) VALUES (1, 5)')
    connection.execute('INSERT INTO json."region/2" (id, a) VALUES (1, 6)')
    connection.execute("UPDATE regions SET a = a * 2 WHERE _topic = 'region/2'")
    rows = connection.execute("SELECT _topic, a FROM regions ORDER BY 1").fetchall()
    assert rows == [("region/1", 5), ("region/2", 12)]
    assert connection.execute("DELETE FROM regions WHERE a = 5").statusmessage == "DELETE 1"
    with pytest.raises(psycopg.errors.WrongObjectType):
        connection.execute('DELETE FROM "region/2"')


def test_a_field_within_an_array_is_not_set(connection: psycopg.Connection[Any]) -> None:
    body = '{"id": 1, "legs": [{"px": 1}, {"px": 2}]}'
    legs = json.dumps(json.loads(body)["legs"])
    connection.execute("INSERT INTO case34 (id, legs) VALUES (1, %s::jsonb)", (legs,))
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="within an array"):
        connection.execute("""UPDATE case34 SET "legs.px" = '[3]'::jsonb""")
    with pytest.raises(psycopg.errors.DatatypeMismatch, match="consists of other columns"):
        connection.execute("UPDATE case34 SET legs = 5")
    assert bodies(connection, "case34") == [json.loads(body)]


@pytest.mark.parametrize(
    ("number", "text"),
    tuple(
        enumerate(
            [
                "'; DELETE FROM orders; --",
                '","x":"',
                '\\", "id": 9',
                "$1 %s {} \\x41 \\u0041",
                "\U0001f600\u2028\x7f\t\r\n",
                "",
            ],
            20,
        )
    ),
)
@pytest.mark.parametrize("binary", [False, True])
def test_values_are_no_syntax(
    connection: psycopg.Connection[Any], number: int, text: str, binary: bool
) -> None:
    topic = f"case{number}"
    cursor = connection.cursor(binary=binary)
    cursor.execute(f"INSERT INTO {topic} (id, a, _correlation_id) VALUES (1, %s, %s)", (text, "c"))
    assert bodies(connection, topic) == [{"id": 1, "a": text}]
    if text:  # the empty text is NULL in queries
        cursor.execute(f"UPDATE {topic} SET b = %s WHERE a = %s", (text, text))
        assert bodies(connection, topic) == [{"id": 1, "a": text, "b": text}]
    name = text.replace(".", "").replace("\0", "")
    if name and "%" not in name:
        quoted = name.replace('"', '""')
        connection.execute(f'INSERT INTO {topic} (id, "{quoted}") VALUES (1, 2)')
        assert bodies(connection, topic) == [{"id": 1, name: 2}]


def test_messages_reach_subscribers_queues_and_views(sql: SqlServer) -> None:
    with sql.server.log_on("subscriber") as peer, sql.connect() as connection:
        connection.execute("DELETE FROM orders")
        peer.send(
            {
                "c": "subscribe",
                "cid": "1",
                "sub_id": "1",
                "t": "events|work|json_only",
                "a": "processed",
            }
        )
        assert peer.receive()[0]["status"] == "success"
        connection.execute("INSERT INTO events (_body, _correlation_id) VALUES ('{\"a\":1}', 'c')")
        header, body = peer.receive()
        assert (header["t"], body, header["x"]) == ("events", b'{"a":1}', "c")
        connection.execute("INSERT INTO work (job) VALUES ('x')")
        header, body = peer.receive()
        assert (header["t"], body) == ("work", b'{"job":"x"}')
        connection.execute("INSERT INTO json.json_only (a) VALUES (2)")
        assert peer.receive()[1] == b'{"a":2}'
        connection.execute("INSERT INTO orders (id, symbol, qty) VALUES (1, 'A', 2), (2, 'A', 3)")
        assert connection.execute("SELECT symbol, qty::float8 FROM totals").fetchall() == [
            ("A", 5.0)
        ]


def test_a_refusal_in_the_middle_says_how_many_rows_stay(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("DELETE FROM orders")
        with pytest.raises(psycopg.Error, match="not stored") as caught:
            connection.execute(
                "INSERT INTO orders (id, large) SELECT g, CASE WHEN g = 3 THEN %s ELSE 'x' END"
                " FROM generate_series(1, 5) t(g) ORDER BY g",
                ("x" * 6_000_000,),
            )
        assert caught.value.diag.message_detail == "2 rows were written before that, and stay."
        assert [body["id"] for body in bodies(connection, "orders")] == [1, 2]


def test_a_large_value(sql: SqlServer) -> None:
    with sql.connect() as connection:
        text = "é" * 1_000_000
        connection.execute("DELETE FROM case38")
        connection.execute("INSERT INTO case38 (id, a) VALUES (1, 'small')")
        connection.execute("INSERT INTO case38 (id, a) VALUES (1, %s)", (text,))
        connection.execute("UPDATE case38 SET b = length(a)")
        assert bodies(connection, "case38") == [{"id": 1, "a": text, "b": 1_000_000}]


def test_no_change_of_another_client_is_lost(sql: SqlServer) -> None:
    """Clients that count in one record at the same time count all."""
    with sql.connect() as connection:
        connection.execute("DELETE FROM case39")
        connection.execute("INSERT INTO case39 (id, n) VALUES (1, 0)")
        counted: list[int] = []

        def count() -> None:
            with sql.connect() as own:
                for _ in range(10):
                    try:
                        own.execute("UPDATE case39 SET n = n + 1 WHERE id = 1")
                    except psycopg.errors.SerializationFailure:
                        continue
                    counted.append(1)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bodies(connection, "case39") == [{"id": 1, "n": len(counted)}]
        assert len(counted) > 10


def test_a_statement_is_cancelled_in_the_middle(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("DELETE FROM orders")
        connection.execute("SET statement_timeout = 1500")
        with pytest.raises(psycopg.errors.QueryCanceled) as caught:
            connection.execute(
                "INSERT INTO orders (id) SELECT g FROM generate_series(1, 200000) t(g)"
            )
        connection.execute("SET statement_timeout = 0")
        (count,) = connection.execute("SELECT count(*) FROM orders").fetchone() or (0,)
        detail = caught.value.diag.message_detail or "0 rows"
        assert detail.split()[0] == str(count)
        assert count < 200_000


def test_a_statement_is_cancelled_by_its_client(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("DELETE FROM case37")
        threading.Timer(1.0, connection.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(
                "INSERT INTO case37 (id) SELECT g FROM generate_series(1, 200000) t(g)"
            )
        (count,) = connection.execute("SELECT count(*) FROM case37").fetchone() or (0,)
        assert count < 200_000
        connection.execute("INSERT INTO case37 (id) VALUES (-1)")


def test_columns_that_are_widened_while_rows_are_found(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("INSERT INTO case36 (id, a, b) VALUES (1, 1, 1), (2, 2, 2)")
        connection.execute("SELECT a FROM case36")
        sql.publish("case36", {"id": 3, "a": "text", "b": 3})
        changed = connection.execute("UPDATE case36 SET b = b + 1 WHERE a::text <> '1'")
        assert changed.statusmessage == "UPDATE 2"
        sql.publish("case36", {"id": 4, "a": "text", "b": 2.5})
        assert connection.execute("DELETE FROM case36 WHERE b < 2.7").statusmessage == "DELETE 2"
        assert [body["id"] for body in bodies(connection, "case36")] == [2, 3]


def test_a_prepared_insert(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("DELETE FROM case35")
        for number in range(12):
            connection.execute(
                "INSERT INTO case35 (id, a, b) VALUES (%s, %s, %s)",
                (number, "x" * number, None),
                prepare=True,
            )
        assert sorted(body["id"] for body in bodies(connection, "case35")) == list(range(12))
