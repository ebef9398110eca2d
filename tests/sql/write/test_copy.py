"""COPY FROM STDIN: rows in text, csv and binary are published as those of INSERT."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import pq

from tests.sql.support import ANN, SqlServer, user
from tests.sql.write.support import bodies, write_server
from tests.support.waiting import WAIT_SECONDS

USERS = ANN + user(
    "bob",
    '{ topic = "orders", read = true, write = "/symbol = \'IBM\'" }',
    '{ topic = "lines", read = true }',
)

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    directory = tmp_path_factory.mktemp("sql")
    with write_server(directory, users=USERS) as server:
        with connect(server) as connection:  # the columns have types then
            connection.execute(
                "INSERT INTO orders (id, symbol, qty, price, live, tags)"
                " VALUES (0, 'IBM', 1, 1.5, true, '[1]'::jsonb)"
            )
        yield server


def connect(sql: SqlServer, user: str = "ann", **terms: Any) -> psycopg.Connection[Any]:
    return sql.connect(user=user, password=user, **terms)


@pytest.fixture
def ann(sql: SqlServer) -> Iterator[psycopg.Connection[Any]]:
    with connect(sql) as connection:
        connection.execute("DELETE FROM orders")
        yield connection


def copy(connection: psycopg.Connection[Any], statement: str, data: bytes, size: int = 7) -> str:
    """Copy data in pieces; return the tag."""
    with connection.cursor() as cursor:
        with cursor.copy(statement) as target:
            for start in range(0, len(data), size):
                target.write(data[start : start + size])
        assert cursor.statusmessage is not None
        return cursor.statusmessage


def test_rows_of_psycopg(ann: psycopg.Connection[Any]) -> None:
    columns = "id, symbol, qty, price, live"
    rows = [(1, "IBM", 5, 1.5, True), (2, "a\tb\\n\nc", None, 2.0, False)]
    for binary in (False, True):
        ann.execute("DELETE FROM orders")
        ending = "(FORMAT binary)" if binary else ""
        with ann.cursor() as cursor:
            with cursor.copy(f"COPY orders ({columns}) FROM STDIN {ending}") as target:
                if binary:
                    target.set_types(["int8", "text", "int8", "float8", "bool"])
                for row in rows:
                    target.write_row(row)
            assert cursor.rowcount == 2
        found = ann.execute(f"SELECT {columns} FROM orders ORDER BY id").fetchall()
        assert found == rows
    assert bodies(ann, "orders")[1] == {
        "id": 2,
        "symbol": "a\tb\\n\nc",
        "price": 2.0,
        "live": False,
    }


TEXTS = [
    ("", b"1\tIBM\n2\t\\N\n", [(1, "IBM"), (2, None)]),
    ("", b"1\tIBM\r\n2\tx\r\n", [(1, "IBM"), (2, "x")]),
    ("", b"1\tIBM\n\\.\nno row", [(1, "IBM")]),
    ("", b"1\ta\\tb\\\\c\\x41\\101\\303\\244\\q\n", [(1, "a\tb\\cAA\u00e4q")]),
    ("", b"1\ttwo\\\nlines\n", [(1, "two\nlines")]),
    ("", b"1\tno newline", [(1, "no newline")]),
    ("(DELIMITER '|', NULL '')", b"1|\n2|x\\|y\n", [(1, None), (2, "x|y")]),
    ("(HEADER)", b"any\tthing\n1\tx\n", [(1, "x")]),
    ("(FORMAT csv)", b'1,"a,""b""\n\r\nc"\n2,\n3,""\n4,x"y,z"\r\n', None),
    ("(FORMAT csv, HEADER match)", b"id,symbol\n1,x\n", [(1, "x")]),
    ("CSV HEADER", b"a,b\n1,x\n", [(1, "x")]),
    (
        "(FORMAT csv, QUOTE '''', ESCAPE '\\', NULL 'none')",
        b"1,'it\\'s \\\\ a\\b\n'\n2,none\n3,'none'\n",
        [(1, "it's \\ a\\b\n"), (2, None), (3, "none")],
    ),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("options", "data", "rows"), TEXTS, ids=[str(one[1]) for one in TEXTS])
def test_texts_and_csv(
    ann: psycopg.Connection[Any],
    options: str,
    data: bytes,
    rows: list[tuple[int, str | None]] | None,
    size: int,
) -> None:
    copy(ann, f"COPY orders (id, symbol) FROM STDIN {options}", data, size)
    found = ann.execute("SELECT id, symbol FROM orders ORDER BY id").fetchall()
    expected = rows or [(1, 'a,"b"\n\r\nc'), (2, None), (3, None), (4, "xy,z")]
    assert found == expected


WRONG = [
    ("(id, symbol)", "", b"1\tx\n2\n", "22P04", "missing data for column"),
    ("(id, symbol)", "", b"1\tx\ty\n", "22P04", "extra data after last expected column"),
    ("(id, symbol)", "(FORMAT csv)", b'1,x\n2,"y\n', "22P04", "unterminated CSV quoted field"),
    ("(id, symbol)", "(HEADER match)", b"id\tqty\n1\tx\n", "22P04", "names of the columns"),
    ("(id, symbol)", "", b"1\t\xff\n", "22021", "UTF8"),
    ("(id, symbol)", "", b"1\t\\000\n", "22021", "UTF8"),
    ("(id, qty)", "", b"1\t2\n2\tx\n", "22P02", "invalid input syntax for type bigint"),
    ("(id, live)", "", b"1\tmaybe\n", "22P02", "invalid input syntax for type boolean"),
    ("(symbol)", "", b"x\n", "23502", "violates not-null"),
    ("(id)", "(FORMAT binary)", b"1\n" * 50, "22P04", "signature"),
    ("(id)", "(FORMAT binary)", b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2", "22P04", "expected 1"),
    (
        "(id)",
        "(FORMAT binary)",
        b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1",
        "22P04",
        "unexpected end",
    ),
    (
        "(id)",
        "(FORMAT binary)",
        b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1\0\0\0\4\0\0\0\1",
        "22P03",
        "binary data format",
    ),
]


@pytest.mark.parametrize(("columns", "options", "data", "sqlstate", "message"), WRONG)
def test_wrong_data_write_nothing(
    ann: psycopg.Connection[Any],
    columns: str,
    options: str,
    data: bytes,
    sqlstate: str,
    message: str,
) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        copy(ann, f"COPY orders {columns} FROM STDIN {options}", data)
    assert caught.value.sqlstate == sqlstate
    assert bodies(ann, "orders") == []
    assert copy(ann, "COPY orders (id) FROM STDIN", b"1\n") == "COPY 1"


def test_a_failure_of_the_client_writes_nothing(ann: psycopg.Connection[Any]) -> None:
    connection = ann.pgconn
    assert connection.exec_(b"COPY orders (id) FROM STDIN").status == pq.ExecStatus.COPY_IN
    connection.put_copy_data(b"1\n2\n")
    connection.put_copy_end(b"changed my mind")
    result = connection.get_result()
    assert result is not None
    assert b"COPY from stdin failed: changed my mind" in result.error_message
    assert connection.get_result() is None
    assert bodies(ann, "orders") == []


def test_new_fields_are_texts(ann: psycopg.Connection[Any]) -> None:
    assert copy(ann, "COPY events (id, a) FROM STDIN", b"1\t2\n") == "COPY 1"
    body = ann.execute("SELECT _body FROM history.events ORDER BY _txid DESC LIMIT 1").fetchone()
    assert body == ('{"id":"1","a":"2"}',)


def test_whole_messages_and_metadata(ann: psycopg.Connection[Any]) -> None:
    data = b'{"id": 5, "qty": 7}\tc1\n'
    assert copy(ann, "COPY orders (_body, _correlation_id) FROM STDIN", data) == "COPY 1"
    found = ann.execute("SELECT id, qty, _correlation_id FROM orders").fetchall()
    assert found == [(5, 7, "c1")]
    unset = b"8\t\\N\t\\N\t\\N\n"  # as they are not given
    copy(ann, "COPY orders (id, _body, _key, _timestamp) FROM STDIN", unset)
    assert ann.execute("DELETE FROM orders WHERE id = 8").rowcount == 1
    with pytest.raises(psycopg.Error, match='"_key" cannot be written'):
        copy(ann, "COPY orders (id, _key) FROM STDIN", b"8\tx\n")
    assert copy(ann, "COPY orders (id, tags) FROM STDIN", b"6\t[1, 2]\n") == "COPY 1"
    assert bodies(ann, "orders")[1] == {"id": 6, "tags": [1, 2]}


@pytest.mark.parametrize("ends", [False, True])
def test_the_extended_protocol(ann: psycopg.Connection[Any], ends: bool) -> None:
    """The Sync behind Execute comes before the data, and another one behind them."""
    connection = ann.pgconn
    result = connection.exec_params(b"COPY orders (id) FROM STDIN", [])
    assert result.status == pq.ExecStatus.COPY_IN
    connection.put_copy_data(b"1\n2\n")
    connection.put_copy_end(None if ends else b"no more")
    answer = connection.get_result()
    assert answer is not None
    if ends:
        assert answer.command_status == b"COPY 2"
    else:
        assert b"COPY from stdin failed: no more" in answer.error_message
    assert connection.get_result() is None
    assert len(bodies(ann, "orders")) == (2 if ends else 0)


def test_a_text_of_several_statements(ann: psycopg.Connection[Any]) -> None:
    text = "SELECT 1; COPY orders (id) FROM STDIN; SELECT count(*) FROM orders"
    connection = ann.pgconn
    connection.send_query(text.encode())
    first, second = connection.get_result(), connection.get_result()
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_IN)
    connection.put_copy_data(b"1\n2\n3\n")
    connection.put_copy_end()
    copied, counted = connection.get_result(), connection.get_result()
    assert copied is not None
    assert counted is not None
    assert copied.command_status == b"COPY 3"
    assert counted.get_value(0, 0) == b"3"
    assert connection.get_result() is None


def test_entitlement_is_that_of_insert(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    with connect(sql, "bob") as bob:
        statement = "COPY orders (id, symbol) FROM STDIN"
        assert copy(bob, statement, b"1\tIBM\n2\tIBM\n") == "COPY 2"
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            copy(bob, statement, b"3\tIBM\n4\tMSFT\n5\tIBM\n")
        assert caught.value.diag.message_detail == "1 row was written before that, and stay."
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            copy(bob, "COPY lines (order) FROM STDIN", b"1\n")
    assert [row["id"] for row in bodies(ann, "orders")] == [1, 2, 3]


def test_transactions_refuse_it(sql: SqlServer) -> None:
    with connect(sql, autocommit=False) as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY FROM in a transaction"):
            copy(connection, "COPY orders (id) FROM STDIN", b"1\n")
        connection.rollback()
        connection.execute("SET amperage.writes = immediate")
        assert copy(connection, "COPY orders (id) FROM STDIN", b"1\n2\n") == "COPY 2"
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not rolled back"):
            connection.execute("ROLLBACK")
    with (
        connect(sql, options="-c default_transaction_read_only=on") as connection,
        pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
    ):
        copy(connection, "COPY orders (id) FROM STDIN", b"1\n")


def test_a_copy_that_waits_for_data_is_cancelled(ann: psycopg.Connection[Any]) -> None:
    connection = ann.pgconn
    for limit in ("0", "50ms"):
        ann.execute(f"SET statement_timeout = '{limit}'")
        assert connection.exec_(b"COPY orders (id) FROM STDIN").status == pq.ExecStatus.COPY_IN
        connection.put_copy_data(b"1\n")
        connection.flush()
        if limit == "0":
            ann.cancel_safe(timeout=WAIT_SECONDS)
        assert select.select([connection.socket], [], [], WAIT_SECONDS)[0]  # the error
        connection.put_copy_end()
        result = connection.get_result()
        assert result is not None
        assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"57014"
        assert connection.get_result() is None
    assert bodies(ann, "orders") == []


def test_a_connection_that_is_lost_writes_nothing(
    sql: SqlServer, ann: psycopg.Connection[Any]
) -> None:
    other = connect(sql)
    assert other.pgconn.exec_(b"COPY orders (id) FROM STDIN").status == pq.ExecStatus.COPY_IN
    other.pgconn.put_copy_data(b"1\n")
    other.pgconn.flush()
    other.pgconn.finish()
    assert copy(ann, "COPY orders (id) FROM STDIN", b"2\n") == "COPY 1"
    assert bodies(ann, "orders") == [{"id": 2}]


def test_a_row_beyond_the_limit(ann: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too long"):
        copy(ann, "COPY orders (id) FROM STDIN", b"1" * (65 * MEGABYTE), MEGABYTE)
    assert bodies(ann, "orders") == []


def test_many_rows_reach_subscribers_in_order(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    data = b"".join(b"%d\tIBM\n" % number for number in range(3000))
    with connect(sql) as listener:
        listener.execute("LISTEN orders")
        assert copy(ann, "COPY orders (id, symbol) FROM STDIN", data, 64 * 1024) == "COPY 3000"
        heard = listener.notifies(timeout=WAIT_SECONDS, stop_after=3000)
        assert [notice.payload for notice in heard][::1000] == [
            f'{{"id":{number},"symbol":"IBM"}}' for number in (0, 1000, 2000)
        ]


def test_psql_copies_files(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    path = sql.server.log_file.parent / "rows.csv"
    path.write_text('id,symbol,qty\n50,"a,""b""",7\n51,,8\n')
    result = sql.psql(
        f"\\copy orders (id, symbol, qty) FROM '{path}' WITH (FORMAT csv, HEADER match)",
        user="ann",
        password="ann",
    )
    assert (result.stdout, result.stderr) == ("COPY 2\n", "")
    found = ann.execute("SELECT id, symbol, qty FROM orders ORDER BY id").fetchall()
    assert found == [(50, 'a,"b"', 7), (51, None, 8)]


def test_asyncpg_copies_records(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    async def run() -> None:
        connection: Any = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="ann", password="ann", database="any", timeout=30
        )
        tag = await connection.copy_records_to_table(
            "orders", records=[(70, "p", 1.5), (71, None, 2.5)], columns=["id", "symbol", "price"]
        )
        assert tag == "COPY 2"
        await connection.close()

    asyncio.run(run())
    found = ann.execute("SELECT id, symbol, price FROM orders ORDER BY id").fetchall()
    assert found == [(70, "p", 1.5), (71, None, 2.5)]


def test_adbc_ingests_arrow_tables(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    pa = pytest.importorskip("pyarrow")
    (database,) = ann.execute("SELECT current_database()").fetchone() or ("",)
    url = f"postgresql://ann:ann@127.0.0.1:{sql.port}/{database}?sslmode=disable"
    table = pa.table(
        {"id": [60, 61], "symbol": ["x", None], "price": [1.0, 2.0], "live": [True, None]}
    )
    with closing(dbapi.connect(url, autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("orders", table, mode="append")
    found = ann.execute("SELECT id, symbol, price, live FROM orders ORDER BY id").fetchall()
    assert found == [(60, "x", 1.0, True), (61, None, 2.0, None)]
