"""Scans: the rows of several tables as of one moment, in time slices."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from server.expressions.backends.columns import warm_up
from server.sql.query.tables import ScanRequest
from server.sql.tables import column_query, row_conversion, scan
from server.sql.tables.errors import (
    ColumnsWidenedError,
    InvalidFilterError,
    ScanCancelledError,
    ScanTooLargeError,
    TableGoneError,
)
from tests.engine.limits import matches
from tests.engine.support import Core, CorePeer
from tests.sql.tables.support import Tables, publish, request, types_of
from tests.storage.sow.support import topic_spec
from tests.support.long_form import spread
from tests.support.raw import frame

RECORDS = 300


@pytest.fixture(scope="module", autouse=True)
def arrow() -> None:
    """As a server does at its start."""
    warm_up()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few records in a block that a small topic has many."""
    for module in ("indexes.memo_index", "query.query", "snapshot", "record_table"):
        monkeypatch.setattr(f"server.storage.sow.{module}.MEMO_BLOCK_ROWS", 16)
    monkeypatch.setattr("server.storage.sow.query.query._READ_BATCH_SIZE", 10)
    monkeypatch.setattr("server.storage.sow.query.query._WARM_BLOCKS", 2)
    monkeypatch.setattr(column_query, "MEMO_BLOCK_ROWS", 16)
    monkeypatch.setattr(column_query, "_DENSE_ROWS", 8)
    monkeypatch.setattr(column_query, "_RECORD_BATCH_SIZE", 5)
    monkeypatch.setattr(scan, "_REDACTION_BATCH_SIZE", 3)
    monkeypatch.setattr(row_conversion, "_BODY_BATCH_SIZE", 4)


def message(source: random.Random, number: int) -> dict[str, Any]:
    """A message about a record."""
    return {
        "id": number,
        "n": source.choice([None, 1, 2, 3]),
        "s": source.choice(["a", "b", "", "ö"]),
        "c": {"x": source.random()},
        "l": source.choice([[], [1], [1, "a"]]),
        "f": source.random() < 0.5,
    }


def fill(core: Core, source: random.Random, *topics: str) -> CorePeer:
    """Publish records to topics."""
    publisher = core.log_on("publisher")
    for topic in topics:
        publisher.send_bytes(
            b"".join(
                frame({"c": "p", "t": topic}, json.dumps(message(source, number)).encode())
                for number in range(RECORDS)
            )
        )
    core.clock.advance(0)
    return publisher


def make_core(*topics: str) -> Core:
    core = Core()
    core.keep(*(topic_spec("/id", name=name) for name in topics))
    return core


def row_of(body: dict[str, Any]) -> tuple[Any, ...]:
    """The row of a message."""
    return (
        body["id"],
        body["n"],
        body["s"] or None,
        body["c"]["x"],
        json.dumps(body["l"], separators=(",", ":")) if body["l"] else None,
        body["f"],
    )


COLUMNS = ("id", "n", "s", "c.x", "l", "f")
FILTERS = [
    None,
    "/n = 2",
    "/n > 1 AND /s = 'a'",
    "/id = '7'",
    "/id IN (7, 8)",
    "/id < 20",
    "/s LIKE '^a'",
    "/f",
    "/none IS NULL",
    "/id < 0",
]


@pytest.mark.parametrize("filter_", spread(FILTERS, 3))
@pytest.mark.parametrize("metadata", [False, True])
def test_a_scan_of_two_tables_is_of_one_moment_while_records_change(
    filter_: str | None, metadata: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[list[list[bytes]]] = []
    start_scan = scan.TopicScan.start

    def start(self: scan.TopicScan, *arguments: Any) -> None:
        stores = [plan.source.table.store for plan in self._plans]
        moments.append(
            [store.read_bodies([row for _, row in store.identities()]) for store in stores]
        )
        start_scan(self, *arguments)

    monkeypatch.setattr(scan.TopicScan, "start", start)
    source = random.Random(str(filter_))
    core = make_core("orders", "trades")
    publisher = fill(core, source, "orders", "trades")
    tables = Tables(core)
    known = tables.all()
    core.clock.work_per_look = 0.0003  # each step ends after one slice
    changes = 0

    def disturb() -> None:
        nonlocal changes
        if not tables.is_scanning:
            return
        changes += 1
        topic, number = source.choice(["orders", "trades"]), source.randrange(RECORDS + 20)
        if source.random() < 0.3:
            publisher.send({"c": "sow_delete", "t": topic, "filter": f"/id = {number}"})
        else:
            publish(publisher, topic, message(source, number))

    columns = [*COLUMNS, "_key", "_body"] if metadata else COLUMNS
    for _ in range(2):  # with cold indexes, and with warm ones
        started = changes
        results = tables.scan(
            *(request(known[name], columns, filter=filter_) for name in ("orders", "trades")),
            between=disturb,
        )
        assert changes > started
        for result, bodies in zip(results, moments[-1], strict=True):
            rows = sorted(
                row_of(json.loads(body))
                for body in bodies
                if filter_ is None or matches(filter_, body)
            )
            assert sorted(zip(*(result[name].to_pylist() for name in COLUMNS), strict=True)) == rows
            if metadata:
                texts = result["_body"].to_pylist()
                assert [row_of(json.loads(text)) for text in texts] == list(
                    zip(*(result[name].to_pylist() for name in COLUMNS), strict=True)
                )


@pytest.mark.parametrize("filter_", spread(FILTERS, 3))
@pytest.mark.parametrize("columns", [COLUMNS, ("n", "s"), ()])
def test_scans_in_a_row_return_the_records_of_their_moments(
    filter_: str | None, columns: tuple[str, ...]
) -> None:
    """Segments of records that have not changed are used again."""
    source = random.Random(str(filter_))
    core = make_core("orders")
    publisher = fill(core, source, "orders")
    tables = Tables(core)
    table = tables.all()["orders"]
    (topic,) = core.engine.sow_registry.sources
    store = topic.table.store
    for turn in range(12):
        for _ in range(source.choice([0, 1, 30])):
            number = source.randrange(RECORDS + 20)
            if source.random() < 0.3:
                publisher.send({"c": "sow_delete", "t": "orders", "filter": f"/id = {number}"})
            else:
                publish(publisher, "orders", message(source, number))
        bodies = store.read_bodies([row for _, row in store.identities()])
        selected = [body for body in bodies if filter_ is None or matches(filter_, body)]
        (result,) = tables.scan(request(table, columns, filter=filter_))
        assert result.num_rows == len(selected)
        places = [COLUMNS.index(name) for name in columns]
        expected = [tuple(row_of(json.loads(body))[n] for n in places) for body in selected]
        found = list(zip(*(result[name].to_pylist() for name in columns), strict=True))
        assert sorted(found, key=str) == sorted(expected, key=str) or not columns, turn


@pytest.mark.parametrize("filter_", ["/v > 3", "/v = 3", "/v IN (3, 4)", "/v > 3 AND /id < 20"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_condition_on_numbers_widens_a_column_with_another_value(
    filter_: str, is_warm: bool
) -> None:
    core = make_core("orders")
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": number, "v": number} for number in range(50)))
    tables = Tables(core)
    old = tables.all()["orders"]
    if is_warm:
        tables.scan(request(old, ("id", "v")))
    assert tables.scan(request(old, ("id",), filter="/v > 47"))[0]["id"].to_pylist() == [48, 49]
    publish(publisher, "orders", {"id": 40, "v": "x"})
    with pytest.raises(ColumnsWidenedError):
        tables.scan(request(old, ("id",), filter=filter_))
    assert types_of(tables.all()["orders"])["v"] == "text"


@pytest.mark.parametrize("limit", [0, 1, 9, 40, 1000])
@pytest.mark.parametrize("filter_", [None, "/id < 100", "/s LIKE '.'"])
@pytest.mark.parametrize("columns", [(), ("id",), ("id", "_key"), ("_key",)])
def test_a_limit_ends_a_scan(limit: int, filter_: str | None, columns: tuple[str, ...]) -> None:
    core = make_core("orders")
    fill(core, random.Random(1), "orders")
    tables = Tables(core)
    table = tables.all()["orders"]
    (everything,) = tables.scan(request(table, columns, filter=filter_))
    (some,) = tables.scan(request(table, columns, filter=filter_, limit=limit))
    assert some.num_rows == min(limit, everything.num_rows)
    assert everything.num_rows > (RECORDS // 4 if filter_ else RECORDS - 1)


def test_snapshots_are_closed_after_scans() -> None:
    core = make_core("orders")
    fill(core, random.Random(1), "orders")
    tables = Tables(core)
    table = tables.all()["orders"]
    for terms in ({}, {"limit": 3}, {"filter": "/id < 3"}, {"filter": "/id = '3'"}):
        tables.scan(request(table, ("id",), **terms))
    with pytest.raises(InvalidFilterError):
        tables.scan(request(table, ("id",)), request(table, ("id",), filter="/id <"))
    (source,) = core.engine.sow_registry.sources
    assert source.table._snapshots == []


@pytest.fixture
def slow() -> Core:
    """An engine whose scans take many rounds."""
    core = make_core("orders")
    fill(core, random.Random(1), "orders")
    core.clock.work_per_look = 0.0003
    return core


def test_a_scan_is_cancelled(slow: Core) -> None:
    tables = Tables(slow)
    table = tables.all()["orders"]
    with pytest.raises(ScanCancelledError):
        tables.scan(request(table, ("id", "_body")), between=tables.source.cancel)
    slow.clock.turn()
    (source,) = slow.engine.sow_registry.sources
    assert source.table._snapshots == []
    with pytest.raises(ScanCancelledError):  # until the next query begins
        tables.scan(request(table, ("id", "_body")))
    tables.source.allow()
    assert tables.scan(request(table, ("id",)))[0].num_rows == RECORDS


@pytest.mark.parametrize("columns", [("id",), ("_key",), ("_body",)])
def test_a_scan_that_takes_too_much_memory_fails(slow: Core, columns: tuple[str, ...]) -> None:
    tables = Tables(slow, max_bytes=2000)
    table = tables.all()["orders"]
    with pytest.raises(ScanTooLargeError, match="more than 0 MB"):
        tables.scan(request(table, columns))
    assert tables.scan(request(table, columns, filter="/id < 3"))[0].num_rows == 3


def test_a_value_of_another_type_widens_the_column_and_the_query_is_planned_again() -> None:
    core = make_core("orders")
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": number, "v": number} for number in range(50)))
    tables = Tables(core)
    old = tables.all()["orders"]
    publish(publisher, "orders", {"id": 20, "v": 0.5})
    with pytest.raises(ColumnsWidenedError):
        tables.scan(request(old, ("v",)))
    (rows,) = tables.scan(request(tables.all()["orders"], ("v",)))
    assert rows["v"].type == "double"
    assert rows["v"].to_pylist()[:2] == [0.0, 1.0]
    publish(publisher, "orders", {"id": 20, "v": "x"})
    with pytest.raises(ColumnsWidenedError):
        tables.scan(request(tables.all()["orders"], ("v",)))
    assert tables.rows("orders", "v")[0] == ("0",)


def test_very_many_fields_get_no_memo_indexes() -> None:
    core = make_core("orders")
    publisher = core.log_on("publisher")
    names = [f"f{number}" for number in range(100)]
    publish(publisher, "orders", *({"id": id_} | dict.fromkeys(names, id_) for id_ in range(40)))
    tables = Tables(core)
    table = tables.all()["orders"]
    (rows,) = tables.scan(request(table, names))
    assert rows["f99"].to_pylist() == list(range(40))
    (source,) = core.engine.sow_registry.sources
    assert not source.table.memo_indexes.fields


def test_columns_and_tables_that_do_not_exist() -> None:
    core = make_core("orders")
    fill(core, random.Random(1), "orders")
    tables = Tables(core)
    table = tables.all()["orders"]
    with pytest.raises(TableGoneError, match='column "none"'):
        tables.scan(request(table, ("none",)))
    with pytest.raises(TableGoneError, match=r'relation "amps\.gone"'):
        tables.scan(ScanRequest(table._replace(name="gone"), ()))


def test_expiry_and_correlation_ids_are_columns() -> None:
    core = Core()
    core.keep(topic_spec("/id", expiration_enabled=True))
    publisher = core.log_on("publisher")
    publisher.send({"c": "publish", "t": "orders", "e": 60, "x": "ref"}, b'{"id":1}')
    publisher.send({"c": "publish", "t": "orders"}, b'{"id":2}')
    rows = Tables(core).rows("orders", "id", "_expires", "_timestamp", "_correlation_id")
    (_, expires, timestamp, reference), (_, never, _, nothing) = rows
    assert (expires - timestamp).total_seconds() == 60
    assert (reference, never, nothing) == ("ref", None, None)
