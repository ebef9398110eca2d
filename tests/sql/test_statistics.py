"""Statistics as tables, over real connections."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from server.statistics.resources import RESOURCES
from tests.admin.support import ask
from tests.security.users import MODULES, write_users
from tests.sql.support import EVERYTHING, ORDERS, SqlServer, sql_server, user
from tests.support.server import free_port
from tests.support.waiting import comes_true

ADMIN = """
<Admin>
  <InetAddr>127.0.0.1:{port}</InetAddr><FileName>{file}</FileName><Interval>1s</Interval>
  {elements}
</Admin>
"""

USERS = (
    user("ann", EVERYTHING, admin='{ topic = "^/amps", read = true }')
    + user(
        "bob",
        '{ topic = ".*", read = true }',
        admin='{ topic = "^/amps/instance/sow", read = true },'
        ' { topic = "^/amps/instance/clients", read = false }',
    )
    + user("carol", '{ topic = ".*", read = true }')
)


def admin(file: str = "stats.db", elements: str = "") -> str:
    return ADMIN.format(port=free_port(), file=file, elements=elements)


@pytest.fixture(scope="module", params=["stats.db", ":memory:"])
def sql(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlServer]:
    elements = admin(request.param)
    with sql_server(tmp_path_factory.mktemp("sql"), elements=elements) as server:
        server.publish("orders", *ORDERS)
        yield server


def rows(sql: SqlServer, query: str, **terms: Any) -> list[tuple[Any, ...]]:
    with sql.connect(**terms) as connection:
        return connection.execute(query.encode()).fetchall()


def test_each_resource_is_a_table(sql: SqlServer) -> None:
    listed = rows(
        sql,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'amps_stats'",
    )
    names = {name for (name,) in listed}
    assert {
        resource.path.removeprefix("instance/").replace("/", "_") for resource in RESOURCES
    } <= names
    assert {"clients_over_time", "sow_over_time", "host_memory_over_time"} <= names
    assert not {"tuning_over_time", "lifetimes_over_time"} & names
    described = sql.psql(r"\d amps_stats.clients").stdout
    assert "client_name|text|" in described
    assert "bytes_in|bigint|" in described
    assert "_timestamp|timestamp with time zone|" in described
    for name in sorted(names):
        rows(sql, f'SELECT * FROM amps_stats."{name}" LIMIT 5')


def test_the_last_sample(sql: SqlServer) -> None:
    topics = (
        "SELECT _id, topic, message_type, valid_keys FROM amps_stats.sow WHERE topic = 'orders'"
    )
    assert comes_true(lambda: [row[3] for row in rows(sql, topics)] == [50])
    with sql.server.log_on("watched"):
        query = "SELECT client_name FROM amps_stats.clients WHERE client_name = 'watched'"
        assert comes_true(lambda: rows(sql, query) == [("watched",)])
    ((moment, percent),) = rows(sql, "SELECT _timestamp, total_percent FROM amps_stats.cpu")
    assert datetime.now(UTC) - moment < timedelta(minutes=1)
    assert isinstance(percent, float)
    joined = (
        "SELECT s.valid_keys = count(*) FROM orders, amps_stats.sow s WHERE s.topic = 'orders'"
        " GROUP BY s.valid_keys"
    )
    assert rows(sql, joined) == [(True,)]


def test_samples_over_time(sql: SqlServer) -> None:
    count = "SELECT count(DISTINCT _timestamp) FROM amps_stats.sow_over_time WHERE topic = 'orders'"
    assert comes_true(lambda: rows(sql, count)[0][0] >= 3)
    found = rows(
        sql,
        "SELECT _timestamp, _id, valid_keys FROM amps_stats.sow_over_time WHERE topic = 'orders'"
        " ORDER BY 1",
    )
    assert found[-1][2] == 50
    now = datetime.now(UTC)
    assert all(now - timedelta(hours=1) < row[0] <= now for row in found)
    (latest,) = rows(sql, "SELECT DISTINCT _timestamp FROM amps_stats.sow")
    assert now - timedelta(hours=1) < latest[0] <= datetime.now(UTC)
    middle = found[1][0]
    later = rows(
        sql,
        "SELECT _timestamp FROM amps_stats.sow_over_time WHERE topic = 'orders'"
        f" AND _timestamp > '{middle}' AND _timestamp <= '{found[-1][0]}'",
    )
    assert sorted(row[0] for row in later) == [row[0] for row in found[2:]]
    assert rows(sql, "SELECT 1 FROM amps_stats.sow_over_time WHERE _timestamp < '2020-01-01'") == []
    explained = sql.psql(
        "EXPLAIN SELECT 1 FROM amps_stats.sow_over_time WHERE _timestamp > now() - interval '1 h'"
    ).stdout
    assert "Scan amps_stats.sow_over_time, a statistics" in explained
    assert "Range: _timestamp > " in explained
    (once,) = rows(
        sql, "SELECT _timestamp, count(*) FROM amps_stats.api_over_time GROUP BY 1 LIMIT 1"
    )
    assert once[1] == 1


def visible(sql: SqlServer, user: str) -> set[str]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'amps_stats'"
    return {name for (name,) in rows(sql, query, user=user, password=user)}


def test_users_see_what_the_admin_interface_shows_them(tmp_path: Path) -> None:
    write_users(tmp_path, USERS)
    port = free_port()
    elements = ADMIN.format(port=port, file=":memory:", elements="") + MODULES
    with sql_server(tmp_path, elements=elements) as sql:
        assert {"clients", "sow", "host_cpus"} <= visible(sql, "ann")
        assert visible(sql, "bob") == {"sow", "sow_over_time"}
        assert visible(sql, "carol") == set()
        for user in ("bob", "carol"):
            with pytest.raises(psycopg.errors.UndefinedTable):
                rows(sql, "SELECT * FROM amps_stats.clients", user=user, password=user)
        assert ask(port, "/amps/instance/clients.json").status == 401


@pytest.mark.parametrize(
    "elements",
    [
        "<Authentication><Module>users</Module></Authentication>",
        "<Entitlement><Module>users</Module></Entitlement>",
    ],
)
def test_an_admin_interface_with_modules_of_its_own_shows_nothing_here(
    elements: str, tmp_path: Path
) -> None:
    write_users(tmp_path, USERS)
    modules = MODULES.partition("<Authentication>")[0]
    with sql_server(tmp_path, elements=admin(":memory:", elements) + modules) as sql:
        assert visible(sql, "ann") == set()
        with pytest.raises(psycopg.errors.UndefinedTable):
            rows(sql, "SELECT * FROM amps_stats.clients")


def test_without_statistics_there_are_no_tables(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        assert visible(sql, "ann") == set()
