"""Clients of PostgreSQL get the canned results of a server around the protocol object."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pyarrow as pa
import pytest
import trustme

from server.sql.postgres import types
from server.sql.postgres.types import ResultColumn
from tests.sql.postgres.canned_server import Canned, Settings, columns_of_schema, start

pytestmark = pytest.mark.process

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 11, 29, 21, 30, 0, 250_000, UTC)
ROW: dict[str, Any] = {
    "flag": True,
    "big": 2**63 - 1,
    "ratio": 0.1,
    "price": Decimal("1234567.8900"),
    "name": 'Zoë "x" \\',
    "body": b"\x00\xff\\x",
    "moment": MOMENT,
    "plain": datetime.datetime(1999, 12, 31, 23, 59, 59),
    "day": datetime.date(2026, 11, 29),
    "clock": datetime.time(9, 5, 1, 500),
    "tags": ["a", "b c", None, "NULL", ""],
    "document": '{"a": [1, null]}',
}
COLUMN_TYPES = {
    "flag": pa.bool_(),
    "big": pa.int64(),
    "ratio": pa.float64(),
    "price": pa.decimal128(18, 4),
    "name": pa.string(),
    "body": pa.binary(),
    "moment": pa.timestamp("us", "UTC"),
    "plain": pa.timestamp("us"),
    "day": pa.date32(),
    "clock": pa.time64("us"),
    "tags": pa.list_(pa.string()),
    "document": pa.string(),
}
SCHEMA = pa.schema(list(COLUMN_TYPES.items()))
COLUMNS = tuple(
    column._replace(type_oid=types.JSONB) if column.name == "document" else column
    for column in columns_of_schema(SCHEMA)
)
NULLS = dict.fromkeys(ROW)


def everything() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([ROW, NULLS], SCHEMA)


def echo(*values: Any) -> pa.RecordBatch:
    names = [f"p{number}" for number in range(len(values))]
    columns = zip(values, ECHOED, strict=True)
    arrays = [pa.array([value], COLUMN_TYPES[name]) for value, name in columns]
    return pa.RecordBatch.from_arrays(arrays, names)


ECHOED = ("flag", "big", "ratio", "price", "name", "body", "moment", "day", "clock", "tags")
ECHO = "select " + ", ".join(f"${number + 1}" for number in range(len(ECHOED)))
ECHO_OIDS = [column.type_oid for column in COLUMNS if column.name in ECHOED]


def count_to(limit: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(range(limit or 0), pa.int64())})


STATEMENTS = {
    "select * from everything": Canned(everything, columns=COLUMNS),
    "select 1": Canned(lambda: pa.RecordBatch.from_pydict({"one": pa.array([1], pa.int32())})),
    "select n from numbers limit $1": Canned(count_to, [types.INT8]),
    "select n from numbers": Canned(lambda: count_to(1000)),
    "fetch": Canned(lambda: count_to(10)),
    ECHO: Canned(echo, ECHO_OIDS),
    "select relname from relations": Canned(
        lambda: pa.RecordBatch.from_pydict({"relname": ["orders"], "oid": [16384]}),
        columns=(ResultColumn("relname", types.NAME), ResultColumn("oid", types.OID)),
    ),
}


@contextmanager
def serving(settings: Settings) -> Iterator[int]:
    """Serve on a thread, and give the port."""
    loop = asyncio.new_event_loop()
    server, port = loop.run_until_complete(start(settings))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def psql(
    port: int, *arguments: str, user: str = "ada", password: str = "", tls: str = "disable"
) -> str:
    conninfo = f"host=127.0.0.1 port={port} user={user} dbname=amps sslmode={tls}"
    environment = {"PGPASSWORD": password, "PGSSLROOTCERT": "none", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["/usr/bin/psql", "-X", "-w", conninfo, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
        check=False,
    )
    return done.stdout + done.stderr


needs_psql = pytest.mark.skipif(not Path("/usr/bin/psql").exists(), reason="psql is missing")


@needs_psql
def test_psql() -> None:
    with serving(Settings(STATEMENTS)) as port:
        assert psql(port, "-Atc", "select 1") == "1\n"
        shown = psql(port, "-At", "-F|", "-P", "null=-", "-c", "select * from everything")
        assert shown.splitlines() == [
            (
                't|9223372036854775807|0.1|1234567.8900|Zoë "x" \\|\\x00ff5c78'
                "|2026-11-29 21:30:00.25+00|1999-12-31 23:59:59|2026-11-29|09:05:01.0005"
                '|{a,"b c",NULL,"NULL",""}|{"a": [1, null]}'
            ),
            "-|-|-|-|-|-|-|-|-|-|-|-",
        ]
        assert psql(port, "-Atc", "select 1; select 1") == "1\n1\n"
        assert psql(port, "-c", "sel") == (
            "ERROR:  unknown statement\nLINE 1: sel\n        ^\n"
            "DETAIL:  sel\nHINT:  ask for another one\n"
        )
        assert psql(port, "-Atc", "select n from numbers").split() == [str(n) for n in range(1000)]


@needs_psql
@pytest.mark.parametrize("scram", [True, False])
def test_psql_passwords(scram: bool) -> None:
    with serving(Settings(STATEMENTS, {"ada": "geh heim"}, scram)) as port:
        assert psql(port, "-Atc", "select 1", password="geh heim") == "1\n"
        assert "password authentication failed" in psql(port, "-c", "", password="x")
        assert "password authentication failed" in psql(port, "-c", "", user="eve", password="x")


@needs_psql
def test_psql_over_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    settings = Settings(STATEMENTS, {"ada": "x"}, tls=context)
    with serving(settings) as port:
        assert psql(port, "-Atc", "select 1", password="x", tls="require") == "1\n", settings.log
    with serving(Settings(STATEMENTS)) as port:
        assert psql(port, "-Atc", "select 1", tls="prefer") == "1\n"
        assert "does not support SSL" in psql(port, "-c", "select 1", tls="require")


def expected_row() -> dict[str, Any]:
    return {**ROW, "document": json.loads(ROW["document"])}


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg(binary: bool) -> None:
    with serving(Settings(STATEMENTS, {"ada": "x"})) as port:
        conninfo = f"host=127.0.0.1 port={port} user=ada password=x dbname=amps"
        with psycopg.connect(conninfo) as connection:
            cursor = connection.cursor(binary=binary, row_factory=psycopg.rows.dict_row)
            assert cursor.execute("select * from everything").fetchall() == [expected_row(), NULLS]
            template = "select " + ", ".join(["%t" if not binary else "%b"] * len(ECHOED))
            values = [ROW[name] for name in ECHOED]
            tags = list(ROW["tags"])
            values[-1] = tags
            (echoed,) = cursor.execute(template, values).fetchall()
            assert list(echoed.values()) == values
            assert connection.info.server_version == 160000
            with pytest.raises(psycopg.errors.SyntaxError, match="unknown statement"):
                cursor.execute("nothing %s", [1])
            connection.rollback()
            assert cursor.execute("select 1").fetchone() == {"one": 1}


@pytest.mark.skipif(psycopg.pq.version() < 180000, reason="this libpq knows only one version")
@pytest.mark.parametrize("version", ["3.2", "latest"])
def test_psycopg_asks_for_a_newer_protocol(version: str) -> None:
    with serving(Settings(STATEMENTS, {"ada": "x"})) as port:
        conninfo = f"host=127.0.0.1 port={port} user=ada password=x max_protocol_version={version}"
        with psycopg.connect(conninfo) as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_psycopg_row_by_row() -> None:
    with serving(Settings(STATEMENTS)) as port:
        conninfo = f"host=127.0.0.1 port={port} user=ada"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            rows = list(connection.cursor().stream("select n from numbers"))
            assert rows == [(n,) for n in range(1000)]


def test_psycopg_prepared_and_pipelined() -> None:
    settings = Settings(STATEMENTS)
    with serving(settings) as port:
        conninfo = f"host=127.0.0.1 port={port} user=ada"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for _ in range(10):  # prepared from the fifth time on
                cursor = connection.execute("select n from numbers limit %s", [3])
                assert cursor.fetchall() == [(0,), (1,), (2,)]
            with connection.pipeline():
                cursors = [
                    connection.execute("select n from numbers limit %s", [n]) for n in range(50)
                ]
                assert [len(cursor.fetchall()) for cursor in cursors] == list(range(50))
            with pytest.raises(psycopg.errors.SyntaxError):
                run_wrong_pipeline(connection)
            assert connection.execute("select 1").fetchone() == (1,)
    assert settings.log


def run_wrong_pipeline(connection: Any) -> None:
    """Send a wrong statement, and one after it that the server skips."""
    with connection.pipeline() as pipeline:
        connection.execute("nothing %s", [1])
        connection.execute("select n from numbers limit %s", [1])
        pipeline.sync()


def test_psycopg_cancel() -> None:
    settings = Settings(STATEMENTS)
    with (
        serving(settings) as port,
        psycopg.connect(f"host=127.0.0.1 port={port} user=ada") as connection,
    ):
        connection.cancel_safe()  # cancel() holds the GIL, which the server needs
        connection.execute("select 1")
    (request,) = settings.cancelled
    assert request == (4711, 0xDEADBEEF)


def test_psycopg_async() -> None:
    async def main() -> None:
        settings = Settings(STATEMENTS, {"ada": "pässwörd\u00a0\u2168"})
        server, port = await start(settings)
        conninfo = psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=port, user="ada", password="pässwörd IX"
        )
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            cursor = await connection.execute("select * from everything", binary=True)
            assert await cursor.fetchone() == tuple(expected_row().values())
        server.close()

    asyncio.run(main())


def test_asyncpg() -> None:
    async def main() -> None:
        settings = Settings(STATEMENTS, {"ada": "x"})
        server, port = await start(settings)
        connection = await asyncpg.connect(host="127.0.0.1", port=port, user="ada", password="x")
        rows = await connection.fetch("select * from everything")
        assert [dict(row) for row in rows] == [ROW, NULLS]
        values = [ROW[name] for name in ECHOED]
        assert list(await connection.fetchrow(ECHO, *values)) == values
        assert await connection.fetchval("select 1") == 1
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await connection.fetch("nothing")
        async with connection.transaction():
            cursor = connection.cursor("select n from numbers", prefetch=70)
            found = [row["n"] async for row in cursor]
            assert found == list(range(1000))
        assert not connection.is_in_transaction()
        await connection.close()
        server.close()

    asyncio.run(main())
