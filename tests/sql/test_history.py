"""History: the entries of the transaction log as tables, over real connections."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sql.support import ANN, SqlServer, sql_server, user
from tests.support.waiting import comes_true

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    {durability}
  </Topic>
  <Topic>
    <Name>fresh</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>^audit/</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>lines</Name><MessageType>nvfix</MessageType></Topic>
</TransactionLog>
"""
DURABILITY = {
    "persistent": "<FileName>%n.sow</FileName>",
    "transient": "<Durability>transient</Durability>",
}
PERSISTENT = TOPICS.format(durability=DURABILITY["persistent"])

USERS = (
    ANN
    + user("bob", '{ topic = "orders", read = "/kind = \'a\'", select = "-/secret" }')
    + user("carol", '{ topic = "orders", read = true, select = "-/secret" }')
)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), topics=PERSISTENT) as server:
        with server.server.log_on("publisher") as peer:
            for number in range(4):
                body = json.dumps({"id": number, "n": number * 10}).encode()
                peer.send({"c": "publish", "t": "orders", "x": f"c{number}"}, body)
            peer.send({"c": "delta_publish", "t": "orders"}, b'{"id":1,"extra":"x"}')
            peer.send({"c": "sow_delete", "t": "orders", "filter": "/id IN (2, 3)", "cid": "d"})
            peer.publish("events", b'{"what":"start","at":{"x":1.5}}')
            peer.publish("audit/a", b'{"who":"ann"}')
            peer.flush()
        yield server


def rows(sql: SqlServer, query: str, *parameters: object, **terms: Any) -> list[tuple[Any, ...]]:
    with sql.connect(**terms) as connection:
        return connection.execute(query, parameters or None).fetchall()


def test_topics_of_the_log_are_tables(sql: SqlServer) -> None:
    listed = sql.psql(r"\dt history.*").stdout.split()
    assert listed == [f"history|{name}|table|tester" for name in HISTORY]
    described = sql.psql(r"\d history.orders").stdout
    for column, kind in (
        ("id", "bigint"),
        ("n", "bigint"),
        ("extra", "text"),
        ("_txid", "bigint"),
        ("_bookmark", "text"),
        ("_timestamp", "timestamp with time zone"),
        ("_client", "text"),
        ("_user", "text"),
        ("_command", "text"),
        ("_key", "text"),
        ("_correlation_id", "text"),
        ("_body", "text"),
    ):
        assert f"{column}|{kind}|" in described
    assert rows(sql, 'SELECT who FROM history."audit/a"') == [("ann",)]
    assert rows(sql, 'SELECT what, "at.x", _key, _command FROM history.events') == [
        ("start", 1.5, None, "publish")
    ]


HISTORY = ["audit/a", "events", "lines", "orders"]


def test_entries_are_rows(sql: SqlServer) -> None:
    found = rows(
        sql,
        "SELECT _command, id, n, extra, _correlation_id, _body FROM history.orders"
        " ORDER BY _txid, _key",
    )
    assert found[:5] == [
        ("publish", 0, 0, None, "c0", '{"id": 0, "n": 0}'),
        ("publish", 1, 10, None, "c1", '{"id": 1, "n": 10}'),
        ("publish", 2, 20, None, "c2", '{"id": 2, "n": 20}'),
        ("publish", 3, 30, None, "c3", '{"id": 3, "n": 30}'),
        ("delta_publish", 1, 10, "x", "c1", found[4][-1]),
    ]
    assert json.loads(found[4][-1]) == {"id": 1, "n": 10, "extra": "x"}
    assert found[5:] == [("sow_delete", None, None, None, None, None)] * 2
    keys = dict(rows(sql, "SELECT id, _key FROM history.orders WHERE _command = 'publish'"))
    deleted = rows(sql, "SELECT _key FROM history.orders WHERE _command = 'sow_delete'")
    assert {key for (key,) in deleted} == {keys[2], keys[3]}
    assert dict(rows(sql, "SELECT id, _key FROM orders")) == {0: keys[0], 1: keys[1]}
    times = rows(sql, "SELECT min(_timestamp), max(_timestamp) FROM history.orders")[0]
    assert datetime.now(UTC) - timedelta(minutes=10) < times[0] <= times[1] <= datetime.now(UTC)
    assert rows(sql, "SELECT count(*) FROM history.orders") == [(7,)]
    assert rows(sql, "SELECT count(*) FROM history.orders WHERE n IS NULL") == [(2,)]
    assert rows(sql, "SELECT n FROM history.orders WHERE n > 10 ORDER BY 1") == [(20,), (30,)]
    assert rows(sql, "SELECT 1 FROM history.orders LIMIT 3") == [(1,)] * 3


def test_a_misspelt_topic_is_not_taken_for_its_history(sql: SqlServer) -> None:
    assert "Perhaps you meant orders." in sql.psql("TABLE orderz").stderr
    assert "Perhaps you meant history.events." in sql.psql("TABLE event").stderr


def test_other_message_types_are_read(sql: SqlServer) -> None:
    with sql.server.log_on("liner", message_type="nvfix") as peer:
        for number in range(3):
            peer.publish("lines", b"a=%d\x01b=x\x01" % number)
        peer.flush()
    query = "SELECT a, b, _command, length(_body) FROM history.lines WHERE b = 'x' ORDER BY _txid"
    expected = [(str(number), "x", "publish", 8) for number in range(3)]
    assert comes_true(lambda: "a|text" in sql.psql(r"\d history.lines").stdout)
    assert rows(sql, query) == expected
    assert rows(sql, "SELECT count(*) FROM history.lines") == [(3,)]


def test_tables_are_read_more_than_once(sql: SqlServer) -> None:
    assert rows(
        sql,
        "WITH h AS (SELECT * FROM history.orders WHERE n IS NOT NULL)"
        " SELECT count(*), count(DISTINCT a._txid) FROM h a JOIN h b ON a._txid >= b._txid",
    ) == [(15, 5)]
    assert rows(
        sql,
        "SELECT o.id, (SELECT count(*) FROM history.orders h WHERE h.id = o.id) FROM orders o"
        " ORDER BY 1",
    ) == [(0, 1), (1, 2)]


def test_bounds_limit_what_is_read(sql: SqlServer) -> None:
    entries = rows(
        sql,
        "SELECT _txid, _bookmark, _timestamp, id FROM history.orders"
        " WHERE _command <> 'sow_delete' ORDER BY _txid",
    )
    txid, bookmark, moment, _ = entries[2]
    last = entries[-1][0] + 1
    for condition, expected, read in (
        (f"_txid > {txid}", [3, 1], 3),
        (f"_txid BETWEEN {txid} AND {txid + 1}", [2, 3], 2),
        (f"{txid} >= _txid", [0, 1, 2], 3),
        (f"_bookmark = '{bookmark}'", [2], 1),
        (f"_bookmark > '{bookmark}'", [3, 1], 3),
        (f"_bookmark <= '{bookmark}'", [0, 1, 2], 3),
        (f"_bookmark >= '{bookmark}' AND n < 30", [2, 1], 4),
        ("_bookmark = '1|1|'", [], 0),
        ("_bookmark = 'none'", [], 0),
        (f"_timestamp = '{moment}'", [2], None),
        ("_timestamp < '2020-01-01'", [], 0),
        ("_timestamp > now() + interval '1 hour'", [], 0),
        ("_timestamp > now() - interval '1 hour'", [0, 1, 2, 3, 1], 6),
        ("_timestamp >= current_date - 1 AND _timestamp < now() + interval '1 day'", None, 6),
    ):
        query = f"SELECT id FROM history.orders WHERE {condition} AND _txid < {last}"
        found = rows(sql, f"{query} ORDER BY _txid")
        if expected is not None:
            assert [row[0] for row in found] == expected, condition
        plan = "\n".join(row[0] for row in rows(sql, f"EXPLAIN ANALYZE {query}"))
        assert "Scan history.orders, a history" in plan
        assert "Range: " in plan
        if read is not None:
            count = int(plan.partition("(records=")[2].partition(",")[0])
            assert count <= read, (condition, plan)
    for condition, message in (
        ("_bookmark > '1|1|'", r"bookmark not found: 1\|1\|"),
        ("_bookmark > 'x'", "bookmark not found: x"),
        (f"_bookmark > '{bookmark}' OR n = 1", "in a condition of its own"),
        ("_bookmark < _body", "in a condition of its own"),
    ):
        with pytest.raises(psycopg.Error, match=message) as refused:
            rows(sql, f"SELECT 1 FROM history.orders WHERE {condition}")
        assert refused.value.sqlstate in ("0A000", "22023"), condition
    assert rows(sql, "SELECT count(*) FROM history.orders WHERE _txid <= %s", txid) == [(3,)]
    assert rows(sql, "SELECT count(*) FROM history.orders WHERE _timestamp <= %s", moment) >= [(3,)]


def test_users_see_what_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, topics=PERSISTENT, users=USERS) as sql:
        orders = [
            {"id": number, "kind": "ab"[number % 2], "secret": number, "n": number}
            for number in range(6)
        ]
        sql.publish("orders", *orders, user_id="ann", pw="ann")
        with sql.server.log_on("deleter", user_id="ann", pw="ann") as peer:
            peer.send({"c": "sow_delete", "cid": "1", "t": "orders", "filter": "/id = 0"})
            peer.flush()
        everything = "SELECT count(*) FROM history.orders"
        assert rows(sql, everything, user="ann", password="ann") == [(7,)]
        assert rows(sql, everything, user="carol", password="carol") == [(7,)]
        bob = {"user": "bob", "password": "bob"}
        assert sql.psql(r"\dt history.*", **bob).stdout.split() == ["history|orders|table|bob"]
        with sql.connect(**bob) as connection:
            cursor = connection.execute("SELECT * FROM history.orders ORDER BY _txid")
            assert cursor.description is not None
            names = [column.name for column in cursor.description]
            assert "secret" not in names
            found = [dict(zip(names, row, strict=True)) for row in cursor]
            assert [row["id"] for row in found] == [0, 2, 4]
            assert {row["_command"] for row in found} == {"publish"}
            assert {row["_user"] for row in found} == {"ann"}
            assert not any("secret" in row["_body"] for row in found)
            (line,) = (
                row[0]
                for row in connection.execute(
                    "EXPLAIN ANALYZE SELECT n FROM history.orders WHERE n < 3"
                )
                if "Scan" in row[0]
            )
            assert "records=2, rows=2" in line
        for query in ("SELECT secret FROM history.orders", "SELECT 1 FROM history.events"):
            assert "does not exist" in sql.psql(query, **bob).stderr


def test_values_of_another_type_widen_the_column(sql: SqlServer) -> None:
    bodies: list[dict[str, Any]] = [{"what": "x", "size": number} for number in range(3_000)]
    sql.publish("events", *bodies)
    query = "SELECT count(size), min(size) FROM history.events WHERE what = 'x'"
    assert comes_true(lambda: "size|bigint" in sql.psql(r"\d history.events").stdout)
    assert rows(sql, query) == [(3_000, 0)]
    sql.publish("events", {"what": "x", "size": "large"})
    assert rows(sql, query) == [(3_001, "0")]
    assert "size|text" in sql.psql(r"\d history.events").stdout


def state_of(sql: SqlServer) -> dict[str, str]:
    """The bodies of the last entries of all keys, as history has them."""
    return dict(
        rows(
            sql,
            "SELECT _key, _body FROM (SELECT DISTINCT ON (_key) _key, _body, _command"
            " FROM history.orders ORDER BY _key, _txid DESC) last"
            " WHERE _command <> 'sow_delete'",
        )
    )


@pytest.mark.parametrize("durability", ["persistent", "transient"])
def test_history_sums_up_to_the_records(durability: str, tmp_path: Path) -> None:
    source = random.Random(durability)
    with sql_server(tmp_path, topics=TOPICS.format(durability=DURABILITY[durability])) as sql:
        with sql.server.log_on("publisher") as peer:
            for step in range(600):
                number = source.randrange(40)
                match source.randrange(10):
                    case 0:
                        peer.send(
                            {"c": "sow_delete", "t": "orders", "filter": f"/id > {number}"}
                            if source.random() < 0.2
                            else {"c": "sow_delete", "t": "orders", "filter": f"/id = {number}"}
                        )
                    case 1 | 2 | 3:
                        body = {"id": number, f"f{source.randrange(3)}": step}
                        peer.send({"c": "delta_publish", "t": "orders"}, json.dumps(body).encode())
                    case _:
                        peer.publish("orders", json.dumps({"id": number, "n": step}).encode())
            peer.flush()
        records = dict(rows(sql, "SELECT _key, _body FROM orders"))
        assert len(records) > 5
        assert state_of(sql) == records


def test_a_query_reads_history_and_records_of_one_moment(tmp_path: Path) -> None:
    with sql_server(tmp_path, topics=PERSISTENT) as sql:
        sql.publish("orders", {"id": 0, "n": 0})
        is_over = threading.Event()

        def publish() -> None:
            with sql.server.log_on("busy") as peer:
                number = 0
                while not is_over.is_set():
                    number += 1
                    peer.publish("orders", b'{"id":%d,"n":%d}' % (number % 7, number))
                    if number % 50 == 0:
                        peer.flush()
                peer.flush()

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            for _ in range(10):
                (difference,) = rows(
                    sql,
                    "SELECT (SELECT max(n) FROM orders), (SELECT max(n) FROM history.orders),"
                    " (SELECT count(*) FROM history.orders), (SELECT sum(n) FROM orders),"
                    " (SELECT sum(n) FROM (SELECT DISTINCT ON (id) n FROM history.orders"
                    " ORDER BY id, _txid DESC) x)",
                )
                assert difference[0] == difference[1] == difference[2] - 1
                assert difference[3] == difference[4]
        finally:
            is_over.set()
            thread.join()


BIG = "x" * 100_000


def journals(sql: SqlServer) -> list[str]:
    return sorted(path.name for path in (sql.server.log_file.parent / "journal").glob("*.journal*"))


def test_compressed_and_removed_journals(tmp_path: Path) -> None:
    actions = """
    <Actions>
      <Action>
        <On><Module>amps-action-on-signal</Module><Options><Signal>{compress}</Signal></Options></On>
        <Do><Module>amps-action-do-compress-journal</Module><Options><Age>1us</Age></Options></Do>
      </Action>
      <Action>
        <On><Module>amps-action-on-signal</Module><Options><Signal>{remove}</Signal></Options></On>
        <Do><Module>amps-action-do-remove-journal</Module><Options><Age>1us</Age></Options></Do>
      </Action>
    </Actions>
    """.format(compress="SIGUSR1", remove="SIGUSR2")
    with sql_server(tmp_path, topics=PERSISTENT, elements=actions) as sql:
        sql.publish("orders", *({"id": number, "n": number, "x": BIG} for number in range(250)))
        total = "SELECT count(*), sum(n), max(length(x)) FROM history.orders"
        assert rows(sql, total) == [(250, 31125, 100_000)]
        assert len(rows(sql, "SELECT x FROM history.orders LIMIT 2")) == 2
        sql.server.process.send_signal(signal.SIGUSR1)
        journal = tmp_path / "journal"
        assert comes_true(lambda: len(list(journal.glob("*.gz"))) >= 2), journals(sql)
        assert rows(sql, total) == [(250, 31125, 100_000)]
        with sql.connect() as connection:
            connection.execute("BEGIN")
            connection.execute("DECLARE c CURSOR FOR SELECT n, x FROM history.orders")
            first = connection.execute("FETCH 3 FROM c").fetchall()
            assert [row[0] for row in first] == [0, 1, 2]
            sql.server.process.send_signal(signal.SIGUSR2)
            assert sql.server.logs("1D-0011")  # a journal is still needed
            assert len(list(journal.glob("*.gz"))) >= 2
            left = connection.execute("FETCH ALL FROM c").fetchall()
            assert [row[0] for row in left] == list(range(3, 250))
            connection.execute("DECLARE d CURSOR FOR SELECT n, x FROM history.orders")
            connection.execute("FETCH 3 FROM d")  # and the client leaves without closing it
        sql.server.process.send_signal(signal.SIGUSR2)
        assert comes_true(lambda: not list(journal.glob("*.gz")))
        found = rows(sql, total)[0]
        assert 0 < found[0] < 250
        assert rows(sql, "SELECT max(n) FROM history.orders") == [(249,)]
