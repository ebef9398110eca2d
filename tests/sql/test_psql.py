"""psql against a server process: queries, its own commands, COPY and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.support import ORDERS, PRICES, SqlServer, sql_server


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish("orders", *ORDERS)
        server.publish("prices", *PRICES)
        yield server


@pytest.mark.parametrize(
    ("query", "output"),
    [
        ("SELECT id, symbol, price, live FROM orders WHERE id = 4", "4|IBM|6|f"),
        ("SELECT count(*) FROM orders", "50"),
        ("SELECT count(*) FROM orders WHERE qty > 100 AND symbol = 'IBM'", "19"),
        ("SELECT symbol, sum(qty) FROM orders GROUP BY 1 ORDER BY 1", "IBM|6000\nMSFT|6250"),
        ("SELECT * FROM prices ORDER BY bid DESC LIMIT 1", "MSFT|410.25|"),
        (
            (
                "SELECT o.symbol, sum(o.qty * p.bid) FROM orders o JOIN prices p USING (symbol)"
                " GROUP BY 1 ORDER BY 1"
            ),
            "IBM|723000\nMSFT|2564062.5",
        ),
        ("SELECT symbol, qty FROM positions ORDER BY 1", "IBM|6000\nMSFT|6250"),
        ("SELECT id FROM amps.orders ORDER BY price DESC LIMIT 2", "49\n48"),
        ('SELECT _body FROM "orders" WHERE id = 0', '{"id": 0, "symbol": "IBM", "qty": 0,'),
        ("SELECT 1; SELECT 2", "1\n2"),
        ("SHOW server_version", "16"),
        ("SET application_name = 'x'; SHOW application_name", "SET\nx"),
        ("BEGIN; SELECT 1; COMMIT", "BEGIN\n1\nCOMMIT"),
        ("COPY (SELECT id, symbol FROM orders WHERE id < 2) TO STDOUT", "0\tIBM\n1\tMSFT"),
        (
            (
                "COPY (SELECT id, 'a,\"b' AS t, NULL AS n FROM orders WHERE id < 1) TO STDOUT"
                " (FORMAT csv, HEADER)"
            ),
            'id,t,n\n0,"a,""b",',
        ),
        ("", ""),
    ],
)
def test_statements(sql: SqlServer, query: str, output: str) -> None:
    result = sql.psql(query)
    assert result.stderr == ""
    assert result.stdout.strip().startswith(output)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (r"\d", ["amps|orders|table", "amps|positions|view", "amps|prices|table"]),
        (r"\dt", ["amps|orders|table", "amps|prices|table"]),
        (r"\dv", ["amps|positions|view"]),
        (r"\d orders", ["id|bigint", "price|double precision", "_timestamp|timestamp with time"]),
        (r"\d+ orders", ["symbol|text", "the SOW key"]),
        (r"\dn", ["amps"]),
        (r"\l", ["test-instance"]),
        (r"\du", [""]),
        (r"\conninfo", ['connected to database "any" as user "tester"']),
    ],
)
def test_commands_of_psql(sql: SqlServer, command: str, parts: list[str]) -> None:
    result = sql.psql(command)
    assert result.stderr == ""
    assert all(part in result.stdout for part in parts), result.stdout


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT none FROM orders", 'column "none" does not exist'),
        ("SELECT 1 FROM nothing", 'relation "nothing" does not exist'),
        ("SELECT FROM WHERE", "syntax error"),
        ("INSERT INTO orders VALUES (1)", "INSERT needs the names of the columns"),
        ("SELECT 1/0", "division by zero"),
        ("SELECT 'x'::int", "could not convert string 'x'"),
    ],
)
def test_errors(sql: SqlServer, query: str, message: str) -> None:
    result = sql.psql(query)
    assert result.stdout == ""
    assert "ERROR:" in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_statement_after_an_error_in_a_transaction_is_ignored(sql: SqlServer) -> None:
    result = sql.psql("BEGIN", "SELECT none FROM orders", "SELECT 1", "ROLLBACK", "SELECT 2")
    assert "current transaction is aborted" in result.stderr
    assert result.stdout.split() == ["BEGIN", "ROLLBACK", "2"]


def test_a_cursor_returns_some_rows_at_a_time(sql: SqlServer) -> None:
    result = sql.psql(
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id",
        "FETCH 2 FROM c",
        "MOVE 3 IN c",
        "FETCH c",
        "CLOSE c",
        "COMMIT",
    )
    assert result.stderr == ""
    assert result.stdout.split("\n")[2:] == ["0", "1", "MOVE 3", "5", "CLOSE CURSOR", "COMMIT", ""]


def test_explain_shows_what_is_scanned(sql: SqlServer) -> None:
    result = sql.psql("EXPLAIN ANALYZE SELECT id FROM orders WHERE qty > 400")
    assert "Scan amps.orders" in result.stdout
    assert "Filter: /qty > 400" in result.stdout
    assert "50" in result.stdout


def test_a_changed_record_is_seen_by_the_next_query(sql: SqlServer) -> None:
    sql.publish("prices", {"symbol": "AAPL", "bid": 1, "ask": {"px": 2}})
    assert sql.psql("SELECT bid FROM prices WHERE symbol = 'AAPL'").stdout == "1\n"
    sql.publish("prices", {"symbol": "AAPL", "bid": "n/a"})
    assert sql.psql("SELECT bid FROM prices WHERE symbol = 'AAPL'").stdout == "n/a\n"
    assert sql.server.logs("SQL column 'bid' of topic 'prices' of type json widened from double")
