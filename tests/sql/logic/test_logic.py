"""The cases of select.test give their rows by psql of a server, and in DuckDB over the same rows.

The format is that of sqllogictest, with a line for each row and tabs between values, as DuckDB's
own tests have it: https://duckdb.org/docs/stable/dev/sqllogictest/intro
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from tests.sql.support import SqlServer, sql_server
from tests.support.server import environment
from tests.support.waiting import WAIT_SECONDS, wait_until

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <Topic><Name>prices</Name><MessageType>json</MessageType><Key>/symbol</Key><Durability>transient</Durability></Topic>
  <View>
    <Name>positions</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/symbol AS /symbol</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/symbol</Field></Grouping>
  </View>
  <ConflatedTopic>
    <Name>recent</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval>
  </ConflatedTopic>
</SOW>
"""

Row = dict[str, Any]

COLUMNS = "id BIGINT, symbol VARCHAR, qty BIGINT, price DOUBLE, live BOOLEAN, note VARCHAR, "
COLUMNS += 'placed VARCHAR, "client.city" VARCHAR, tags JSON'
ORDERS: list[Row] = [
    {"id": 1, "symbol": "IBM", "qty": 100, "price": 10.5, "live": True, "note": "first"},
    {"id": 2, "symbol": "MSFT", "qty": 50, "price": 20.25, "live": False, "note": "50% off"},
    {"id": 3, "symbol": "IBM", "price": 11, "live": True, "qty": None},
    {"id": 4, "qty": 70, "note": "under_score"},
    {"id": 5, "symbol": "ORCL", "qty": -30, "price": 5, "live": False, "note": "Ähre"},
    {"id": 6, "symbol": "MSFT", "qty": 50, "price": 21, "note": "back\\slash"},
    {"id": 7, "symbol": "IBM", "qty": 0, "price": 0.25, "live": True, "note": "zeta"},
    {"id": 8, "symbol": "SAP", "qty": 7, "live": False, "note": "Zeta"},
]
PLACED = {1: "2026-01-05", 2: "2026-01-31", 3: "2026-02-28", 5: "2024-02-29", 6: "2026-12-31"}
TAGS = {1: ["a", "b"], 2: [7, None], 3: ["z"], 6: ["c", "d", "e"]}
CITIES = {1: "Rome", 2: "Oslo", 6: "Rome"}
PRICES: list[Row] = [
    {"symbol": "IBM", "bid": 12},
    {"symbol": "MSFT", "bid": 19.5},
    {"symbol": "SAP", "bid": None},
    {"symbol": "TSLA", "bid": 250},
]


class Case(NamedTuple):
    """A record of the file.

    Attributes:
        line: its line in the file.
        kind: `statement` or `query`.
        argument: `ok`, `error`, or the types of the columns.
        detail: the SQLSTATE of an error, or how rows are sorted.
        skipped: the database that does not run it.
        sql: the text.
        rows: the rows.
    """

    line: int
    kind: str
    argument: str
    detail: str
    skipped: str
    sql: str
    rows: list[list[str]]


def read_cases() -> list[Case]:
    cases = []
    line = 1
    for block in Path(__file__).with_name("select.test").read_text().split("\n\n"):
        lines = [one for one in block.strip("\n").split("\n") if not one.startswith("#")]
        skipped = ""
        if not lines:
            line += block.count("\n") + 2
            continue
        if lines[0].startswith("skipif "):
            skipped = lines.pop(0).removeprefix("skipif ")
        kind, argument, detail = [*lines[0].split(" "), ""][:3]
        sql, *rows = "\n".join(lines[1:]).split("\n----")
        found = [row.split("\t") for row in rows[0].split("\n")[1:]] if rows else []
        cases.append(Case(line, kind, argument, detail, skipped, sql, found))
        line += block.count("\n") + 2
    return cases


CASES = read_cases()
MARK = "-- end of case"


def of_server(row: str) -> list[str]:
    return [value or "(empty)" for value in row.split("\t")]


def of_duckdb(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "t" if value else "f"
        case "":
            return "(empty)"
        case list():
            return "{" + ",".join(of_duckdb(one) for one in value) + "}"
    return str(value)


def shown(rows: list[list[str]], case: Case) -> list[list[str]]:
    """Rows in the form of their types: I for integers, R for three digits, T for texts."""
    converted = [
        [
            f"{float(value):.3f}" if kind == "R" and value != "NULL" else value
            for value, kind in zip(row, case.argument, strict=True)
        ]
        for row in rows
    ]
    return sorted(converted) if case.detail == "rowsort" else converted


def records() -> list[Row]:
    return [
        row
        | ({"placed": PLACED[row["id"]]} if row["id"] in PLACED else {})
        | ({"tags": TAGS[row["id"]]} if row["id"] in TAGS else {})
        | ({"client": {"city": CITIES[row["id"]]}} if row["id"] in CITIES else {})
        for row in ORDERS
    ]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("logic"), topics=TOPICS) as server:
        server.publish("orders", *records())
        server.publish("prices", *PRICES)
        with server.connect() as connection:
            wait_until(
                lambda: (
                    connection.execute("SELECT count(*) FROM recent").fetchone() == (len(ORDERS),)
                )
            )
        yield server


def test_by_psql(sql: SqlServer) -> None:
    cases = [case for case in CASES if case.skipped != "amperage"]
    script = "".join(f"{case.sql};\n\\echo '{MARK}' :SQLSTATE\n" for case in cases)
    words = ["psql", "-XqAt", "-F", "\t", "-P", "null=NULL", "-h", "127.0.0.1", "-U", "tester"]
    result = subprocess.run(
        [*words, "-p", str(sql.port), "-d", "any"],
        input=script,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env=environment(),
        check=False,
    )
    lines = iter(result.stdout.splitlines())
    differences: list[object] = []
    for case in cases:
        rows = []
        for line in lines:
            if line.startswith(MARK):
                sqlstate = line.removeprefix(MARK).strip()
                break
            rows.append(of_server(line))
        expected = case.detail if case.argument == "error" else "00000"
        if sqlstate != expected:
            differences.append((case.line, case.sql, sqlstate, expected))
        elif case.kind == "query" and shown(rows, case) != shown(case.rows, case):
            differences.append((case.line, case.sql, rows, case.rows))
    assert not differences, "\n".join(map(str, differences))


def duckdb_tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE orders ({COLUMNS})")
    connection.execute("CREATE TABLE prices (symbol VARCHAR, bid DOUBLE)")
    for row in ORDERS:
        key = row["id"]
        values = [row.get(name) for name in ("id", "symbol", "qty", "price", "live", "note")]
        tags = json.dumps(TAGS[key]) if key in TAGS else None
        values += [PLACED.get(key), CITIES.get(key), tags]
        connection.execute(f"INSERT INTO orders VALUES ({', '.join('?' * len(values))})", values)
    for row in PRICES:
        connection.execute("INSERT INTO prices VALUES (?, ?)", [row["symbol"], row["bid"]])
    connection.execute(
        "CREATE VIEW positions AS SELECT symbol, sum(qty)::BIGINT AS qty FROM orders GROUP BY 1"
    )
    connection.execute("CREATE VIEW recent AS SELECT * FROM orders")
    return connection


def test_in_duckdb() -> None:
    differences: list[object] = []
    with duckdb_tables() as connection:
        for case in CASES:
            if case.skipped == "duckdb":
                continue
            if case.argument == "error":
                with pytest.raises(duckdb.Error):
                    connection.execute(case.sql).fetchall()
                continue
            found = connection.execute(case.sql).fetchall()
            rows = [[of_duckdb(value) for value in row] for row in found]
            if case.kind == "query" and shown(rows, case) != shown(case.rows, case):
                differences.append((case.line, case.sql, rows, case.rows))
    assert not differences, "\n".join(map(str, differences))
