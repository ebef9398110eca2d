"""Queues as tables, over real connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.sql.support import ANN, SqlServer, sql_server, user
from tests.support.waiting import comes_true

QUEUES = """
<SOW>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics><LeasePeriod>60s</LeasePeriod>
    <MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

USERS = (
    ANN
    + user("bob", '{ topic = "work", read = "/kind = \'a\'", select = "-/secret" }')
    + user("carol", '{ topic = "jobs", read = true }')
)

JOBS = [
    {"n": number, "kind": "ab"[number % 2], "secret": number * 100, "at": {"x": number / 2}}
    for number in range(10)
]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), topics=QUEUES) as server:
        server.publish("jobs", *JOBS)
        yield server


def test_a_queue_has_the_columns_of_its_messages(sql: SqlServer) -> None:
    assert sql.psql(r"\dt").stdout.split() == ["amps|work|table|tester"]
    described = sql.psql(r"\d work").stdout
    for column, kind in (
        ("n", "bigint"),
        ("kind", "text"),
        ("at.x", "double precision"),
        ("_bookmark", "text"),
        ("_timestamp", "timestamp with time zone"),
        ("_state", "text"),
        ("_lease_until", "timestamp with time zone"),
        ("_consumer", "text"),
        ("_attempts", "bigint"),
        ("_body", "text"),
    ):
        assert f"{column}|{kind}|" in described
    assert '"work_pkey" PRIMARY KEY, btree (_bookmark)' in sql.psql(r"\d work", options="-X").stdout
    explained = sql.psql("EXPLAIN ANALYZE SELECT n FROM work WHERE n < 3").stdout
    assert "Scan amps.work, a queue (records=10, rows=3" in explained
    assert "Filter: /n < 3" in explained


def test_messages_are_rows_until_they_are_acknowledged(sql: SqlServer) -> None:
    before = datetime.now(UTC)
    with sql.connect() as connection, sql.server.log_on("worker") as worker:
        rows = connection.execute(
            "SELECT n, _body, _state, _lease_until, _consumer, _attempts FROM work ORDER BY n"
        ).fetchall()
        assert rows == [(job["n"], json.dumps(job), "waiting", None, None, 0) for job in JOBS]
        worker.send(
            {"c": "subscribe", "cid": "1", "t": "work", "sub_id": "s", "o": "max_backlog=2"}
        )
        leased = "SELECT n, _bookmark, _lease_until, _consumer, _attempts FROM work"
        leased += " WHERE _state = 'leased' ORDER BY n"
        assert comes_true(lambda: len(connection.execute(leased).fetchall()) == 2)
        rows = connection.execute(leased).fetchall()
        assert [(row[0], *row[3:]) for row in rows] == [(0, "worker", 1), (1, "worker", 1)]
        for row in rows:
            left = row[2] - before
            assert timedelta(seconds=50) < left < timedelta(seconds=120)
        worker.send({"c": "sow_delete", "cid": "2", "t": "work", "bm": rows[0][1]})
        gone = "SELECT count(*) FROM work WHERE n = 0"
        assert comes_true(lambda: connection.execute(gone).fetchone() == (0,))
        assert connection.execute("SELECT count(*), sum(n) FROM work").fetchone() == (9, 45)
    with sql.connect() as connection:
        attempts = "SELECT n, _state, _consumer, _attempts FROM work WHERE _attempts > 0 ORDER BY n"
        assert comes_true(
            lambda: [row[1] for row in connection.execute(attempts)] == ["waiting", "waiting"]
        )
        rows = connection.execute(attempts).fetchall()
        assert rows == [(1, "waiting", None, 1), (2, "waiting", None, 1)]
        assert len(connection.execute("SELECT n FROM work LIMIT 4").fetchall()) == 4


def test_columns_are_widened(sql: SqlServer) -> None:
    with sql.connect() as connection:
        assert connection.execute("SELECT pg_typeof(n) FROM work LIMIT 1").fetchone() == ("bigint",)
        sql.publish("jobs", {"n": "text", "kind": "b"})
        rows = connection.execute("SELECT n FROM work WHERE kind = 'b'").fetchall()
        assert ("text",) in rows
        assert ("3",) in rows


def test_users_see_the_messages_that_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, topics=QUEUES, users=USERS) as sql:
        sql.publish("jobs", *JOBS, user_id="ann", pw="ann")
        own = {"user": "bob", "password": "bob"}
        with sql.connect(**own) as connection:
            rows = connection.execute("SELECT * FROM work ORDER BY n")
            assert rows.description is not None
            assert "secret" not in {column.name for column in rows.description}
            names = [column.name for column in rows.description]
            found = [dict(zip(names, row, strict=True)) for row in rows]
            assert [row["n"] for row in found] == [0, 2, 4, 6, 8]
            assert all("secret" not in row["_body"] for row in found)
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute("SELECT secret FROM work")
            (line, *_) = (
                row[0]
                for row in connection.execute("EXPLAIN ANALYZE SELECT n FROM work WHERE n < 3")
                if "Scan" in row[0]
            )
            assert "records=2" in line
        assert "does not exist" in sql.psql("TABLE work", user="carol", password="carol").stderr
