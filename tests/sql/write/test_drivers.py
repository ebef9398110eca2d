"""Writes by psycopg, asyncpg, SQLAlchemy and psql; transaction blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql.support import SqlServer
from tests.sql.write.support import bodies, write_server


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with write_server(tmp_path_factory.mktemp("sql")) as server:
        yield server


@pytest.fixture
def topic(sql: SqlServer, request: pytest.FixtureRequest) -> str:
    """A topic of a test."""
    topic = f"case{len(request.node.name) % 40}"
    with sql.connect() as connection:
        connection.execute(f"DELETE FROM {topic}")
    return topic


IMMEDIATE = {"options": "-c amperage.writes=immediate"}


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_types(sql: SqlServer, topic: str, binary: bool) -> None:
    with sql.connect() as connection:
        cursor = connection.cursor(binary=binary)
        values = (1, "x", 2.5, True, None, Jsonb({"k": [1, None]}), ["p", "q"], 1 << 40)
        cursor.execute(
            f"INSERT INTO {topic} (id, t, f, b, n, j, l, i) VALUES"
            " (%s, %s, %s, %s, %s, %s, %s::text[], %s)",
            values,
        )
        assert bodies(connection, topic) == [
            {
                "id": 1,
                "t": "x",
                "f": 2.5,
                "b": True,
                "j": {"k": [1, None]},
                "l": ["p", "q"],
                "i": 1 << 40,
            }
        ]
        cursor.execute(f"UPDATE {topic} SET f = %s, b = %s WHERE id = %s", (3, False, 1))
        assert cursor.rowcount == 1
        assert bodies(connection, topic)[0]["f"] == 3


def test_psycopg_executemany_and_pipelines(sql: SqlServer, topic: str) -> None:
    rows = [(number, f"v{number}") for number in range(50)]
    with sql.connect() as connection:
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {topic} (id, v) VALUES (%s, %s)", rows)
            assert cursor.rowcount == 50
        with connection.pipeline():
            cursors = [
                connection.execute(f"UPDATE {topic} SET v = %s WHERE id = %s", ("w", number))
                for number in range(10)
            ]
            cursors.append(connection.execute(f"SELECT count(*) FROM {topic} WHERE v = 'w'"))
            assert cursors[10].fetchone() == (10,)
            assert [cursor.rowcount for cursor in cursors[:10]] == [1] * 10
        assert len(bodies(connection, topic)) == 50


def test_asynchronous_psycopg(sql: SqlServer, topic: str) -> None:
    async def run() -> None:
        connection = await psycopg.AsyncConnection.connect(
            host="127.0.0.1", port=sql.port, user="tester", dbname="any", autocommit=True
        )
        async with connection:
            await asyncio.gather(
                *(
                    connection.execute(f"INSERT INTO {topic} (id) VALUES (%s)", (number,))
                    for number in range(20)
                )
            )
            cursor = await connection.execute(f"DELETE FROM {topic} WHERE id >= 5")
            assert cursor.rowcount == 15

    asyncio.run(run())


def test_asyncpg(sql: SqlServer, topic: str) -> None:
    async def run() -> None:
        connection: Any = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="tester", database="any", timeout=30
        )
        insert = f"INSERT INTO {topic} (id, v, n) VALUES ($1::bigint, $2, $3::float8)"
        assert await connection.execute(insert, 1, "x", 1.5) == "INSERT 0 1"
        # the columns are known now, so that parameters have their types
        insert = f"INSERT INTO {topic} (id, v, n) VALUES ($1, $2, $3)"
        await connection.executemany(insert, [(number, "y", None) for number in range(2, 30)])
        assert await connection.fetchval(f"SELECT count(*) FROM {topic}") == 29
        assert await connection.execute(f"UPDATE {topic} SET n = $1 WHERE v = $2", 2.0, "y") == (
            "UPDATE 28"
        )
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="transaction block"):
            async with connection.transaction():
                await connection.execute(f"DELETE FROM {topic}")
        assert await connection.execute(f"DELETE FROM {topic}") == "DELETE 29"
        await connection.close()

    asyncio.run(run())


def test_sqlalchemy(sql: SqlServer, topic: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    table = sqlalchemy.Table(
        topic,
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True, autoincrement=False),
        sqlalchemy.Column("v", sqlalchemy.String),
        sqlalchemy.Column("n", sqlalchemy.Float),
    )
    url = f"postgresql+psycopg://tester@127.0.0.1:{sql.port}/any"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"id": n, "v": "x", "n": n / 2} for n in range(5)])
        connection.execute(table.insert().values(id=9, v="one"))
        changed = connection.execute(
            table.update().where(table.c.id > 2).values(n=table.c.id * 10, v="y")
        )
        assert changed.rowcount == 3
        assert connection.execute(table.delete().where(table.c.v == "x")).rowcount == 3
        rows = connection.execute(table.select().order_by(table.c.id)).fetchall()
        assert rows == [(3, "y", 30.0), (4, "y", 40.0), (9, "y", 90.0)]
    engine.dispose()
    engine = sqlalchemy.create_engine(url, connect_args=IMMEDIATE)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=10, v="in a block"))
    engine.dispose()
    with sql.connect() as own:
        assert len(bodies(own, topic)) == 4


def test_psql(sql: SqlServer, topic: str) -> None:
    result = sql.psql(
        f"INSERT INTO {topic} (id, v) VALUES (1, 'a'), (2, 'b')",
        f"UPDATE {topic} SET v = 'c' WHERE id = 2; DELETE FROM {topic} WHERE id = 1",
        f"SELECT v FROM {topic}",
    )
    assert result.stdout.split("\n") == ["INSERT 0 2", "UPDATE 1", "DELETE 1", "c", ""]
    script = sql.psql("BEGIN", f"DELETE FROM {topic}", "COMMIT")
    assert "in a transaction block is not supported" in script.stderr
    assert "HINT:  Write in autocommit mode" in script.stderr


def test_blocks_refuse_writes(sql: SqlServer, topic: str) -> None:
    with sql.connect(autocommit=False) as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="transaction block"):
            connection.execute(f"INSERT INTO {topic} (id) VALUES (1)")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.commit()
        assert bodies(connection, topic) == []


def test_blocks_with_immediate_writes(sql: SqlServer, topic: str) -> None:
    with sql.connect(autocommit=False, **IMMEDIATE) as connection:
        connection.execute(f"INSERT INTO {topic} (id) VALUES (1)")
        connection.commit()
        connection.execute(f"INSERT INTO {topic} (id) VALUES (2), (3)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not rolled back") as caught:
            connection.rollback()
        assert caught.value.diag.message_detail == (
            "2 rows were written, by amperage.writes = immediate."
        )
        assert connection.info.transaction_status.name == "IDLE"
        assert len(bodies(connection, topic)) == 3
        connection.rollback()  # nothing was written in this block
        connection.execute(f"UPDATE {topic} SET a = 1 WHERE id = 1")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not rolled back"):
            connection.commit()  # which is a rollback
        connection.execute("SAVEPOINT s")
        connection.execute(f"DELETE FROM {topic}")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not rolled back"):
            connection.execute("ROLLBACK TO s")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.rollback()
        assert bodies(connection, topic) == []


@pytest.mark.parametrize(
    "before",
    [
        ["SET default_transaction_read_only = on"],
        ["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"],
        ["SET amperage.writes = immediate", "BEGIN READ ONLY"],
        ["SET amperage.writes = immediate", "BEGIN", "SET TRANSACTION READ ONLY"],
    ],
)
def test_read_only_transactions(sql: SqlServer, topic: str, before: list[str]) -> None:
    with sql.connect() as connection:
        for statement in before:
            connection.execute(statement)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute(f"INSERT INTO {topic} (id) VALUES (1)")
        connection.execute("ROLLBACK")
        connection.execute("DISCARD ALL")
        assert connection.execute(f"DELETE FROM {topic}").statusmessage == "DELETE 0"
