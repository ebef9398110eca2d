"""Random queries by Spark itself: whatever has the messages gives the same rows, and those meant.

Of each message type random messages are records of a topic, entries of the journals, and rows of an
export to Parquet. Conditions are applied by Spark, or by the source first (`pipeline.read`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import reduce
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import pipeline
from pipeline.cli import main
from tests.pipeline.random_queries import Expr, Query, queries, rows_of
from tests.pipeline.test_one_meaning import (
    BODIES,
    ROOTS,
    SCHEMAS,
    TOPICS,
    TYPES,
    meant,
    messages,
    values,
)
from tests.pipeline.topics import publish, uri
from tests.support.chances import examples
from tests.support.long_form import spread
from tests.support.server import RunningServer, running_server

Fields = dict[str, Any]

KINDS: Final = {
    "id": "long",
    "l": "long",
    "d": "double",
    "s": "text",
    "m": "moment",
    "b": "truth",
    "n": "decimal",
    "x": "nested",
    "a": "nested",
    "g": "nested",
}
UNFIT: Final[Mapping[str, Sequence[Any]]] = {
    "json": ["x", 2**70, 5.5, [1], {"i": 1}],
    "bson": ["x", 1e30, {"i": 1}],
    "msgpack": ["x", 2**63, 1e30],
    "nvfix": ["x", 2**70, "1.5"],
    "xml": ["x", 2**70, "1.5"],
    "bflat": ["x", 1e30],
}
"""Values that are no BIGINT."""

TOPIC_NUMBERS: Final = count()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random-queries")


@pytest.fixture(scope="module")
def typed_server(directory: Path) -> Iterator[RunningServer]:
    with running_server(directory, elements=TOPICS) as server:
        yield server


def columns_of(kind: str) -> list[Expr]:
    """The columns of a message type, and what can be taken out of them."""
    root = f"{ROOTS[kind].strip('/')}." if kind in ROOTS else ""
    names = SCHEMAS[kind].names
    found = [Expr(f"{root}{name}", KINDS[name], itemgetter(name)) for name in names]
    if "x" in names:
        found += [
            Expr("x.i", "long", lambda row: row["x"] and row["x"]["i"]),
            Expr("x.s", "text", lambda row: row["x"] and row["x"]["s"]),
            Expr("get(a, 0)", "long", lambda row: row["a"][0] if row["a"] else None),
            Expr("size(a)", "long", lambda row: None if row["a"] is None else len(row["a"])),
        ]
    return found


def literals_of(kind: str) -> dict[str, st.SearchStrategy[Any]]:
    """Constants like the values of the columns."""
    return {
        KINDS[name]: value
        for name, value in values(kind).items()
        if KINDS[name] not in ("nested", "truth")
    }


@st.composite
def published(draw: st.DrawFn, kind: str) -> tuple[str, list[Fields], list[Fields]]:
    """Messages, how those that do not fit are read (`mode`), and the rows that are meant."""
    mode = draw(st.sampled_from(["failfast", "permissive", "drop"]))
    rows = draw(messages(kind, most=40))
    unfit = draw(st.sets(st.sampled_from(range(len(rows))))) if mode != "failfast" else set()
    for number in unfit:
        rows[number]["l"] = draw(st.sampled_from(UNFIT[kind]))
    schema = SCHEMAS[kind]
    empty: Fields = dict.fromkeys(schema.names)
    wanted = [
        empty if number in unfit else meant(row, schema)
        for number, row in enumerate(rows)
        if mode != "drop" or number not in unfit
    ]
    return mode, rows, wanted


class Sources:
    """What has the messages of a topic.

    Args:
        spark: the session.
        server: the server.
        directory: that of its journals, and of exports.
        kind: the message type.
        topic: the topic.
        mode: how messages that do not fit are read.
    """

    def __init__(
        self,
        spark: SparkSession,
        server: RunningServer,
        directory: Path,
        kind: str,
        topic: str,
        mode: str,
    ) -> None:
        self._spark = spark
        inner = SCHEMAS[kind]
        root = ROOTS.get(kind, "").strip("/")
        self._schema = StructType().add(root, inner) if root else inner
        self._server = {"server": uri(server, kind), "topic": topic, "mode": mode}
        journals = directory / "journal"
        self._journals = {"path": str(journals), "topic": topic, "mode": mode}
        export = ["export", str(journals), str(directory / topic), "--topic", topic]
        ddl = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in self._schema)
        assert main([*export, "--columns", ddl, "--option", f"mode={mode}"]) == 0
        schema = self._schema
        self.tables = {
            "records": spark.read.schema(schema).format("amps").load(**self._server).cache(),
            "journals": spark.read.schema(schema)
            .format("amps-journal")
            .load(**self._journals)
            .cache(),
            "export": spark.read.schema(schema).parquet(str(directory / topic)),
        }

    def close(self) -> None:
        """Forget what has been read: without push-down that is the same for all queries."""
        for table in self.tables.values():
            table.unpersist()

    def pushed(self, where: str) -> dict[str, DataFrame]:
        """What is there of a condition that sources apply as far as they can."""
        return {
            "records, pushed": pipeline.read(
                self._spark, where=where, columns=self._schema, **self._server
            ),
            "journals, pushed": pipeline.read(
                self._spark, where=where, columns=self._schema, **self._journals
            ),
        }

    def check(self, query: Query, rows: Sequence[Fields], root: str) -> None:
        """Check that all have the rows that a query means; they are asked in one job."""
        tie = f"{root}id"
        frames = [
            self._spark.sql(query.sql("{table}", tie), table=table)
            for table in self.tables.values()
        ]
        pushed = self.pushed(query.where.sql)
        frames += [
            self._spark.sql(query.sql("{table}", tie, "true"), table=table)
            for table in pushed.values()
        ]
        names = [*self.tables, *pushed]
        numbered = [
            frame.selectExpr(f"{place} AS source", "*") for place, frame in enumerate(frames)
        ]
        found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        for place, *row in rows_of(reduce(DataFrame.unionAll, numbered)):
            found[names[place]].append(tuple(row))
        for name, some in found.items():
            try:
                query.check(some, rows)
            except (AssertionError, ValueError) as difference:
                raise AssertionError(f"{name}: {query.sql('t', tie)}") from difference


@pytest.mark.long
@pytest.mark.parametrize("kind", spread(TYPES, 1))
def test_all_sources_have_the_rows_of_a_query(
    spark: SparkSession, typed_server: RunningServer, directory: Path, kind: str
) -> None:
    """Conditions, expressions, orders, limits and groups, over values of every kind."""
    columns, literals = columns_of(kind), literals_of(kind)
    root = f"{ROOTS[kind].strip('/')}." if kind in ROOTS else ""
    many = examples(12, usual=3)

    @settings(max_examples=examples(20, usual=1), phases=[Phase.generate], deadline=None)
    @given(published(kind), st.lists(queries(columns, literals), min_size=many, max_size=many))
    def check(data: tuple[str, list[Fields], list[Fields]], some: list[Query]) -> None:
        mode, rows, wanted = data
        topic = f"one-{next(TOPIC_NUMBERS)}"
        publish(typed_server, topic, [BODIES[kind](row) for row in rows], kind)
        sources = Sources(spark, typed_server, directory, kind, topic, mode)
        with closing(sources):
            for query in some:
                sources.check(query, wanted, root)

    check()
