"""`amps-sqlite3` and `amps_sqlite3_report`."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from server.cli.amps_sqlite3 import main as amps_sqlite3
from server.cli.amps_sqlite3_report import main as amps_sqlite3_report
from server.statistics.host_resources import HOST_CPUS
from server.statistics.resources import SOW, VIEWS
from server.statistics.sample import StatisticsEntry
from server.statistics.schema import Resource
from server.statistics.timestamps import from_text, to_unix
from tests.statistics.support import NOON, Clients, fixed, kept, moving, recorded, sample, take

MAY: Final = from_text("20180501T000000")
_START: Final = to_unix(MAY) - NOON


@pytest.fixture(autouse=True)
def _zone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XXX-2")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples, the first of them of the moment in the reference."""
    path = tmp_path_factory.mktemp("statistics") / "stats.db"
    with recorded(path) as writing:
        for number in range(2):
            entries = {
                HOST_CPUS: [
                    StatisticsEntry(name, (), (number, 0.25, 62.452316076294, 0))
                    for name in ("all", "cpu0")
                ],
                SOW: [_entry(SOW, name, number) for name in ("orders", 'with "all", of')],
                VIEWS: [_entry(VIEWS, "orders", number)],
            }
            writing.write(sample(_START + 10 * number, entries))
    return path


def _entry(resource: Resource, name: str, number: int) -> StatisticsEntry:
    """An entry whose topic is its name."""
    values = [
        name if field.name == "topic" else value
        for field, value in zip(resource.static_fields, fixed(resource, "x"), strict=True)
    ]
    return StatisticsEntry(name, tuple(values), moving(resource, number))


@dataclass
class Ran:
    """What a command has come to."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(main: Callable[[Sequence[str]], int], *words: str | Path) -> Ran:
        capsys.readouterr()
        try:
            status = main([*map(str, words)])
        except SystemExit as end:
            status = int(str(end.code))
        return Ran(status, *capsys.readouterr())

    return call


def test_the_query_of_the_reference(run: Callable[..., Ran], database: Path) -> None:
    query = "select iso8601(timestamp),system_percent from hcpus order by timestamp"
    assert run(amps_sqlite3, database, query) == Ran(
        0,
        "iso8601(timestamp),system_percent\n"
        "20180501T000000.000000Z,62.452316076294\n"
        "20180501T000000.000000Z,62.452316076294\n"
        "20180501T000010.000000Z,62.452316076294\n"
        "20180501T000010.000000Z,62.452316076294\n",
        "",
    )


def test_the_activity_of_topics_as_in_the_reference(
    run: Callable[..., Ran], database: Path
) -> None:
    query = """SELECT iso8601_local(timestamp), topic, deletes_per_sec, inserts_per_sec,
      updates_per_sec, valid_keys FROM ISOW GROUP BY topic ORDER BY topic, timestamp"""
    answer = run(amps_sqlite3, database, query)
    assert answer.status == 0
    assert [line.partition(",")[2] for line in answer.out.splitlines()[1:]] == [
        "orders,0,0,0,0",
        '"with ""all"", of",0,0,0,0',
    ]


def test_views_with_their_topics_as_in_the_reference(
    run: Callable[..., Ran], database: Path
) -> None:
    query = """SELECT iso8601_local(v.timestamp), v.topic, v.queue_depth, v.conflation_ratio,
      s.updates_per_sec, s.inserts_per_sec, s.deletes_per_sec
    FROM IVIEWS AS v
    JOIN ISOW AS s ON v.oid = s.oid AND v.timestamp=s.timestamp
    WHERE (v.queue_depth + s.updates_per_sec + s.inserts_per_sec + s.deletes_per_sec) > 0
    ORDER BY v.oid, v.timestamp asc"""
    answer = run(amps_sqlite3, database, query)
    assert answer.out.splitlines()[1:] == ["20180501T020010.000000,orders,1,1.5,0,0,0"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT TIMESTAMP('20180501T000000')", MAY),
        (f"SELECT Iso8601('{MAY}')", "20180501T000000.000000Z"),
        ("SELECT iso8601(NULL)", None),
        ("SELECT count(*) FROM hcpus WHERE timestamp > timestamp('20180501T000005Z')", 2),
        ("SELECT 1 AS a, 2 AS a", 1),
        ("SELECT 9e999", "Infinity"),
        ("SELECT -9e999", "-Infinity"),
    ],
)
def test_functions_and_values(
    run: Callable[..., Ran], database: Path, query: str, expected: object
) -> None:
    answer = run(amps_sqlite3, database, query, "--json")
    found = json.loads(answer.out)
    assert next(iter(found.values())) == expected


def test_bytes_are_in_base64_and_nothing_is_lost(run: Callable[..., Ran], tmp_path: Path) -> None:
    """Blobs whatever they hold, and texts that are no UTF-8, beside columns of such names."""
    path = tmp_path / "stats.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t_DYNAMIC (timestamp, static_id, a_base64, a, b, c)")
        made.execute(
            "INSERT INTO t_DYNAMIC VALUES (212391936000000, 1, 'x', x'00ff', x'61',"
            " CAST(x'61ff' AS TEXT))"
        )
        made.commit()
    encoded = {"a_base64": "x", "a_base64:1": "AP8=", "b_base64": "YQ==", "c_base64": "Yf8="}
    query = "SELECT a_base64, a, b, c FROM t"
    assert json.loads(run(amps_sqlite3, path, query, "--json").out) == encoded
    reported = json.loads(run(amps_sqlite3_report, path, "20180501", "--json").out)
    assert reported.items() >= encoded.items()
    script = f"from server.cli.amps_sqlite3 import main; main([{str(path)!r}, {query!r}])"
    command = [sys.executable, "-c", script]
    plain = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert plain == b"a_base64,a,b,c\nx,00ff,61,a\xff\n"


def test_columns_of_one_name_are_numbered(run: Callable[..., Ran], database: Path) -> None:
    answer = run(amps_sqlite3, "--json", database, "SELECT 1 AS a, 2 AS a, 3 AS a")
    assert json.loads(answer.out) == {"a": 1, "a:1": 2, "a:2": 3}


def test_sizes(run: Callable[..., Ran], database: Path) -> None:
    answers = [run(amps_sqlite3, database, how) for how in ("--size", "size")]
    assert answers[0] == answers[1]
    lines = answers[0].out.splitlines()
    assert lines[0] == "table,rows,bytes"
    rows = {table: int(count) for table, count, _ in (line.split(",") for line in lines[1:])}
    assert (rows["HCPUS_DYNAMIC"], rows["HCPUS_STATIC"]) == (4, 2)
    assert rows["total"] == sum(rows.values()) / 2
    total = json.loads(run(amps_sqlite3, "--json", database, "--size").out.splitlines()[-1])
    assert total["table"] == "total"
    assert 0 < total["bytes"] <= database.stat().st_size


def test_the_report_of_the_reference(run: Callable[..., Ran], database: Path) -> None:
    answer = run(amps_sqlite3_report, database, "20180501T000000")
    assert answer.status == 0
    assert answer.out.startswith(
        f"amps-sqlite3-report on {database} since 20180501T000000\n"
        "TABLE HCPUS\n"
        "timestamp,static_id,idle_percent,iowait_percent,system_percent,user_percent,static_id:1,oid\n"
        "212391936000000,1,0,0.25,62.452316076294,0,1,all\n"
        "212391936000000,2,0,0.25,62.452316076294,0,2,cpu0\n"
        "212391936010000,1,1,0.25,62.452316076294,0,1,all\n"
        "212391936010000,2,1,0.25,62.452316076294,0,2,cpu0\n"
        "TABLE ISOW\n"
    )


def test_a_report_begins_at_its_moment(run: Callable[..., Ran], database: Path) -> None:
    later = run(amps_sqlite3_report, database, "20180501T000001")
    assert "212391936010000" in later.out
    assert "212391936000000" not in later.out
    none = run(amps_sqlite3_report, database, "20180501T000011")
    assert none.out == f"amps-sqlite3-report on {database} since 20180501T000011\n"
    lines = run(amps_sqlite3_report, "--json", database, "20180501T000010").out.splitlines()
    assert {json.loads(line)["table"] for line in lines} == {"HCPUS", "ISOW", "IVIEWS"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("missing.db", "--size"), 1, "missing.db: No such file or directory"),
        ((".", "--size"), 1, ".: Is a directory"),
        (("a.txt", "select 1"), 1, "a.txt: file is not a database"),
        (("stats.db", "selec"), 1, 'stats.db: near "selec": syntax error'),
        (("stats.db", "select * from nobody"), 1, "stats.db: no such table: nobody"),
        (("stats.db", "select '\udcff'"), 1, "stats.db: expected names and queries in UTF-8"),
        (
            ("stats.db", "delete from HCPUS_DYNAMIC"),
            1,
            "stats.db: attempt to write a readonly database",
        ),
        (
            ("stats.db", "select timestamp('noon')"),
            1,
            "stats.db: timestamp: 'noon' is no time in UTC, such as 20230830T000010",
        ),
        (
            ("stats.db", "select 1; select 2"),
            1,
            "stats.db: You can only execute one statement at a time.",
        ),
        (("stats.db",), 2, "expected either a query or --size, after the database"),
        (("stats.db", "select 1", "--size"), 2, "expected either a query or --size,"),
    ],
)
def test_what_cannot_be_answered(
    run: Callable[..., Ran],
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(database, "stats.db")
    Path("a.txt").write_text("no database\n" * 100)
    answer = run(amps_sqlite3, *words)
    assert answer.status == status
    assert answer.err.splitlines()[-1].startswith(f"amps-sqlite3: {said}")
    assert len(answer.err.splitlines()) == 1 or status == 2


def test_a_report_wants_a_moment(run: Callable[..., Ran], database: Path) -> None:
    answer = run(amps_sqlite3_report, database, "yesterday")
    assert answer.status == 2
    said = (
        "'yesterday' is no time in UTC, such as 20230830T000010; see amps_sqlite3_report --help\n"
    )
    assert answer.err.endswith(said)
    answer = run(amps_sqlite3_report, "missing.db", "20180501")
    assert answer == Ran(1, "", "amps_sqlite3_report: missing.db: No such file or directory\n")


def test_a_damaged_file_is_a_sentence(
    run: Callable[..., Ran], database: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.db"
    whole = database.read_bytes()
    damaged.write_bytes(whole[:200] + b"\xa5" * (len(whole) - 200))
    for main, word in ((amps_sqlite3, "select * from hcpus"), (amps_sqlite3_report, "20180501")):
        answer = run(main, damaged, word)
        assert answer.status == 1
        assert answer.err.endswith(f"{damaged}: database disk image is malformed\n")


@pytest.mark.parametrize("query", ["ATTACH 'other.db' AS x", "VACUUM INTO 'other.db'"])
def test_no_other_database_is_made(
    run: Callable[..., Ran],
    database: Path,
    query: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    why = "other databases cannot be attached, nor made"
    assert run(amps_sqlite3, database, query) == Ran(1, "", f"amps-sqlite3: {database}: {why}\n")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_beside_the_file(run: Callable[..., Ran], database: Path) -> None:
    run(amps_sqlite3, database, "select * from hcpus")
    assert [one.name for one in database.parent.iterdir()] == ["stats.db"]


def test_a_file_that_is_being_written_to(run: Callable[..., Ran], tmp_path: Path) -> None:
    path, clients = tmp_path / "stats.db", Clients()
    query = "select max(bytes_in) as most from iclients"
    with kept(path) as keeper:
        for number in range(1, 4):
            take(keeper, clients.sample(number, {"1": number}))
            keeper.query(lambda history: history.timestamps()).result()
            assert json.loads(run(amps_sqlite3, path, query, "--json").out) == {"most": number}


def test_a_database_that_amps_has_made(run: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "amps.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            f"""
            CREATE TABLE IMAPS_STATIC(static_id integer primary key, oid text, name text);
            CREATE TABLE IMAPS_DYNAMIC(timestamp integer, static_id integer, size integer,
              PRIMARY KEY(timestamp, static_id));
            CREATE TABLE IALONE_DYNAMIC(timestamp integer, static_id integer);
            INSERT INTO IMAPS_STATIC VALUES(7, 'a', 'one');
            INSERT INTO IMAPS_DYNAMIC VALUES({MAY}, 7, 5);
            INSERT INTO IALONE_DYNAMIC VALUES({MAY}, 1);
            """
        )
    assert run(amps_sqlite3, path, "select name, size from imaps").out == "name,size\none,5\n"
    assert run(amps_sqlite3_report, path, "20180501").out.splitlines()[1:] == [
        "TABLE IALONE",
        "timestamp,static_id",
        f"{MAY},1",
        "TABLE IMAPS",
        "timestamp,static_id,size,static_id:1,oid,name",
        f"{MAY},7,5,7,a,one",
    ]
