"""The dashboard that queries by SQL: each of its queries, as Grafana sends it, has rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sql.support import ORDERS, SqlServer, sql_server
from tests.sql.test_statistics import admin
from tests.support.waiting import comes_true

DASHBOARD = Path(__file__).parents[2] / "sample_configs" / "monitoring" / "dashboard-sql.json"


def panels() -> list[Any]:
    panels: list[Any] = json.loads(DASHBOARD.read_text())["panels"]
    return panels


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), elements=admin()) as server:
        server.publish("orders", *ORDERS)
        yield server


def as_sent(text: str) -> str:
    """Replace the macros of Grafana's PostgreSQL data source, as it does."""
    now = datetime.now(UTC)
    begin, end = (
        f"'{moment:%Y-%m-%dT%H:%M:%SZ}'"
        for moment in (now - timedelta(hours=1), now + timedelta(minutes=1))
    )
    text = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN {begin} AND {end}", text)
    text = re.sub(
        r"\$__timeGroup\((\w+), \$__interval\)", r"floor(extract(epoch from \1)/10)*10", text
    )
    assert "$" not in text
    return text


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_query_of_the_dashboard_has_rows(sql: SqlServer, panel: Any) -> None:
    (target,) = panel["targets"]
    with sql.connect() as connection:

        def found() -> psycopg.Cursor[Any]:
            return connection.execute(as_sent(target["rawSql"]).encode())

        # the first sample is there a second after the start
        assert comes_true(lambda: bool(found().fetchall()))
        description = found().description
    assert description is not None
    names = [column.name for column in description]
    assert (names[0] == "time") is (target["format"] == "time_series")


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
