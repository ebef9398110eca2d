"""History tables of an engine: entries within permits, and what holds the log."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from server.sql.query.tables import LogBound, ScanRequest, Table, TableKind
from server.sql.tables import history_stream, history_table
from server.sql.tables.errors import (
    ColumnsWidenedError,
    InvalidFilterError,
    ScanCancelledError,
    TableGoneError,
)
from server.sql.tables.history_stream import HistoryStream
from tests.engine.limits import cut, matches
from tests.engine.support import Core
from tests.engine.test_limited_reads import BODIES, FILTERS, PERMITS, SELECTS
from tests.sql.tables.support import Tables, publish, request, types_of
from tests.sql.tables.test_catalogue import _flattened, permissions, rule
from tests.storage.sow.support import topic_spec
from tests.support.chances import examples


def make_core(directory: Path) -> Core:
    core = Core()
    core.record(directory, "^(orders|events)$")
    core.keep(topic_spec("/id"))
    return core


def history(tables: Tables, name: str = "orders") -> Table:
    for table in tables.call(tables.source.tables):
        if table.kind is TableKind.HISTORY and table.name == name:
            return table
    raise AssertionError(name)


def begin(core: Core, tables: Tables, asked: ScanRequest) -> HistoryStream:
    (result,) = tables.call(lambda: tables.source.scan([asked]), core.commit)
    assert isinstance(result.data, HistoryStream)
    return result.data


def read(stream: HistoryStream) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(stream).to_pylist()
    return rows


def rows_of(core: Core, tables: Tables, *columns: str, **terms: Any) -> list[tuple[Any, ...]]:
    stream = begin(core, tables, request(history(tables), columns, **terms))
    rows = [tuple(row.values()) for row in read(stream)]
    tables.call(stream.close)
    return rows


def test_the_log_is_held_until_the_rows_are_closed(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    publish(core.log_on("publisher"), "orders", *({"id": id_} for id_ in range(5)))
    core.commit()
    tables = Tables(core)
    asked = request(history(tables), ("id",))
    stream = begin(core, tables, asked)
    ((txid, reader),) = core.transaction_log.holders()
    assert (txid, reader) == (core.transaction_log.journal.first_txid, "SQL query of tester")
    assert [row["id"] for row in read(stream)] == list(range(5))
    assert [row["id"] for row in read(stream)] == list(range(5))
    assert (stream.num_rows, stream.records_scanned) == (10, 10)
    tables.call(stream.close)
    assert core.transaction_log.holders() == []
    with pytest.raises(pa.ArrowException):
        read(stream)
    assert isinstance(stream.error, ScanCancelledError)
    for wrong in (
        asked._replace(columns=("none",)),
        asked._replace(filter="/id ="),
        asked._replace(table=asked.table._replace(name="none")),
    ):
        with pytest.raises((TableGoneError, InvalidFilterError)):
            tables.call(
                lambda: tables.source.scan([asked, wrong]),  # noqa: B023 - called at once
                core.commit,
            )
        assert core.transaction_log.holders() == []
    bound = LogBound("bookmark", ">", "1|1|")
    with pytest.raises(Exception, match="bookmark not found"):
        begin(core, tables, asked._replace(bounds=(bound,)))
    assert core.transaction_log.holders() == []


def test_a_part_of_the_log_holds_no_more(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    publish(core.log_on("publisher"), "orders", *({"id": id_} for id_ in range(5)))
    core.commit()
    tables = Tables(core)
    first = core.transaction_log.journal.first_txid
    bounds = (LogBound("txid", ">", first + 1), LogBound("txid", "<=", first + 3))
    stream = begin(core, tables, request(history(tables), ("id", "_txid"), bounds=bounds))
    assert core.transaction_log.holders()[0][0] == first + 2
    rows = read(stream)
    assert [row["_txid"] for row in rows] == [first + 2, first + 3]
    assert rows[1]["id"] == rows[0]["id"] + 1
    tables.call(stream.close)


def test_messages_that_are_not_stored_yet_are_waited_for(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    publisher = core.log_on("publisher")
    publish(publisher, "orders", {"id": 1})
    core.commit()
    tables = Tables(core)
    table = history(tables)
    publish(publisher, "orders", {"id": 2})
    rounds = 0

    def later() -> None:
        nonlocal rounds
        rounds += 1
        publish(publisher, "orders", {"id": 2 + rounds})
        if rounds > 3:
            core.commit()

    (result,) = tables.call(lambda: tables.source.scan([request(table, ("id",))]), later)
    assert isinstance(result.data, HistoryStream)
    found = [row["id"] for row in read(result.data)]
    assert found == list(range(1, len(found) + 1))
    assert 2 <= len(found) < 2 + rounds


def test_columns_are_those_of_records_and_of_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_table, "_SAMPLE_ENTRIES", 4)
    monkeypatch.setattr(history_table, "_TAIL_ENTRIES", 8)
    core = make_core(tmp_path)
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": 1, f"f{n}": n} for n in range(60)))
    publish(publisher, "orders", {"id": 2, "last": True})
    core.commit()
    tables = Tables(core)
    found = types_of(history(tables))
    assert {"id", "last", "f0", "f53"} <= found.keys()
    assert (found["id"], found["last"]) == ("bigint", "boolean")
    assert len(found) < 40
    publish(publisher, "orders", {"id": "x"}, {"id": 3})
    core.commit()
    stream = begin(core, tables, request(history(tables), ("id",)))
    with pytest.raises(pa.ArrowException):
        read(stream)
    assert isinstance(stream.error, ColumnsWidenedError)
    tables.call(stream.close)
    assert types_of(history(tables))["id"] == "text"
    assert rows_of(core, tables, "id")[-2:] == [("x",), ("3",)]


def test_limits_end_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_stream, "_BATCH_ENTRIES", 10)
    core = make_core(tmp_path)
    publish(core.log_on("publisher"), "orders", *({"id": id_} for id_ in range(100)))
    core.commit()
    tables = Tables(core)
    stream = begin(core, tables, request(history(tables), (), limit=15))
    assert 15 <= pa.table(stream).num_rows <= 25
    assert stream.records_scanned <= 25
    tables.call(stream.close)
    stream = begin(core, tables, request(history(tables), ("id",), filter="/id = 95"))
    assert read(stream) == [{"id": 95}]
    tables.source.cancel()
    with pytest.raises(pa.ArrowException):
        read(stream)
    tables.source.allow()
    tables.call(stream.close)


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(BODIES, PERMITS, SELECTS, FILTERS)
def test_rows_are_what_the_permit_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    bodies: list[bytes],
    permit: str | None,
    select: str | None,
    filter_: str,
) -> None:
    core = make_core(tmp_path_factory.mktemp("log"))
    publisher = core.log_on("publisher")
    for body in bodies:
        publisher.send({"c": "publish", "t": "orders"}, body)
    publisher.send({"c": "sow_delete", "t": "orders", "filter": "/id >= 0"})
    core.commit()
    tables = Tables(core, permissions(rule("orders", permit, select)))
    visible = [cut(select, body) for body in bodies if permit is None or matches(permit, body)]
    keys = {json.loads(body)["id"] for body in bodies}
    deletions = 0 if permit is not None else len(keys)
    found = rows_of(core, tables, "_command", "_body")
    assert [body for command, body in found if command == "publish"] == [
        body.decode() for body in visible
    ]
    assert len(found) == len(visible) + deletions
    filtered = rows_of(core, tables, "_body", "_command", filter=filter_)
    assert [body for body, command in filtered if command == "publish"] == [
        body.decode() for body in visible if matches(filter_, body)
    ]
    names = {name for body in visible for name in _flattened(json.loads(body))}
    assert set(types_of(history(tables))) == names


def test_users_of_other_topics_see_no_table(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    publisher = core.log_on("publisher")
    publish(publisher, "orders", {"id": 1})
    publish(publisher, "events", {"what": random.random()})
    core.commit()
    shown = Tables(core, permissions(rule("events")))
    names = {(table.schema, table.name) for table in shown.call(shown.source.tables)}
    assert names == {("history", "events")}
    assert types_of(history(shown, "events")) == {"what": "double precision"}
