"""RETURNING: the rows that statements have written, through drivers, and within entitlement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sql.support import ANN, SqlServer, user
from tests.sql.write.support import bodies, write_server

USERS = ANN + user(
    "bob",
    '{ topic = "orders", read = "/symbol = \'IBM\'", write = true, select = "-/secret" }',
    '{ topic = "given", write = true, read = false }',
)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with write_server(tmp_path_factory.mktemp("sql")) as server:
        yield server


@pytest.fixture
def connection(sql: SqlServer) -> Iterator[psycopg.Connection[Any]]:
    with sql.connect() as connection:
        for topic in ("orders", "lines", "given", "nv", "doc", "packed", "regions"):
            connection.execute(f"DELETE FROM {topic}")
        yield connection


class Case(NamedTuple):
    """Statements, of which the last one returns rows, and its tag."""

    statements: list[str]
    rows: list[tuple[Any, ...]]
    tag: str


CASES = {
    "INSERT": Case(
        ["INSERT INTO orders (id, sym) VALUES (1, 'A'), (2, NULL) RETURNING id, sym, id * 2 AS d"],
        [(1, "A", 2), (2, None, 4)],
        "INSERT 0 2",
    ),
    "INSERT with new columns of several types": Case(
        ["INSERT INTO case0 (id, i, f, b, t) VALUES (1, 7, 1.5, true, 'x') RETURNING i, f, b, t"],
        [(7, 1.5, True, "x")],
        "INSERT 0 1",
    ),
    "a key that the publisher gives": Case(
        ["INSERT INTO given (_key, a) VALUES ('k1', 5) RETURNING _key, a"],
        [("k1", 5)],
        "INSERT 0 1",
    ),
    "one row twice": Case(
        ["INSERT INTO orders (id, n) VALUES (1, 1), (1, 2) RETURNING id, n"],
        [(1, 1), (1, 2)],
        "INSERT 0 2",
    ),
    "a value that widens its column": Case(
        [
            "INSERT INTO case1 (id, q) VALUES (1, 3)",
            "INSERT INTO case1 (id, q) VALUES (2, 2.5) RETURNING q",
        ],
        [(2.5,)],
        "INSERT 0 1",
    ),
    "ON CONFLICT returns the merged record": Case(
        [
            "INSERT INTO orders (id, sym, n) VALUES (1, 'A', 1)",
            (
                "INSERT INTO orders (id, n) VALUES (1, 9), (2, 8) ON CONFLICT (id)"
                " DO UPDATE SET n = EXCLUDED.n RETURNING id, sym, n"
            ),
        ],
        [(1, "A", 9), (2, None, 8)],
        "INSERT 0 2",
    ),
    "UPDATE returns the new values": Case(
        [
            "INSERT INTO orders (id, sym, n) VALUES (1, 'A', 1), (2, 'B', 2)",
            "UPDATE orders AS o SET n = n + 10 WHERE id = 2 RETURNING o.id, o.n, sym",
        ],
        [(2, 12, "B")],
        "UPDATE 1",
    ),
    "UPDATE by a whole message": Case(
        [
            "INSERT INTO orders (id, sym, n) VALUES (1, 'A', 1)",
            "UPDATE orders SET sym = NULL RETURNING id, sym, n",
        ],
        [(1, None, 1)],
        "UPDATE 1",
    ),
    "DELETE returns the old values": Case(
        [
            "INSERT INTO orders (id, sym) VALUES (1, 'A'), (2, 'B')",
            "DELETE FROM orders WHERE id = 1 RETURNING id, upper(sym || 'x')",
        ],
        [(1, "AX")],
        "DELETE 1",
    ),
    "no row": Case(["DELETE FROM orders WHERE id = 99 RETURNING id"], [], "DELETE 0"),
    "topics of a pattern": Case(
        [
            'INSERT INTO json."region/eu" (id, a) VALUES (1, 5)',
            "UPDATE regions SET a = 6 WHERE _topic = 'region/eu' RETURNING _topic, id, a",
        ],
        [("region/eu", 1, 6)],
        "UPDATE 1",
    ),
    "nvfix": Case(
        ["INSERT INTO nv (id, a) VALUES ('1', 'x') RETURNING id, a"],
        [("1", "x")],
        "INSERT 0 1",
    ),
    "xml": Case(
        ["""INSERT INTO doc ("row.id", "row.a") VALUES ('1', 'x') RETURNING "row.a" """],
        [("x",)],
        "INSERT 0 1",
    ),
    "the message": Case(
        ["""INSERT INTO orders (_body) VALUES ('{"id": 1, "o": {}}') RETURNING _body"""],
        [('{"id": 1, "o": {}}',)],
        "INSERT 0 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_returned_as_written(connection: psycopg.Connection[Any], name: str) -> None:
    case = CASES[name]
    for statement in case.statements[:-1]:
        connection.execute(statement)
    cursor = connection.execute(case.statements[-1])
    assert (cursor.fetchall(), cursor.statusmessage) == (case.rows, case.tag)


def test_star_and_computed_metadata_are_those_of_a_query(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("INSERT INTO orders (id, sym) VALUES (5, 'A')")
    written = connection.execute(
        "UPDATE orders SET sym = 'B' RETURNING *, _key, _timestamp, _bookmark"
    )
    read = connection.execute("SELECT *, _key, _timestamp, _bookmark FROM orders")
    assert written.description is not None
    assert read.description is not None
    assert [(one.name, one.type_code) for one in written.description] == [
        (one.name, one.type_code) for one in read.description
    ]
    rows = written.fetchall()
    assert rows == read.fetchall()
    assert rows[0][-1]  # the bookmark


REFUSED = [
    ("INSERT INTO orders (id) VALUES (1) RETURNING nothing", "42703", "nothing"),
    ("INSERT INTO orders (id) VALUES (1) RETURNING count(id)", "42803", "count(id)"),
    ("UPDATE orders SET n = 1 RETURNING row_number() OVER (ORDER BY id)", "42P20", "row_number()"),
    ("DELETE FROM orders RETURNING (SELECT max(n) FROM orders)", "0A000", "max(n)"),
    ("INSERT INTO events (id) VALUES (1) RETURNING *", "0A000", "RETURNING"),
    ("INSERT INTO work (id) VALUES (1) RETURNING id", "0A000", "RETURNING"),
    ('INSERT INTO json."region/eu" (id) VALUES (1) RETURNING id', "0A000", "RETURNING"),
]


@pytest.mark.parametrize(("text", "sqlstate", "at"), REFUSED)
def test_refusals_have_a_position_and_write_nothing(
    connection: psycopg.Connection[Any], text: str, sqlstate: str, at: str
) -> None:
    connection.execute("INSERT INTO orders (id, n) VALUES (7, 7)")
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == sqlstate
    assert caught.value.diag.statement_position is not None
    assert text[int(caught.value.diag.statement_position) - 1 :].startswith(at)
    assert bodies(connection, "orders") == [{"id": 7, "n": 7}]


def test_copy_writes_and_returns(connection: psycopg.Connection[Any]) -> None:
    """As ADBC executes every statement with rows."""
    with connection.cursor() as cursor:
        text = "COPY (INSERT INTO orders (id, n) VALUES (1, 2) RETURNING id, n) TO STDOUT"
        with cursor.copy(text) as copy:
            assert list(copy.rows()) == [("1", "2")]
        with (
            pytest.raises(psycopg.errors.FeatureNotSupported, match="must have a RETURNING"),
            cursor.copy("COPY (DELETE FROM orders) TO STDOUT"),
        ):
            raise AssertionError("there is nothing to copy")
    assert bodies(connection, "orders") == [{"id": 1, "n": 2}]


def test_an_error_of_an_expression_says_that_the_rows_stay(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        connection.execute("INSERT INTO orders (id, n) VALUES (1, 0) RETURNING 1 / n")
    assert caught.value.diag.message_detail == "1 row was written before that, and stay."
    assert bodies(connection, "orders") == [{"id": 1, "n": 0}]


def test_psql_prints_the_rows_and_the_tag(sql: SqlServer) -> None:
    done = sql.psql(
        'INSERT INTO lines ("order", "at.line", v) VALUES (1, 1, \'x\') RETURNING v, length(_key)',
        "DELETE FROM lines RETURNING v",
        options="-X",
    )
    assert done.returncode == 0, done.stderr
    assert "INSERT 0 1" in done.stdout
    assert done.stdout.count("(1 row)") == 2
    assert done.stdout.rstrip().endswith("DELETE 1")


def test_a_portal_is_written_once_and_read_in_parts(connection: psycopg.Connection[Any]) -> None:
    values = ", ".join(f"({number}, {number})" for number in range(10))
    stream = connection.cursor().stream(
        f"INSERT INTO orders (id, n) VALUES {values} RETURNING id", size=3
    )
    assert [row[0] for row in stream] == list(range(10))
    assert len(bodies(connection, "orders")) == 10


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_executemany_returns_rows_of_each(
    connection: psycopg.Connection[Any], binary: bool
) -> None:
    cursor = connection.cursor(binary=binary)
    cursor.executemany(
        "INSERT INTO orders (id, n) VALUES (%s, %s) RETURNING id, n",
        [(1, 10), (2, 20)],
        returning=True,
    )
    found = [cursor.fetchone()]
    while cursor.nextset():
        found.append(cursor.fetchone())
    assert found == [(1, 10), (2, 20)]


def test_asyncpg_prepares_it(sql: SqlServer, connection: psycopg.Connection[Any]) -> None:
    async def run() -> None:
        client = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="t", database="any", ssl=False
        )
        statement = "INSERT INTO orders (id, n) VALUES ($1::bigint, $2::bigint) RETURNING id, n + 1"
        assert await client.fetchrow(statement, 1, 5) == (1, 6)
        assert await client.fetchrow(statement, 2, 6) == (2, 7)
        await client.close()

    asyncio.run(run())
    assert len(bodies(connection, "orders")) == 2


class Base(DeclarativeBase):
    """Tables of this test."""


class Order(Base):
    """A record, whose SOW key the server computes."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True, autoincrement=False)
    symbol: Mapped[str | None]
    sow_key: Mapped[str] = mapped_column(
        "_key", server_default=sqlalchemy.FetchedValue(), server_onupdate=sqlalchemy.FetchedValue()
    )


def test_sqlalchemy_fetches_what_the_server_computes(
    sql: SqlServer, connection: psycopg.Connection[Any]
) -> None:
    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg://t@127.0.0.1:{sql.port}/any", isolation_level="AUTOCOMMIT"
    )
    with Session(engine) as session:
        first, second = Order(id=1, symbol="A"), Order(id=2, symbol="B")
        session.add_all([first, second])
        session.flush()
        keys = dict(connection.execute("SELECT id, _key FROM orders").fetchall())
        assert {first.id: first.sow_key, second.id: second.sow_key} == keys
        deleted = session.execute(
            sqlalchemy.delete(Order).where(Order.id == 1).returning(Order.symbol)
        )
        assert deleted.scalars().all() == ["A"]
    engine.dispose()


def test_only_records_and_fields_that_may_be_read_are_returned(tmp_path: Any) -> None:
    with (
        write_server(tmp_path, users=USERS) as server,
        server.connect(user="ann", password="ann") as ann,
        server.connect(user="bob", password="bob") as bob,
    ):
        ann.execute("INSERT INTO orders (id, symbol, secret) VALUES (1, 'IBM', 5), (2, 'X', 6)")
        cursor = bob.execute(
            "INSERT INTO orders (id, symbol) VALUES (3, 'IBM'), (4, 'Y') RETURNING id"
        )
        assert (cursor.fetchall(), cursor.statusmessage) == ([(3,)], "INSERT 0 2")
        merged = bob.execute(
            "INSERT INTO orders (id, qty) VALUES (1, 1), (2, 1) ON CONFLICT (id)"
            " DO UPDATE SET qty = EXCLUDED.qty RETURNING _body"
        ).fetchall()
        assert merged == [('{"id":1,"symbol":"IBM","qty":1}',)]
        moved = bob.execute("UPDATE orders SET symbol = 'Z' WHERE id = 3 RETURNING id")
        assert (moved.fetchall(), moved.statusmessage) == ([], "UPDATE 1")
        for text, error in (
            ("UPDATE orders SET qty = 2 RETURNING secret", psycopg.errors.UndefinedColumn),
            (
                "INSERT INTO orders (id, symbol, secret) VALUES (9, 'IBM', 1) RETURNING secret",
                psycopg.errors.UndefinedColumn,
            ),
            (
                "INSERT INTO given (_key, a) VALUES ('k', 1) RETURNING a",
                psycopg.errors.FeatureNotSupported,
            ),
        ):
            with pytest.raises(error):
                bob.execute(text)
