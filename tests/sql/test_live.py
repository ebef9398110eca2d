"""SUBSCRIBE, LISTEN and NOTIFY over sockets: psql, psycopg and asyncpg against a server process."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.sql.support import ANN, TOPICS, SqlServer, sql_server, user
from tests.support.server import environment
from tests.support.waiting import WAIT_SECONDS, comes_true

USERS = ANN + user(
    "bob",
    '{ topic = "orders", read = "/symbol = \'IBM\'", select = "-/price" }',
    '{ topic = "prices", read = true }',
)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        yield server


@pytest.fixture(autouse=True)
def records(request: pytest.FixtureRequest) -> None:
    """Three orders, and nothing else."""
    if "sql" in request.fixturenames:
        server: SqlServer = request.getfixturevalue("sql")
        with server.server.log_on("publisher") as peer:
            peer.send({"c": "sow_delete", "t": "orders", "filter": "1 = 1", "a": "completed"})
            peer.receive()
        server.publish("orders", *(order(number) for number in (1, 2, 3)))


def order(number: int, symbol: str = "IBM", **fields: Any) -> dict[str, Any]:
    return {"id": number, "symbol": symbol, "qty": number * 10, "price": 1.5} | fields


class Reader:
    """Reads the rows of a COPY on a thread.

    Args:
        connection: the connection; it is the reader's until the end.
        text: the SUBSCRIBE.
    """

    def __init__(self, connection: psycopg.Connection[Any], text: str) -> None:
        self.rows: list[tuple[str | None, ...]] = []
        self.error: Exception | None = None
        self._connection = connection
        self._text = text
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._connection.cursor().copy(f"COPY (SUBSCRIBE {self._text}) TO STDOUT") as copy:
                for row in copy.rows():
                    self.rows.append(row)
        except psycopg.Error as error:
            self.error = error

    def take(self, count: int) -> list[tuple[str | None, ...]]:
        """The next rows, without their times."""
        assert comes_true(lambda: len(self.rows) >= count), (self.rows, self.error)
        taken = [row[1:] for row in self.rows[:count]]
        del self.rows[:count]
        return taken

    def end(self) -> Exception | None:
        """Wait for the end of the COPY; return its error."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.error


def test_psql_shows_rows_as_they_come(sql: SqlServer) -> None:
    command = "COPY (SUBSCRIBE (SELECT id, qty FROM orders WHERE qty > 15)) TO STDOUT (FORMAT csv)"
    words = ["psql", "-AtX", "-h", "127.0.0.1", "-p", str(sql.port), "-U", "tester", "-d", "any"]
    main, terminal = pty.openpty()  # psql writes whole blocks to a pipe
    psql = subprocess.Popen([*words, "-c", command], stdout=terminal, env=environment())
    os.close(terminal)
    try:
        with os.fdopen(main, newline="\r\n") as shown:
            lines = [shown.readline().strip().split(",", 1)[1] for _ in range(2)]
            assert sorted(lines) == ["1,2,20", "1,3,30"]
            sql.publish("orders", order(1, qty=16), order(2, qty=1))
            lines = [shown.readline().strip().split(",", 1)[1] for _ in range(2)]
            assert lines == ["1,1,16", "-1,2,20"]
    finally:
        psql.kill()
        psql.wait()
    assert comes_true(lambda: sql.server.logs("subscription removed"))


def test_updates_and_deletions_retract_rows(sql: SqlServer) -> None:
    with sql.connect() as connection, sql.connect() as other:
        reader = Reader(connection, "(SELECT id, qty AS amount, symbol FROM orders)")
        assert sorted(reader.take(3)) == [
            ("1", str(id_), str(id_ * 10), "IBM") for id_ in (1, 2, 3)
        ]
        sql.publish("orders", order(1, "MSFT"))
        assert reader.take(2) == [("-1", "1", "10", "IBM"), ("1", "1", "10", "MSFT")]
        with sql.server.log_on("publisher") as peer:
            peer.send({"c": "delta_publish", "t": "orders"}, b'{"id": 2, "qty": 5}')
            peer.send({"c": "sow_delete", "t": "orders", "filter": "/id = 3", "a": "completed"})
            peer.receive()
        assert reader.take(3) == [
            ("-1", "2", "20", "IBM"),
            ("1", "2", "5", "IBM"),
            ("-1", "3", "30", "IBM"),
        ]
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (2,)
        connection.cancel()
        error = reader.end()
        assert isinstance(error, psycopg.errors.QueryCanceled)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)


def test_many_subscriptions_leave_threads_to_queries(sql: SqlServer) -> None:
    connections = [sql.connect() for _ in range(10)]
    readers = [Reader(connection, "TO orders") for connection in connections]
    for reader in readers:
        assert len(reader.take(3)) == 3
    with sql.connect() as other:
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (3,)
    for connection in connections:
        connection.cancel()
    for reader, connection in zip(readers, connections, strict=True):
        reader.end()
        connection.close()


def test_without_a_snapshot_there_are_changes_only(sql: SqlServer) -> None:
    with sql.connect() as connection:
        reader = Reader(connection, "(SELECT id FROM orders) WITH (snapshot = false, progress)")
        assert reader.take(1) == [("t", None, None)]
        sql.publish("orders", order(7))
        assert comes_true(lambda: any(row[1] == "f" for row in reader.rows))
        connection.cancel()
        reader.end()
        rows = reader.rows
        assert [row[1:] for row in rows if row[1] == "f"] == [("f", "1", "7")]
        assert [row[0] for row in rows] == sorted(str(row[0]) for row in rows)


@pytest.mark.parametrize("column", ["qty", "qty * 2 AS twice"])
def test_times_never_decrease(sql: SqlServer, column: str) -> None:
    """Of rows of progress, either, while changes come at any time."""
    with sql.connect() as connection:
        text = f"(SELECT id, {column} FROM orders) WITH (snapshot = false, progress)"
        reader = Reader(connection, text)
        reader.take(1)
        for number in range(120):
            sql.publish("orders", order(8) | {"qty": number})
            time.sleep(0.02)
        assert comes_true(lambda: sum(row[1] == "t" for row in reader.rows) > 2)
        connection.cancel()
        reader.end()
        times = [str(row[0]) for row in reader.rows]
        assert times == sorted(times)
        assert len(times) > 100


def test_cursors_are_fetched_from(sql: SqlServer) -> None:
    with sql.connect() as connection:
        with connection.transaction():
            declare = "DECLARE c CURSOR FOR SUBSCRIBE (SELECT id, qty FROM orders WHERE qty > %s)"
            connection.execute(declare, (5,))
            rows = connection.execute("FETCH 2 c").fetchall()
            rows += connection.execute("FETCH ALL c").fetchall()
            assert sorted(row[1:] for row in rows) == [(1, 1, 10), (1, 2, 20), (1, 3, 30)]
            begun = time.monotonic()
            assert connection.execute("FETCH ALL c WITH (timeout = '200ms')").fetchall() == []
            assert 0.2 <= time.monotonic() - begun < WAIT_SECONDS
            assert connection.execute("FETCH 5 c WITH (timeout '0s')").fetchall() == []
            sql.publish("orders", order(1, qty=6), order(2, qty=1))
            found: list[Any] = []
            while len(found) < 3:
                cursor = connection.execute("FETCH 1 c", binary=True)
                assert cursor.statusmessage == "FETCH 1"
                found += cursor.fetchall()
            assert [row[1:] for row in found] == [(-1, 1, 10), (1, 1, 6), (-1, 2, 20)]
            with pytest.raises(psycopg.errors.FeatureNotSupported), connection.transaction():
                connection.execute("MOVE 1 c")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH 1 c")


def test_a_waiting_fetch_is_cancelled(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("SET statement_timeout = 50")
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE TO orders WITH (snapshot = off)")
        timer = threading.Timer(0.3, connection.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            connection.execute("FETCH ALL c")
        timer.join()
        connection.execute("ROLLBACK")


def test_expressions_are_those_of_queries(sql: SqlServer) -> None:
    """DuckDB evaluates them for each change: before and after it."""
    with sql.connect() as connection:
        connection.execute("DELETE FROM orders")
    sql.publish("orders", order(1, qty=10), order(2, qty=25))
    query = (
        "SELECT id * 10 AS tens, CASE WHEN qty > 20 THEN 'large' ELSE lower(symbol) END AS size,"
        " qty / 2.0 AS half FROM orders WHERE qty % 5 = 0 AND id < 4"
    )
    with sql.connect() as connection, sql.connect() as other:
        expected = other.execute(query + " ORDER BY 1").fetchall()
        with connection.transaction():
            connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (progress)")
            cursor = connection.execute("FETCH ALL c")
            assert cursor.description is not None
            assert [one.name for one in cursor.description] == [
                *("_time", "_progressed", "_diff", "tens", "size", "half")
            ]
            rows = [row[2:] for row in cursor.fetchall() if not row[1]]
            assert sorted(rows) == [(1, *row) for row in expected]
            sql.publish("orders", order(2, qty=7), order(3, qty=15), order(1, qty=20))
            found: list[Any] = []
            while len(found) < 4:
                fetched = connection.execute("FETCH ALL c", binary=True).fetchall()
                found += [row[2:] for row in fetched if not row[1]]
            large, small = (20, "large"), (30, "ibm")
            assert [row[:3] for row in found] == [
                *((-1, *large), (1, *small), (-1, 10, "ibm"), (1, 10, "ibm"))
            ]


def test_an_expression_that_fails_for_a_change_ends_the_statement(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("DELETE FROM orders")
        sql.publish("orders", order(1, qty=10))
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT 100 / qty AS q FROM orders)")
        assert [row[1:] for row in connection.execute("FETCH ALL c")] == [(1, 10)]
        sql.publish("orders", order(1, qty=0))
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("FETCH ALL c")
        connection.execute("ROLLBACK")
    assert comes_true(lambda: sql.server.log().count("14-0002") >= 1)


def test_topics_without_records_have_bodies(sql: SqlServer) -> None:
    with sql.connect() as connection:
        reader = Reader(connection, "TO messages")
        assert comes_true(lambda: sql.server.logs("topic 'messages'"))
        sql.publish("messages", {"a": 1}, {"a": "ö"})
        assert reader.take(2) == [("1", '{"a": 1}'), ("1", '{"a": "\\u00f6"}')]
        connection.cancel()
        reader.end()
        nvfix = Reader(connection, "TO nvfix.messages")
        assert comes_true(lambda: sql.server.log().count("topic 'messages'") == 2)
        sql.publish("messages", {"a": 2})
        with sql.server.log_on("fix", mt="nvfix") as peer:
            peer.send({"c": "publish", "t": "messages"}, b"a=3\x01")
            peer.flush()
        assert nvfix.take(1) == [("1", "a=3\x01")]
        connection.cancel()
        nvfix.end()


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("(SELECT count(*) FROM orders)", "0A000", "an aggregate"),
        ("(SELECT o.id FROM orders o JOIN prices p USING (symbol))", "0A000", "a join"),
        ("(SELECT id FROM orders ORDER BY id)", "0A000", "ORDER BY"),
        ("(SELECT id FROM orders LIMIT 1)", "0A000", "LIMIT"),
        ("(SELECT id, sum(qty) OVER () FROM orders)", "0A000", "a window function"),
        ("(SELECT (SELECT 1) FROM orders)", "0A000", "a subquery"),
        ("(SELECT id FROM orders WHERE id IN (SELECT 1))", "0A000", "a subquery"),
        ("(SELECT unnest(ARRAY[id, 2]) FROM orders)", "0A000", "several rows"),
        ("(SELECT generate_series(1, id) FROM orders)", "0A000", "several rows"),
        ("(SELECT id FROM orders WHERE _timestamp < now())", "0A000", "the current time"),
        ("(SELECT id, random() FROM orders)", "0A000", "more than its arguments"),
        ("(SELECT age(_timestamp) FROM orders)", "0A000", "more than its"),
        ("(SELECT pg_notify('orders', symbol) FROM orders)", "0A000", "more than its"),
        ("(SELECT nothing + 1 FROM orders)", "42703", '"nothing" does not exist'),
        ("(SELECT nothing(id) FROM orders)", "42883", "nothing"),
        ("(SELECT o.id + 1 FROM orders p)", "42P01", '"o"'),
        ("(SELECT nothing FROM orders)", "42703", '"nothing" does not exist'),
        ("(SELECT id FROM nothing)", "42P01", '"nothing" does not exist'),
        ("(SELECT relname FROM pg_class)", "42P01", "no topic"),
        ("TO wrong.orders", "42P01", '"wrong.orders" does not exist'),
        ("TO orders WITH (wrong)", "22023", '"wrong" not recognized'),
    ],
)
def test_what_cannot_be_live_is_refused(sql: SqlServer, text: str, code: str, part: str) -> None:
    with sql.connect() as connection:
        with pytest.raises(psycopg.Error, match=r".") as caught:
            connection.execute(f"COPY (SUBSCRIBE {text}) TO STDOUT")
        error = caught.value
        assert error.sqlstate == code
        assert part in str(error.diag.message_primary)
        if code == "0A000":
            assert error.diag.message_hint
            assert error.diag.statement_position
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_value_of_another_type_ends_it(sql: SqlServer) -> None:
    with sql.connect() as connection:
        sql.publish("prices", {"symbol": "A", "bid": 1})
        reader = Reader(connection, "(SELECT symbol, bid FROM prices)")
        assert reader.take(1) == [("1", "A", "1")]
        sql.publish("prices", {"symbol": "A", "bid": "much"})
        error = reader.end()
        assert isinstance(error, psycopg.errors.FeatureNotSupported)
        assert "subscribe again" in str(error)
        again = Reader(connection, "(SELECT symbol, bid FROM prices)")
        assert again.take(1) == [("1", "A", "much")]
        connection.cancel()
        again.end()


def test_users_follow_what_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, users=USERS) as sql:
        ann = {"user_id": "ann", "pw": "ann"}
        sql.publish("orders", order(1), order(2, "MSFT"), **ann)
        with sql.connect(user="bob", password="bob") as connection:
            reader = Reader(connection, "(SELECT id, symbol, _body FROM orders WHERE qty > 0)")
            body = '{"id":%d,"symbol":"IBM","qty":%d}'
            assert reader.take(1) == [("1", "1", "IBM", body % (1, 10))]
            sql.publish("orders", order(1, "MSFT"), order(2), order(3, "MSFT"), **ann)
            assert reader.take(2) == [
                ("-1", "1", "IBM", body % (1, 10)),
                ("1", "2", "IBM", body % (2, 20)),
            ]
            sql.publish("orders", order(2, qty=5), **ann)
            assert reader.take(2) == [
                ("-1", "2", "IBM", body % (2, 20)),
                ("1", "2", "IBM", body % (2, 5)),
            ]
            connection.cancel()
            reader.end()
            for text, code in (
                ("COPY (SUBSCRIBE (SELECT price FROM orders)) TO STDOUT", "42703"),
                ("COPY (SUBSCRIBE TO positions) TO STDOUT", "42P01"),
                ("COPY (SUBSCRIBE TO secret) TO STDOUT", "42P01"),
                ("LISTEN secret", "42P01"),
                ("NOTIFY prices, '{}'", "42501"),
            ):
                with pytest.raises(psycopg.Error, match=r".") as caught:
                    connection.execute(text)
                assert caught.value.sqlstate == code
            connection.execute("LISTEN orders")
            sql.publish("orders", order(4, "MSFT"), order(5), **ann)
            (notified,) = connection.notifies(timeout=WAIT_SECONDS, stop_after=1)
            assert (notified.channel, notified.payload) == ("orders", body % (5, 50))


def test_psycopg_listens(sql: SqlServer) -> None:
    with sql.connect() as connection, sql.connect() as other:
        connection.execute("LISTEN orders")
        connection.execute('LISTEN "some channel"')
        connection.execute('LISTEN "some channel"')
        other.execute("""NOTIFY "some channel", 'it''s'""")
        sql.publish("orders", order(1, symbol="x" * 10_000))
        found = list(connection.notifies(timeout=WAIT_SECONDS, stop_after=2))
        assert [(one.channel, one.pid) for one in found] == [("some channel", 0), ("orders", 0)]
        assert found[0].payload == "it's"
        assert json.loads(found[1].payload)["symbol"] == "x" * 10_000
        with connection.transaction():  # they come after it
            sql.publish("orders", order(2))
            assert list(connection.notifies(timeout=0.1)) == []
        assert len(list(connection.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1
        connection.execute("UNLISTEN orders")
        sql.publish("orders", order(2))
        other.execute("""NOTIFY "some channel" """)
        (last,) = connection.notifies(timeout=WAIT_SECONDS, stop_after=1)
        assert (last.channel, last.payload) == ("some channel", "")
        connection.execute("UNLISTEN *")
        other.execute("""NOTIFY "some channel" """)
        assert list(connection.notifies(timeout=0.1)) == []


def test_notify_publishes(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("""NOTIFY orders, '{"id": 77, "symbol": "NEW"}'""")
        found = connection.execute("SELECT symbol FROM orders WHERE id = 77").fetchone()
        assert found == ("NEW",)
        with pytest.raises(psycopg.Error, match="refused"):
            connection.execute("NOTIFY json.\"/AMPS/ClientStatus\", 'x'")
        with pytest.raises(psycopg.errors.UndefinedTable, match="several message types"):
            connection.execute('LISTEN "/AMPS/ClientStatus"')


def test_asyncpg_listens_and_psql_prints(sql: SqlServer) -> None:
    async def listen() -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="tester", database="any"
        )
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await connection.add_listener("news", lambda *terms: heard.put_nowait(terms[1:]))
        await connection.execute("NOTIFY news, 'one'")
        sql.publish("news", {"a": 2})
        found = [await asyncio.wait_for(heard.get(), WAIT_SECONDS) for _ in range(2)]
        await connection.close()
        return found

    assert asyncio.run(listen()) == [(0, "news", "one"), (0, "news", '{"a": 2}')]
    printed = sql.psql("LISTEN news", "NOTIFY news, 'psql'", "SELECT 1").stdout
    assert 'Asynchronous notification "news" with payload "psql" received' in printed


def test_a_client_that_does_not_read_holds_up_nobody(sql: SqlServer) -> None:
    """What it has not read waits up to a limit; when it is gone, its subscription is."""
    connection = sql.connect()
    connection.pgconn.send_query(b"COPY (SUBSCRIBE TO orders) TO STDOUT")
    assert comes_true(lambda: sql.server.logs("topic 'orders'"))
    begun = time.monotonic()
    for _ in range(40):
        sql.publish("orders", *(order(1, symbol="x" * 50_000) for _ in range(10)))
    assert time.monotonic() - begun < WAIT_SECONDS
    with sql.connect() as other:
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (3,)
    ended = sql.server.log().count("subscription removed")
    connection.close()
    assert comes_true(lambda: sql.server.log().count("subscription removed") > ended)


def test_queues_and_patterns_are_refused(tmp_path: Path) -> None:
    topics = TOPICS.replace(
        "</SOW>",
        "<Topic><Name>many</Name><Pattern>^many/</Pattern><MessageType>json</MessageType>"
        "<Key>/id</Key><Durability>transient</Durability></Topic></SOW>",
    )
    with sql_server(tmp_path, topics=topics) as sql, sql.connect() as connection:
        sql.publish("many/1", {"id": 1})
        for topic in ("many", '"many/1"'):
            with pytest.raises(psycopg.Error, match="many"):
                connection.execute(f"COPY (SUBSCRIBE TO {topic}) TO STDOUT")
        connection.execute('LISTEN "many/1"')
        sql.publish("many/1", {"id": 2})
        assert len(list(connection.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1
