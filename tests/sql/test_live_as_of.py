"""SUBSCRIBE AS OF over sockets: psycopg and Flight SQL against a server with a log."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sql.support import ANN, SqlServer, sql_server, user
from tests.sql.test_live import Reader

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><FileName>%n.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/id</Key><FileName>%n.sow</FileName>
  </Topic>
  <Topic>
    <Name>loose</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <View>
    <Name>totals</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/s AS /s</Field><Field>SUM(/n) AS /n</Field></Projection>
    <Grouping><Field>/s</Field></Grouping>
  </View>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>prices</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>ticks</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

USERS = ANN + user(
    "bob",
    '{ topic = "orders", read = "/s = \'a\'", select = "-/n" }',
    '{ topic = "ticks", read = "/s = \'a\'", select = "-/n" }',
)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), topics=TOPICS) as server:
        change(server, "orders")
        change(server, "prices")
        yield server


def change(sql: SqlServer, topic: str, **logon: Any) -> None:
    """Make records 1 and 2, change 1, delete 2, and make 3."""
    sql.publish(topic, {"id": 1, "n": 10, "s": "a"}, {"id": 2, "n": 20, "s": "b"}, **logon)
    sql.publish(topic, {"id": 1, "n": 11, "s": "a"}, **logon)
    with sql.server.log_on("publisher", **logon) as peer:
        peer.send({"c": "sow_delete", "t": topic, "filter": "/id = 2", "a": "completed"})
        peer.receive()
    sql.publish(topic, {"id": 3, "n": 30, "s": "a"}, **logon)


def entries(sql: SqlServer, topic: str, **terms: Any) -> list[tuple[str, datetime]]:
    """The bookmarks and times of the entries of a topic."""
    with sql.connect(**terms) as connection:
        query = f"SELECT _bookmark, _timestamp FROM history.{topic} ORDER BY _txid"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("topic", ["orders", "prices"])
def test_copy_begins_in_the_past_and_goes_on_live(sql: SqlServer, topic: str) -> None:
    known = entries(sql, topic)
    with sql.connect() as connection:
        query = f"(SELECT id, n FROM {topic}) AS OF BOOKMARK '{known[1][0]}'"
        reader = Reader(connection, query)
        assert sorted(reader.take(2)) == [("1", "1", "10"), ("1", "2", "20")]
        assert reader.take(4) == [
            *(("-1", "1", "10"), ("1", "1", "11")),
            *(("-1", "2", "20"), ("1", "3", "30")),
        ]
        sql.publish(topic, {"id": 3, "n": 31, "s": "a"}, {"id": 3, "n": 30, "s": "a"})
        assert reader.take(4) == [
            *(("-1", "3", "30"), ("1", "3", "31")),
            *(("-1", "3", "31"), ("1", "3", "30")),
        ]
        connection.cancel()
        assert isinstance(reader.end(), psycopg.errors.QueryCanceled)


@pytest.mark.parametrize("topic", ["orders", "prices"])
def test_cursors_have_the_times_of_the_changes(sql: SqlServer, topic: str) -> None:
    known = entries(sql, topic)
    with sql.connect() as connection, connection.transaction():
        connection.execute(
            f"DECLARE c CURSOR FOR SUBSCRIBE (SELECT id * 2 AS d, n FROM {topic} WHERE n %% 2 < %s)"
            " AS OF %s WITH (snapshot = false)",
            (1, known[1][1]),
        )
        rows = connection.execute("FETCH 2 c").fetchall()
        assert rows == [(known[2][1], -1, 2, 10), (known[3][1], -1, 4, 20)]
        connection.execute(f"DECLARE d CURSOR FOR SUBSCRIBE TO {topic} WITH (progress) AS OF now()")
        rows = connection.execute("FETCH ALL d").fetchall()
        assert sorted(row[3] for row in rows if not row[1]) == [1, 3]


def test_topics_without_records_are_replayed(sql: SqlServer) -> None:
    sql.publish("ticks", *({"n": n} for n in range(1500)))
    ((first, moment), *_) = entries(sql, "ticks")
    with sql.connect() as connection:
        for clause in (f"BOOKMARK '{first}'", "BOOKMARK '0'", "'2000-01-01'"):
            begin = 1 if first in clause else 0
            reader = Reader(connection, f"TO ticks AS OF {clause}")
            count = 1500 - begin
            bodies = [json.loads(str(row[1]))["n"] for row in reader.take(count)]
            assert bodies == list(range(begin, 1500))
            connection.cancel()
            reader.end()
    assert moment < datetime.now(UTC)


def test_the_past_survives_a_kill(tmp_path: Path) -> None:
    """A client goes on behind the last bookmark that it has, at the server's next run."""
    query = "SELECT id, n, _bookmark FROM prices"
    state: Counter[Any] = Counter()

    def add(rows: list[tuple[str | None, ...]]) -> None:
        for diff, *row in rows:
            state[tuple(row)] += int(str(diff))

    with sql_server(tmp_path, topics=TOPICS) as sql:
        change(sql, "prices")
        with sql.connect() as connection:
            reader = Reader(connection, f"({query})")
            add(reader.take(2))
            connection.cancel()
            reader.end()
        last = entries(sql, "prices")[-1][0]
        with sql.connect() as connection:  # it returns when they are on stable storage
            connection.execute("INSERT INTO prices (id, n) VALUES (1, 12), (4, 40)")
        sql.server.stop(signal.SIGKILL)
    with sql_server(tmp_path, topics=TOPICS) as sql, sql.connect() as connection:
        sql.publish("prices", {"id": 4, "n": 41})
        clause = f"AS OF BOOKMARK '{last}' WITH (snapshot = false)"
        reader = Reader(connection, f"({query}) {clause}")
        add(reader.take(5))
        connection.cancel()
        reader.end()
        present = connection.execute(query).fetchall()
    assert +state == Counter(tuple(map(str, row)) for row in present)


def test_users_see_what_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, topics=TOPICS, users=USERS) as sql:
        ann = {"user_id": "ann", "pw": "ann"}
        change(sql, "orders", **ann)
        sql.publish("orders", {"id": 3, "n": 30, "s": "b"}, **ann)
        sql.publish("ticks", {"n": 1, "s": "b"}, {"n": 2, "s": "a"}, **ann)
        ((first, _), *_) = entries(sql, "orders", user="ann", password="ann")
        with sql.connect(user="bob", password="bob") as connection:
            reader = Reader(connection, f"(SELECT * FROM orders) AS OF BOOKMARK '{first}'")
            rows = reader.take(5)
            seen = [(row[0], row[1], row[2]) for row in rows]
            old, new = ("1", "1", "a"), ("1", "3", "a")
            assert seen == [old, ("-1", *old[1:]), old, new, ("-1", *new[1:])]
            assert all(json.loads(str(row[-1])).keys() == {"id", "s"} for row in rows)
            connection.cancel()
            reader.end()
            reader = Reader(connection, "TO ticks AS OF BOOKMARK '0'")
            assert [json.loads(str(row[1])) for row in reader.take(1)] == [{"s": "a"}]
            connection.cancel()
            reader.end()
            reader = Reader(connection, "TO prices AS OF BOOKMARK '0'")
            assert isinstance(reader.end(), psycopg.errors.UndefinedTable)


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("TO orders AS OF BOOKMARK '1|2|'", "bookmark not found.*\n.*has entries from 20"),
        ("TO orders AS OF BOOKMARK 'x'", "is not a bookmark"),
        ("TO orders AS OF BOOKMARK '[0:0|1|]'", "no range"),
        ("TO orders AS OF '2999-01-01'", "cannot begin in the future"),
        ("TO orders AS OF 'never'", "is followed by a time"),
        ("TO loose AS OF now()", "not in the transaction log"),
        ("TO totals AS OF now()", "not in the transaction log"),
        ("TO unknown AS OF now()", "not in the transaction log"),
        ("(SELECT n FROM orders AS OF now())", "AS OF within it"),
        ("TO orders AS OF", "syntax error"),
        ("TO orders AS OF now() AS OF now()", "syntax error"),
    ],
)
def test_moments_that_cannot_be_had_are_errors(sql: SqlServer, clause: str, message: str) -> None:
    with sql.connect() as connection:
        reader = Reader(connection, clause)
        error = reader.end()
        assert isinstance(error, psycopg.Error)
        with pytest.raises(psycopg.Error, match=message):
            raise error
        assert not reader.rows
