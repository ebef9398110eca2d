"""Tables that are kept in step with topics: `amps-pipeline export --follow`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.cli import main
from pipeline.compaction import MERGE_FACTOR
from server.storage.journal.format.entry import JournalEntryKind
from tests.pipeline.delta_log import current, rows
from tests.pipeline.journals import Writer, journal
from tests.pipeline.quick_java import quick_java
from tests.pipeline.streams import WAIT_SECONDS
from tests.pipeline.topics import publish, uri
from tests.support.long_form import ONLY_LONG, spread
from tests.support.server import RunningServer

COLUMNS = "id BIGINT, symbol STRING"


def asked(
    table: Path, query: str, connection: duckdb.DuckDBPyConnection | None = None
) -> list[tuple[Any, ...]]:
    """What DuckDB says to a query of the files, as docs/pipeline_journals.md shows it.

    To connect costs more than the query: what asks often does so with a connection of its own.
    """
    files = f"read_parquet('{table}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
    with nullcontext(connection) if connection else duckdb.connect() as asking:
        return asking.sql(query.replace("TABLE", files)).fetchall()


def files(table: Path) -> list[Path]:
    return list(table.glob("topic=*/**/*.parquet"))


def order(number: int) -> bytes:
    return json.dumps({"id": number, "symbol": ("IBM", "MSFT")[number % 2], "qty": 5}).encode()


@pytest.mark.usefixtures("spark")
def test_fields_and_deletions_of_journals_become_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typed columns, divided by a field, in a few files however many runs there were."""
    source, table = tmp_path / "journal", tmp_path / "table"
    export = ["export", str(source), str(table), "--topic", "orders", "--partition-by", "symbol"]
    export += ["--follow", "--until-caught-up", "--max-rows", "10"]
    with journal(source) as writer:
        for number in range(12 * MERGE_FACTOR):
            writer.publish("orders", order(number), key=number % 20 + 1)
        writer.publish("orders", b'["3","4","77"]', kind=JournalEntryKind.SOW_DELETE)
        writer.clock.now += 86_400_000_000
        writer.publish("orders", order(500), key=501)
    assert main([*export, "--columns", COLUMNS]) == 0
    capsys.readouterr()
    count = 12 * MERGE_FACTOR + 1
    numbers = [*range(count - 1), 500]
    assert asked(table, "SELECT id, symbol FROM TABLE WHERE _command = 'publish' ORDER BY id") == [
        (number, ("IBM", "MSFT")[number % 2]) for number in numbers
    ]
    deletions = "SELECT _sow_key, id, topic FROM TABLE WHERE _command = 'sow_delete' ORDER BY 1"
    assert asked(table, deletions) == [(key, None, "orders") for key in ("3", "4", "77")]
    latest = (
        "SELECT count(*) FROM (SELECT * FROM TABLE QUALIFY row_number()"
        " OVER (PARTITION BY _sow_key ORDER BY _txid DESC) = 1) WHERE _command <> 'sow_delete'"
    )
    assert asked(table, latest) == [(20 - 2 + 1,)]
    assert asked(table, "SELECT count(DISTINCT date), max(_timestamp) > min(_timestamp) FROM TABLE")
    assert len(files(table)) < 2 * MERGE_FACTOR, (
        "one each for the two symbols and ten entries before"
    )

    with journal(source) as writer:
        writer.publish("orders", order(501), client=8, key=502)
    assert main([*export, "--columns", f"{COLUMNS}, qty INT"]) == 0, "a column that is new"
    assert asked(table, "SELECT id, qty FROM TABLE WHERE qty IS NOT NULL") == [(501, 5)]
    assert main([*export, "--columns", "id STRING, symbol STRING"]) == 1
    assert "has the column id bigint, which is missing in --columns" in capsys.readouterr().err
    assert main(export[:-4]) == 1
    assert "--partition-by=symbol: requires --columns" in capsys.readouterr().err
    assert main(["history", str(table), "--topic", "orders"]) == 1
    assert "has fields of messages" in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "follow", spread([["--follow", "--until-caught-up"], []], 1), ids=["follow", "once"]
)
def test_a_first_run_that_fails_is_in_nobodys_way(
    tmp_path: Path, server: RunningServer, capsys: pytest.CaptureFixture[str], follow: list[str]
) -> None:
    """It leaves nothing half-made behind, and the next one begins."""
    topic, table = f"both-failed-{len(follow)}", tmp_path / "table"
    publish(server, topic, [{"id": number} for number in range(5)])
    export = ["export", uri(server), str(table), "--topic", topic, *follow]
    assert main([*export, "--option", "options=bogus"]) == 1
    told = capsys.readouterr().err
    assert "amps-pipeline: option options='bogus" in told
    assert "option bogus cannot be used here" in told
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert files(table) == []
    assert main(export) == 0
    assert asked(table, "SELECT count(*) FROM TABLE") == [(5,)]


@pytest.mark.usefixtures("spark")
def test_journals_become_a_delta_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Divided by a field, in few files however many runs there were; with columns that are new."""
    source, table = tmp_path / "journal", tmp_path / "table"
    export = ["export", str(source), str(table), "--topic", "orders", "--format", "delta"]
    export += ["--partition-by", "symbol", "--follow", "--until-caught-up"]
    with journal(source) as writer:
        for number in range(10 * MERGE_FACTOR):
            writer.publish("orders", order(number), key=number % 20 + 1)
        writer.publish("orders", b'["3","4"]', kind=JournalEntryKind.SOW_DELETE)
    assert main([*export, "--columns", COLUMNS, "--max-rows", "10"]) == 0
    numbers = [*range(10 * MERGE_FACTOR)]
    assert [one for one in rows(table, "id") if one is not None] == numbers
    assert rows(table, "_command").count("sow_delete") == 2
    assert len(current(table)) < 2 * MERGE_FACTOR, "in two folders"

    with journal(source) as writer:
        writer.publish("orders", b'{"id":1000,"symbol":"IBM","qty":5}', client=8, key=50)
    assert main([*export, "--columns", f"{COLUMNS}, qty INT"]) == 0, "a column that is new"
    assert 1000 in rows(table, "id")
    capsys.readouterr()
    assert main([*export[:5], "--columns", COLUMNS, "--partition-by", "symbol"]) == 1
    assert "contains delta; use --format=delta, as before" in capsys.readouterr().err
    assert main(["history", str(table), "--topic", "orders"]) == 1
    assert "is a table of the format delta" in capsys.readouterr().err
    shutil.rmtree(table / "_amps_pipeline")
    assert main([*export, "--columns", COLUMNS]) == 1
    assert "has no stored state" in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
def test_what_is_published_to_a_server_becomes_a_table(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, also when a run ends between what it has written and Spark's note of that."""
    table = tmp_path / "table"
    export = ["export", uri(server), str(table), "--topic", "log-tabled", "--columns", COLUMNS]
    export += ["--follow", "--until-caught-up", "--max-rows", "40"]
    publish(server, "log-tabled", [order(number) for number in range(100)])
    assert main(export) == 0
    everything = "SELECT id FROM TABLE ORDER BY id"
    assert asked(table, everything) == [(number,) for number in range(100)]
    commits = table / "_amps_pipeline" / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()
    publish(server, "log-tabled", [order(100)])
    assert main(export) == 0
    assert asked(table, everything) == [(number,) for number in range(101)]
    assert main(export[:-4]) == 1
    assert "contains published messages" in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--until-caught-up"], "--until-caught-up: requires --follow"),
        (["--partition-by", "id"], "--partition-by=id: requires --columns"),
        (["--columns", "id BIGINT", "--partition-by", "day"], "expected one of --columns: id"),
        (["--columns", "id WHAT"], "expected names and types"),
        (["--columns", "id INT, date DATE"], "date is the name of the partition folders"),
        (["--columns", "id INT, body STRING"], "omit it to export whole messages"),
        (["--option", "mode"], "--option=mode: expected NAME=VALUE"),
        (["--option", "mdoe=permissive"], "option mdoe: unknown; did you mean"),
        (["--follow", "--every", "0"], "--every=0: expected seconds"),
        (["--follow", "--max-rows", "0"], "--max-rows=0: expected a number"),
    ],
)
def test_what_cannot_be_is_said(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(tmp_path / "journal") as writer:
        writer.publish("orders", order(1))
    assert main(["export", str(tmp_path / "journal"), str(tmp_path / "table"), *more]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


@contextmanager
def following(source: Path, table: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job that keeps a table in step, with a Spark of its own."""
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipeline.cli", "--master", "local[1]"),
            *("--conf", f"spark.driver.extraJavaOptions={quick_java()}"),
            *("export", str(source), str(table), "--columns", COLUMNS),
            *("--follow", "--every", "0.05", "--max-rows", "150"),
        ],
        start_new_session=True,
    )
    try:
        yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


class Reader:
    """Reads a table over and over, as others do while it changes.

    Attributes:
        reads: how often.
        wrong: what it has seen that cannot be.
    """

    def __init__(self, table: Path) -> None:
        self.reads = 0
        self.wrong: list[str] = []
        self._table = table
        self._seen = 0
        self._connection = duckdb.connect()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ends.wait(0.1):
            if not files(self._table):
                continue
            try:
                query = "SELECT count(*), count(DISTINCT id), max(id) FROM TABLE"
                ((count, different, largest),) = asked(self._table, query, self._connection)
            except duckdb.IOException:
                continue  # a folder has been put together meanwhile
            self.reads += 1
            if count != different or count != largest + 1 or count < self._seen:
                self.wrong.append(f"{count} rows, {different} of them different, up to {largest}")
            self._seen = count

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self._connection.close()


@ONLY_LONG
@pytest.mark.usefixtures("quick_python")
def test_a_table_is_right_whenever_its_job_is_killed(tmp_path: Path) -> None:
    """Killed again and again, while the log grows and somebody reads."""
    kills, more = 2, 2_000
    source, table = tmp_path / "journal", tmp_path / "table"
    rows, chance = 0, random.Random(5)

    def grow(writer: Writer, count: int) -> int:
        for number in range(rows, rows + count):
            writer.publish("orders", order(number))
        writer.journal.commit()
        return rows + count

    reader = Reader(table)
    try:
        with journal(source) as writer:
            for _ in range(kills):
                rows = grow(writer, more)
                with following(source, table) as job:
                    wait_for(table, rows - chance.randrange(200, 1_000), job)
                    time.sleep(chance.random() / 2)
            rows = grow(writer, 10)
            with following(source, table) as job:
                wait_for(table, rows, job)
                job.send_signal(signal.SIGINT)
                assert job.wait(WAIT_SECONDS) == 130
    finally:
        reader.stop()
    assert reader.wrong == []
    assert reader.reads > 5
    assert asked(table, "SELECT id FROM TABLE ORDER BY id") == [(one,) for one in range(rows)]
    assert len(files(table)) < 4 * MERGE_FACTOR


def wait_for(table: Path, count: int, job: subprocess.Popen[bytes]) -> None:
    """Wait until a table has so many rows."""
    deadline = time.monotonic() + WAIT_SECONDS
    with duckdb.connect() as connection:
        while time.monotonic() < deadline:
            assert job.poll() is None
            with contextlib.suppress(duckdb.IOException):
                [[found]] = asked(table, "SELECT count(*) FROM TABLE", connection)
                if found >= count:
                    return
            time.sleep(0.2)
    raise AssertionError(f"less than {count} rows")
