"""Writes under a user's entitlement: topics, filters of rows, hidden fields, counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.sql.support import ANN, SqlServer, user
from tests.sql.write.support import bodies, write_server

USERS = (
    ANN
    + user(
        "bob",
        '{ topic = "orders", read = "/symbol = \'IBM\'", write = "/symbol = \'IBM\'",'
        ' select = "-/secret" }',
        '{ topic = "lines", read = true }',
        '{ topic = "events", write = true, read = false }',
        '{ topic = "given", write = true, read = false }',
    )
    + user("carol", '{ topic = "orders", read = "/symbol = \'IBM\'", write = true }')
)

ROWS = [
    {"id": 1, "symbol": "IBM", "qty": 1, "secret": 10},
    {"id": 2, "symbol": "MSFT", "qty": 2, "secret": 20},
    {"id": 3, "symbol": "IBM", "qty": 3, "secret": 30},
]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    directory = tmp_path_factory.mktemp("sql")
    with write_server(directory, users=USERS) as server:
        yield server


@pytest.fixture
def ann(sql: SqlServer) -> Iterator[psycopg.Connection[Any]]:
    with sql.connect(user="ann", password="ann") as connection:
        connection.execute("DELETE FROM orders")
        connection.cursor().executemany(
            "INSERT INTO orders (id, symbol, qty, secret) VALUES"
            " (%(id)s, %(symbol)s, %(qty)s, %(secret)s)",
            ROWS,
        )
        yield connection


def connect(sql: SqlServer, user: str) -> psycopg.Connection[Any]:
    return sql.connect(user=user, password=user)


def test_only_visible_rows_are_changed_and_counted(
    sql: SqlServer, ann: psycopg.Connection[Any]
) -> None:
    with connect(sql, "carol") as carol:
        assert carol.execute("UPDATE orders SET qty = qty + 10").statusmessage == "UPDATE 2"
        assert carol.execute("UPDATE orders SET qty = 0 WHERE id = 2").statusmessage == "UPDATE 0"
        assert carol.execute("DELETE FROM orders WHERE id = 2").statusmessage == "DELETE 0"
        assert [row["qty"] for row in bodies(ann, "orders")] == [11, 2, 13]
        assert carol.execute("DELETE FROM orders").statusmessage == "DELETE 2"
        assert bodies(ann, "orders") == [ROWS[1]]


def test_a_filter_of_messages_holds_for_inserts_and_updates(
    sql: SqlServer, ann: psycopg.Connection[Any]
) -> None:
    with connect(sql, "bob") as bob:
        assert bob.execute("UPDATE orders SET qty = 7 WHERE id = 1").statusmessage == "UPDATE 1"
        for text in (
            "INSERT INTO orders (id, symbol) VALUES (4, 'MSFT')",
            "INSERT INTO orders (id, qty) VALUES (4, 1)",
            "UPDATE orders SET symbol = 'MSFT' WHERE id = 1",
            "UPDATE orders SET symbol = NULL WHERE id = 1",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                bob.execute(text)
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            bob.execute("INSERT INTO orders (id, symbol) VALUES (4, 'IBM'), (5, 'X'), (6, 'IBM')")
        assert caught.value.diag.message_detail == "1 row was written before that, and stay."
        assert [row["id"] for row in bodies(ann, "orders")] == [1, 2, 3, 4]
        assert bodies(ann, "orders")[0] == {**ROWS[0], "qty": 7}


def test_hidden_fields_do_not_exist(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    with connect(sql, "bob") as bob:
        for text in (
            "UPDATE orders SET qty = 0 WHERE secret = 10",
            "UPDATE orders SET qty = secret",
            "UPDATE orders SET secret = 0",
            'UPDATE orders SET "secret.x" = 0',
            "DELETE FROM orders WHERE secret = 10",
        ):
            with pytest.raises(psycopg.errors.UndefinedColumn, match="does not exist"):
                bob.execute(text)
        bob.execute("UPDATE orders SET qty = NULL WHERE id = 3")  # by the whole record
        assert bodies(ann, "orders")[2] == {**ROWS[2], "qty": None}


def test_topics_that_may_not_be_written(sql: SqlServer, ann: psycopg.Connection[Any]) -> None:
    ann.execute("""INSERT INTO lines ("order", "at.line", v) VALUES (1, 1, 'x')""")
    with connect(sql, "bob") as bob:
        for text in (
            """INSERT INTO lines ("order", "at.line") VALUES (1, 2)""",
            "INSERT INTO lines (_body) VALUES ('{}')",
            "UPDATE lines SET v = 'y'",
            "UPDATE lines SET v = 'y' WHERE false",
            "DELETE FROM lines",
            "DELETE FROM lines WHERE false",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                bob.execute(text)
        for text in ("INSERT INTO work (a) VALUES (1)", "INSERT INTO json.x (a) VALUES (1)"):
            with pytest.raises(psycopg.errors.UndefinedTable):
                bob.execute(text)
    assert bodies(ann, "lines") == [{"order": 1, "at": {"line": 1}, "v": "x"}]


def test_topics_that_may_be_written_but_not_read(
    sql: SqlServer, ann: psycopg.Connection[Any]
) -> None:
    with connect(sql, "bob") as bob:
        assert bob.execute("INSERT INTO events (a) VALUES (1)").statusmessage == "INSERT 0 1"
        bob.execute("INSERT INTO given (_key, a) VALUES ('k', 1)")
        for text in ("UPDATE given SET a = 2", "DELETE FROM given"):
            with pytest.raises(psycopg.errors.WrongObjectType):
                bob.execute(text)
    assert bodies(ann, "given") == [{"a": 1}]


def test_columns_of_hidden_records_are_not_shown_by_writes(
    sql: SqlServer, ann: psycopg.Connection[Any]
) -> None:
    with connect(sql, "carol") as carol:
        carol.execute("INSERT INTO orders (id, symbol, unseen) VALUES (9, 'MSFT', 1)")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            carol.execute("SELECT unseen FROM orders")
    assert bodies(ann, "orders")[-1] == {"id": 9, "symbol": "MSFT", "unseen": 1}
