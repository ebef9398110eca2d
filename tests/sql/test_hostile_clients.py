"""Clients that cancel without end, and send parameters of many bytes: others are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.sql.support import ORDERS, SqlServer, sql_server

STORM = 60
"""Cancellations of one connection."""

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish("orders", *ORDERS)
        yield server


def test_a_storm_of_cancellations_hits_its_own_connection_only(sql: SqlServer) -> None:
    with sql.connect() as hostile, sql.connect() as innocent:
        is_over = threading.Event()

        def cancel() -> None:
            for _ in range(STORM):
                hostile.cancel()
            is_over.set()

        storm = threading.Thread(target=cancel)
        storm.start()
        while not is_over.is_set():
            with suppress(psycopg.errors.QueryCanceled):
                hostile.execute("SELECT count(*) FROM orders a, orders b, orders c")
            count = innocent.execute("SELECT count(*) FROM orders").fetchone()
            assert count == (50,)
        storm.join()
    with sql.connect() as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (50,)


def test_parameters_of_megabytes_are_values_as_others(sql: SqlServer) -> None:
    text = "é" * (8 * MEGABYTE)
    with sql.connect() as connection:
        for binary in (False, True):
            row = connection.execute(
                "SELECT length(%s::text), (SELECT count(*) FROM orders WHERE symbol = %s)",
                (text, text),
                binary=binary,
            ).fetchone()
            assert row == (len(text), 0)
        found = connection.execute(
            "SELECT count(*) FROM orders WHERE id = ANY(%s)", (list(range(9_000)),)
        ).fetchone()
        assert found == (50,)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            connection.execute("SELECT %s::int8[]", (list(range(300_000)),))


def test_a_message_beyond_the_limit_ends_its_connection_only(sql: SqlServer) -> None:
    with sql.connect() as innocent:
        hostile = sql.connect()
        with pytest.raises(psycopg.OperationalError):
            hostile.execute("SELECT length(%s::text)", ("x" * (70 * MEGABYTE),))
        assert hostile.closed
        assert innocent.execute("SELECT count(*) FROM orders").fetchone() == (50,)
