"""Tables as of a moment or a message, over real connections."""

from __future__ import annotations

import json
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
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><FileName>%n.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/id</Key><FileName>%n.sow</FileName>
  </Topic>
  <Topic>
    <Name>loose</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>plain</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>prices</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

State = dict[int, Any]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), topics=TOPICS) as server:
        yield server


@pytest.fixture(scope="module")
def states(sql: SqlServer) -> list[tuple[str, datetime, State]]:
    """The bookmarks and times of changes, with the records after them."""
    records: State = {}
    found: list[tuple[str, datetime, State]] = []
    with sql.connect() as connection, sql.server.log_on("publisher") as peer:
        for step in range(30):
            number = step % 4
            if step % 7 == 6:
                peer.send({"c": "sow_delete", "t": "orders", "filter": f"/id = {number}"})
                records.pop(number, None)
            else:
                body: dict[str, Any] = {"id": number, "n": step, "s": "x" * (step % 3)}
                if step > 20:
                    body["late"] = step
                peer.publish("orders", json.dumps(body).encode())
                records[number] = json.dumps(body)
            peer.flush()
            ((bookmark, moment),) = connection.execute(
                "SELECT _bookmark, _timestamp FROM history.orders ORDER BY _txid DESC LIMIT 1"
            ).fetchall()
            found.append((bookmark, moment, dict(records)))
    assert comes_true(lambda: "late|bigint" in sql.psql(r"\d orders").stdout)
    return found


def bodies(sql: SqlServer, query: str, *parameters: object) -> State:
    with sql.connect() as connection:
        return dict(connection.execute(query, parameters or None).fetchall())


def test_past_states_are_read(sql: SqlServer, states: list[tuple[str, datetime, State]]) -> None:
    for place, (bookmark, moment, expected) in enumerate(states):
        by_name = f"SELECT id, _body FROM orders AS OF BOOKMARK '{bookmark}'"
        assert bodies(sql, by_name) == expected
        assert (
            bodies(sql, "SELECT id, _body FROM orders FOR VERSION AS OF %s", bookmark) == expected
        )
        if place + 1 < len(states) and states[place + 1][1] > moment:
            by_time = f"SELECT id, _body FROM orders AS OF '{moment}' o WHERE o.n >= 0"
            assert bodies(sql, by_time) == expected
            assert bodies(sql, "SELECT id, _body FROM orders AS OF %s AS o", moment) == expected
            late = {id_: json.loads(body).get("late") for id_, body in expected.items()}
            assert bodies(sql, f"SELECT id, late FROM orders AS OF '{moment}'") == late
    assert bodies(sql, "SELECT id, _body FROM orders AS OF now()") == states[-1][2]
    past = bodies(
        sql, "SELECT id, _body FROM orders FOR SYSTEM_TIME AS OF now() - interval '50 minutes'"
    )
    assert past == {}


def test_the_past_is_compared_with_the_present(
    sql: SqlServer, states: list[tuple[str, datetime, State]]
) -> None:
    bookmark, _, past = states[4]
    present = states[-1][2]
    changed = bodies(
        sql,
        "SELECT now.id, now.n - past.n FROM orders now"
        f" JOIN orders AS OF BOOKMARK '{bookmark}' AS past USING (id) ORDER BY id",
    )
    assert changed == {
        id_: json.loads(present[id_])["n"] - json.loads(past[id_])["n"]
        for id_ in sorted(present.keys() & past.keys())
    }
    plan = sql.psql(f"EXPLAIN ANALYZE SELECT n FROM orders AS OF BOOKMARK '{bookmark}'").stdout
    assert f"As of: bookmark {bookmark}" in plan
    assert f"(records={len(past)}, rows={len(past)}, " in plan
    assert bodies(sql, "SELECT 1 AS of, 2 AS two") == {1: 2}
    assert set(bodies(sql, "SELECT of.id, 1 FROM orders AS of")) == present.keys()


def test_other_moments_are_refused(
    sql: SqlServer, states: list[tuple[str, datetime, State]]
) -> None:
    old = datetime.now(UTC) - timedelta(hours=2)
    for query, code, message in (
        ("FROM prices AS OF now()", "0A000", r"prices has no past states(.|\n)*history\.prices"),
        ("FROM plain AS OF now()", "0A000", r"plain has no past states(.|\n)*with History"),
        ("FROM history.orders AS OF now()", "0A000", "condition on _timestamp"),
        ("FROM pg_class FOR SYSTEM_TIME AS OF now()", "0A000", "has no past states"),
        ("FROM orders AS OF BOOKMARK '1|7|'", "22023", r"bookmark not found: 1\|7\|"),
        ("FROM orders AS OF BOOKMARK 'x'", "22023", "is not a bookmark"),
        ("FROM orders AS OF BOOKMARK '[0:0|1|]'", "22023", "no range"),
        (f"FROM loose AS OF BOOKMARK '{states[0][0]}'", "22023", "not in the transaction log"),
        ("FROM orders AS OF 'yesterday morning'", "22023", "followed by a time"),
        (f"FROM orders AS OF '{old}'", "22023", "its Window is shorter"),
        (
            "FROM orders o, LATERAL (SELECT 1 FROM orders FOR SYSTEM_TIME AS OF o.t) x",
            "0A000",
            "without columns",
        ),
        ("FROM orders FOR SYSTEM_TIME BETWEEN now() AND now()", "0A000", "one moment"),
        ("FROM c FOR SYSTEM_TIME AS OF now()", "0A000", "follows the name of a topic"),
    ):
        with sql.connect() as connection, pytest.raises(psycopg.Error, match=message) as error:
            connection.execute(f"WITH c AS (SELECT 1) SELECT 1 {query}".encode())
        assert (error.value.sqlstate or "").startswith(code)
    assert bodies(sql, "SELECT _key, _body FROM loose AS OF now()") == {}


USERS = ANN + user("bob", '{ topic = "orders", read = "/kind = \'a\'", select = "-/secret" }')


def test_users_see_past_states_that_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, topics=TOPICS, users=USERS) as sql:
        ann, bob = ({"user": name, "password": name} for name in ("ann", "bob"))

        def publish(*orders: dict[str, Any]) -> str:
            sql.publish("orders", *orders, user_id="ann", pw="ann")
            last = "SELECT _bookmark FROM history.orders ORDER BY _txid DESC LIMIT 1"
            with sql.connect(**ann) as connection:
                ((bookmark,),) = connection.execute(last).fetchall()
            return str(bookmark)

        before = publish(
            {"id": 1, "kind": "a", "secret": 1, "n": 1}, {"id": 2, "kind": "b", "secret": 2, "n": 2}
        )
        publish({"id": 1, "kind": "b", "n": 3}, {"id": 2, "kind": "a", "n": 4})
        past = f"FROM orders AS OF BOOKMARK '{before}'"
        with sql.connect(**ann) as connection:
            assert connection.execute(f"SELECT count(*) {past}".encode()).fetchall() == [(2,)]
        with sql.connect(**bob) as connection:
            assert connection.execute("SELECT id, n FROM orders").fetchall() == [(2, 4)]
            found = connection.execute(f"SELECT id, n, _body {past}".encode()).fetchall()
            assert found == [(1, 1, '{"id":1,"kind":"a","n":1}')]
            plan = connection.execute(f"EXPLAIN ANALYZE SELECT n {past} WHERE n > 0".encode())
            assert "records=1, rows=1" in "\n".join(row[0] for row in plan)
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute(f"SELECT secret {past}".encode())
