"""Filters on columns of numbers find records by keys and hash indexes, and find the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from server.expressions import parse, to_text
from server.message_types.paths import Path
from server.sql.query.tables import SqlType
from server.sql.tables.key_filter import with_key_texts
from server.storage.sow.record_table import RecordTable
from tests.engine.support import Core
from tests.sql.tables.support import Tables, publish
from tests.storage.sow.support import topic_spec

TYPES: dict[Path, SqlType] = {
    ("id",): SqlType.BIGINT,
    ("a",): SqlType.DOUBLE,
    ("b",): SqlType.BIGINT,
    ("t",): SqlType.TEXT,
    ("n",): SqlType.BIGINT,
}


def table_with_indexes() -> RecordTable:
    core = Core()
    core.keep(topic_spec("/id", name="orders"))
    source = core.engine.sow_registry.find("json", "orders")
    assert source is not None
    source.table.ensure_hash_index((("a",), ("b",)))
    return source.table


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("/id = 5", "/id = '5'"),
        ("/id IN (5, -3)", "/id IN ('5', '-3')"),
        ("/id = '5'", "/id = '5'"),
        ("/id = 5 AND /n > 1", "/id = '5' AND /n > 1"),
        ("/id > 5", "/id > 5"),
        ("/id = 5 OR /id = 6", "/id = 5 OR /id = 6"),
        ("/id = 5.0", "/id = 5.0"),
        ("/id = 9007199254740993", "/id = 9007199254740993"),
        ("/n = 5", "/n = 5"),
        ("/t = 5", "/t = 5"),
        ("/a = 1", "/a = 1"),
        ("/a = 1 AND /b = 2", "/a = '1' AND /b = '2'"),
        ("/a = 1 AND /b = 2 AND /n = 3", "/a = '1' AND /b = '2' AND /n = 3"),
        ("/b = 2 AND /a = '1'", "/b = '2' AND /a = '1'"),
    ],
)
def test_numbers_become_texts_where_a_key_or_an_index_is_found_by_them(
    condition: str, expected: str
) -> None:
    found = with_key_texts(parse(condition), table_with_indexes(), TYPES)
    assert to_text(found) == to_text(parse(expected))


def test_records_are_found_by_numbers_however_they_are_written() -> None:
    core = Core()
    core.keep(topic_spec("/id", name="orders"))
    tables = Tables(core)
    numbers: list[Any] = [0, 1, -2, 2.5, 7.0, 1e3, -0.0, 2**53, None]
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": number, "n": number} for number in numbers))
    for number in (0, 1, -2, 7, 1000, 3):
        by_key = tables.rows("orders", "n", filter_=f"/id = {number}")
        assert by_key == tables.rows("orders", "n", filter_=f"/n = {number}")
        assert len(by_key) == sum(one == number for one in numbers)
