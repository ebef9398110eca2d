"""Filters that are pushed down: the server keeps every row that Spark would keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StructField, StructType

import pipeline
from pipeline.fields import read_fields
from pipeline.pushdown import push_down
from server.expressions import parse, paths
from server.expressions.backends.compile_message import compile_filter
from server.message_types.registry import MessageTypes
from tests.pipeline.bodies import packed
from tests.pipeline.topics import publish, reading, rows_read, uri
from tests.support.chances import examples
from tests.support.server import RunningServer

SCHEMA = (
    StructType()
    .add("i", "integer")
    .add("l", "long")
    .add("d", "double")
    .add("f", "float")
    .add("s", "string")
    .add("b", "boolean")
    .add("x", StructType().add("i", "integer").add("s", "string"))
    .add("odd name", "integer")
    .add("n", DecimalType(10, 2))
    .add("t", "timestamp")
    .add("a", ArrayType(IntegerType()))
)
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "A",
    "1",
    "1.0",
    "01",
    "é",
    "z\U0001f600",
    "'",
    "\\",
    "a%",
    "\n",
]
INTEGERS = [0, 1, -1, 2, 100, 2**31 - 1, -(2**31)]
LARGE = [*INTEGERS, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
DOUBLES = [float("nan"), float("inf"), 0.0, -0.0, 1.0, 0.1, -1.5, 1e300, 9007199254740993.0, 5e-324]

VALUES: dict[str, list[Any]] = {
    "i": INTEGERS,
    "l": LARGE,
    "d": [*DOUBLES, 1, 2**53 + 1],
    "f": [0.1, 0.5, 16777217, 1],
    "s": TEXTS,
    "b": [True, False],
    "odd name": [1],
    "n": [1.1, 2],
    "t": ["2026-01-01T00:00:00"],
    "a": [[], [1], [1, 2]],
}


def rows() -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with any of the fields; some NULL, some missing."""
    fields = {name: st.sampled_from([*values, None]) for name, values in VALUES.items()}
    inner = {"i": st.sampled_from([*INTEGERS, None]), "s": st.sampled_from([*TEXTS, None])}
    nested = st.none() | st.fixed_dictionaries({}, optional=inner)
    return st.fixed_dictionaries({}, optional={**fields, "x": nested})


def literals(path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Values as Spark passes them for a column."""
    match path[-1]:
        case "i":
            return st.sampled_from(INTEGERS)
        case "l":
            return st.sampled_from(LARGE)
        case "d" | "f":
            return st.sampled_from(DOUBLES)
        case "s":
            return st.sampled_from(TEXTS)
        case "b":
            return st.booleans()
        case _:
            return st.just(1)


def filters(path: tuple[str, ...]) -> st.SearchStrategy[Filter]:
    """Every filter that Spark may pass for a column."""
    value = literals(path)
    comparisons = [
        EqualTo,
        EqualNullSafe,
        GreaterThan,
        GreaterThanOrEqual,
        LessThan,
        LessThanOrEqual,
    ]
    plain: list[st.SearchStrategy[Filter]] = [
        *[st.builds(kind, st.just(path), value) for kind in comparisons],
        st.builds(
            In, st.just(path), st.lists(value | st.none(), min_size=1, max_size=3).map(tuple)
        ),
        st.just(IsNull(path)),
        st.just(IsNotNull(path)),
    ]
    if path[-1] == "s":
        affixes = [StringStartsWith, StringEndsWith, StringContains]
        plain += [st.builds(kind, st.just(path), value) for kind in affixes]
    one = st.one_of(plain)
    return one | one.map(Not)


PATHS = [("i",), ("l",), ("d",), ("f",), ("s",), ("b",), ("x", "i"), ("x", "s"), ("odd name",)]

_COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, literal: value == literal,
    GreaterThan: lambda value, literal: value > literal,
    GreaterThanOrEqual: lambda value, literal: value >= literal,
    LessThan: lambda value, literal: value < literal,
    LessThanOrEqual: lambda value, literal: value <= literal,
    StringStartsWith: lambda value, literal: value.startswith(literal),
    StringEndsWith: lambda value, literal: value.endswith(literal),
    StringContains: lambda value, literal: literal in value,
}


def in_spark(one: Any, row: dict[str, Any]) -> bool | None:
    """What Spark makes of a filter: true, false or NULL."""
    if isinstance(one, Not):
        inner = in_spark(one.child, row)
        return None if inner is None else not inner
    value: Any = row
    for name in one.attribute:
        value = None if value is None else value.get(name)
    if isinstance(value, str):
        value = value.encode()
    literal = getattr(one, "value", None)
    if isinstance(literal, str):
        literal = literal.encode()
    match one:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe():
            return bool(value == literal)
        case In():
            items = [item.encode() if isinstance(item, str) else item for item in one.value]
            if value is None:
                return None
            return True if value in items else None if None in items else False
    if value is None:
        return None
    if value != value and isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        return True  # NaN is greater than everything
    return _COMPARE[type(one)](value, literal)


@cache
def server_filter(text: str) -> Callable[[bytes], bool]:
    """A content filter as the server applies it."""
    expression = parse(text)
    predicate = compile_filter(expression)
    extract = MessageTypes().get("json").extractor(paths(expression))
    return lambda body: predicate(extract(body)) is True


@settings(max_examples=examples(300))
@given(st.sampled_from(PATHS).flatmap(filters), st.lists(rows(), min_size=1, max_size=5))
def test_no_row_is_lost_and_none_too_many_where_spark_does_not_look(
    one: Filter, bodies: list[dict[str, Any]]
) -> None:
    """Of all filters for all kinds of columns: values, NULL, missing and empty."""
    pushed = push_down([one], SCHEMA)
    reader = read_fields(SCHEMA, "json")
    for fields in bodies:
        body = json.dumps(fields).encode()
        columns = reader.columns(packed([body]))
        row = {name: values[0].as_py() for name, values in columns.items()}
        kept = pushed.filter is None or server_filter(pushed.filter)(body)
        wanted = in_spark(one, row) is True
        assert kept or not wanted, (pushed.filter, body)
        assert pushed.unsupported_filters or kept == wanted, (pushed.filter, body)


@pytest.mark.parametrize(
    ("filters_", "expected", "handed_back"),
    [
        ([EqualTo(("i",), 5), IsNotNull(("i",))], "/i = 5 AND /i IS NOT NULL", []),
        ([EqualTo(("s",), "it's")], r"/s = 'it\'s'", []),
        ([Not(EqualTo(("s",), "a"))], "NOT /s = 'a' OR /s IS NULL", [0]),
        ([In(("x", "i"), (1, None, 2))], "/x/i IN (1, 2)", []),
        ([EqualTo(("b",), True), GreaterThan(("d",), -1.5)], "/b = 1 AND NOT /d <= -1.5", []),
        ([EqualTo(("f",), 0.5), EqualTo(("odd name",), 1), IsNull(("a",))], None, [0, 1, 2]),
    ],
)
def test_what_the_server_is_told(
    filters_: list[Filter], expected: str | None, handed_back: list[int]
) -> None:
    """Some of what the property above is about, to be read."""
    pushed = push_down(filters_, SCHEMA)
    assert pushed.filter == expected
    assert pushed.unsupported_filters == [filters_[number] for number in handed_back]


PREDICATES = [
    "i = 1",
    "i <> 1",
    "i IN (0, 2, NULL)",
    "l > 9007199254740992",
    "d >= 0.1 AND d < 2",
    "f = 0.1F",
    "s = ''",
    "s <> 'a'",
    "s < 'b'",
    "s >= 'a' AND s LIKE '%b%'",
    "s LIKE 'a%'",
    "s IS NOT NULL",
    "s IS NULL OR i = 2",
    "NOT b",
    "x.s = 'a' AND x.i IS NULL",
    "n = 1.10",
    "d > 1e300",
    "NOT d < 1",
    "NOT d >= 1",
]


def test_spark_finds_the_same_with_and_without(spark: SparkSession, server: RunningServer) -> None:
    """All values of all columns, through the server and read from a file."""
    bodies: list[dict[str, Any]] = [{"id": 0}]
    for name, values in {**VALUES, "x": [{"s": "a"}, {"i": 1, "s": ""}, {"i": 1}, None]}.items():
        bodies += [{"id": len(bodies) + number, name: value} for number, value in enumerate(values)]
    bodies += [{"id": 1000 + i, "s": text, "i": i % 3} for i, text in enumerate(TEXTS)]
    publish(server, "sow-filters", bodies)
    schema = StructType([StructField("id", IntegerType()), *SCHEMA.fields])
    columns = ["id", "i", "l", "d", "f", "s", "b", "x", "n"]
    local = reading(spark, server, "sow-filters").schema(schema).load().select(*columns)

    def pushed(predicate: str) -> DataFrame:
        return pipeline.read(
            spark, server=uri(server), topic="sow-filters", columns=schema, where=predicate
        )

    def found(load: Callable[[str], DataFrame]) -> list[Row]:
        parts = [
            load(predicate).selectExpr(f"{number} AS number", "id")
            for number, predicate in enumerate(PREDICATES)
        ]
        return sorted(reduce(DataFrame.unionAll, parts).collect())

    local.cache()
    expected = found(local.where)
    assert found(pushed) == expected
    assert {number for number, _ in expected} == set(range(len(PREDICATES)))
    local.unpersist()


def test_a_frame_may_be_used_twice(spark: SparkSession, server: RunningServer) -> None:
    """Spark hands what was pushed down once to all later uses, so nothing is."""
    publish(server, "sow-twice", [{"id": i} for i in range(10)])
    frame = reading(spark, server, "sow-twice").schema("id INT").load()
    three, four = frame.filter("id = 3"), frame.filter("id = 4")
    assert sorted(three.union(four).union(frame).collect()) == [
        Row(id=i) for i in sorted([3, 4, *range(10)])
    ]
    with pytest.raises(PySparkException, match=r"use pipeline\.read"):
        reading(spark, server, "sow-twice", pushdown=True).schema("id INT").load().count()


def test_a_filter_stays_with_its_frame(spark: SparkSession, server: RunningServer) -> None:
    """In a view, in one query and in several; the server holds back what does not match."""
    publish(server, "sow-where", [{"id": i, "s": "ab"[i % 2]} for i in range(100)])

    def read(where: str) -> DataFrame:
        columns = "id INT, s STRING"
        return pipeline.read(
            spark, server=uri(server), topic="sow-where", columns=columns, where=where
        )

    low, high = read("id < 10"), read("id >= 10 AND s = 'a'")
    assert rows_read(low) == 10
    assert (low.where("s = 'a'").count(), low.count(), high.count()) == (5, 10, 45)
    assert low.where("id = 3").union(low.where("id = 4")).union(high).count() == 47
    low.createOrReplaceTempView("low")
    both = spark.sql("SELECT (SELECT count(*) FROM low WHERE id > 7), (SELECT count(*) FROM low)")
    assert both.first() == (2, 10)
    assert read("id = 1 OR id = 2").count() == 2
    assert read("1 = 0").count() == 0
    with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
        read("nosuch = 1")
