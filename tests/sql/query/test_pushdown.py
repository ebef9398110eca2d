"""Pushdown: the same rows with and without, for every case and for random conditions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.expressions import parse, to_text
from server.sql.query.errors import SqlError
from server.sql.query.query_engine import QueryEngine
from server.sql.query.tables import Column, SqlType, Table, TableKind
from tests.sql.query.memory_source import ORDERS, POSITIONS, MemorySource, Record, run
from tests.support.chances import examples

pytestmark = pytest.mark.process


THINGS: Final = Table(
    "amps",
    "things",
    TableKind.TOPIC,
    (
        Column("id", SqlType.BIGINT),
        Column("t", SqlType.TEXT, path="/t"),
        Column("n", SqlType.BIGINT, path="/n"),
        Column("d", SqlType.DOUBLE, path="/d"),
        Column("b", SqlType.BOOLEAN, path="/b"),
        Column("u", SqlType.TEXT),
    ),
)

_TEXTS: Final = ["a", "b", "ab", "ba", "", None, "5", "A", "ä", "a\nb", "it's", "a\\b", "xäx"]
_INTEGERS: Final = [5, -5, 0, None, 1, 6, 10, 2**53 + 1, 2**53, -(2**63), 2**63 - 1]
_DOUBLES: Final = [1.5, 1.0, None, 0.1, -2.5, 0.0, 1e300, 5e-324, 2.0**53, math.nan, math.inf]

RECORDS: Final[list[Record]] = [
    {
        "id": index,
        "t": _TEXTS[index % len(_TEXTS)],
        "n": _INTEGERS[index % len(_INTEGERS)],
        "d": _DOUBLES[index * 7 % 11],
        "b": [True, False, None][index % 3],
        "u": ["x", "a", "", None][index % 4],
    }
    for index in range(len(_TEXTS) * len(_INTEGERS))
]
"""Records with all combinations of texts and integers."""


class Case(NamedTuple):
    line: int
    condition: str
    filter: str | None
    is_exact: bool


def cases() -> Iterator[Case]:
    text = (Path(__file__).parents[1] / "cases.txt").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        found = re.fullmatch(r"(.*?) +([=~])> (.*)", line.strip())
        if found and not line.startswith("#"):
            filter_ = None if found[3] == "-" else found[3]
            yield Case(number, found[1], filter_, found[2] == "=")


def things() -> MemorySource:
    return MemorySource({THINGS: RECORDS})


def outcome(engine: QueryEngine, sql: str, *, pushdown: bool) -> Any:
    try:
        return sorted(run(engine, sql, source=things(), pushdown=pushdown)[1])
    except SqlError as error:
        return error.sqlstate


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case.line}: {case.condition}")
def test_a_condition_is_pushed_down_and_selects_the_same_rows(
    engine: QueryEngine, case: Case
) -> None:
    sql = f"select id from things where {case.condition}"
    source = things()
    rows: Any
    try:
        rows = sorted(run(engine, sql, source=source)[1])
    except SqlError as error:  # of a wrong type: the same error without pushdown
        rows = error.sqlstate
    assert rows == outcome(engine, sql, pushdown=False)
    (request,) = source.requests
    assert request.filter == (None if case.filter is None else to_text(parse(case.filter)))
    others = set(request.columns) - {"id"}
    if case.is_exact and case.filter is not None:
        assert not others, "DuckDB tests a condition that the scan has tested"


def test_the_case_file_is_as_large_as_it_is_meant_to_be() -> None:
    assert len(list(cases())) >= 120


# ---- random conditions

_LITERALS: Final = {
    "t": st.sampled_from(["'a'", "'b'", "''", "'5'", "'ab'", "'ä'", "NULL", "'it''s'"]),
    "n": st.sampled_from(
        ["5", "-5", "0", "5.0", "5.5", "'6'", "NULL", str(2**53), str(2**53 + 1), str(2**63 - 1)]
    ),
    "d": st.sampled_from(["1.5", "1", "0.1", "-2.5", "'1.5'", "NULL", "0.0", "0"]),
}
_SIGNS: Final = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def comparisons(column: str) -> st.SearchStrategy[str]:
    literal = _LITERALS[column]
    column = f"@{column}"
    literals = st.lists(literal, min_size=1, max_size=4).map(", ".join)
    negation = st.sampled_from(["", "not "])
    return st.one_of(
        st.tuples(_SIGNS, literal).map(lambda pair: f"{column} {pair[0]} {pair[1]}"),
        st.tuples(literal, _SIGNS).map(lambda pair: f"{pair[0]} {pair[1]} {column}"),
        st.tuples(negation, literals).map(lambda pair: f"{column} {pair[0]}in ({pair[1]})"),
        st.tuples(negation, literal, literal).map(
            lambda parts: f"{column} {parts[0]}between {parts[1]} and {parts[2]}"
        ),
        negation.map(lambda word: f"{column} is {word}null"),
    )


_PATTERNS: Final = st.tuples(
    st.sampled_from(["", "not "]),
    st.text(st.sampled_from("ab%_\\ä5"), max_size=4).filter(lambda text: not text.endswith("\\")),
).map(lambda pair: f"@t {pair[0]}like '{pair[1]}'")

_TESTS: Final = st.one_of(
    comparisons("t"),
    comparisons("n"),
    comparisons("d"),
    _PATTERNS,
    st.sampled_from(
        ["@b", "@b is true", "@b is not false", "@b = false", "@u = 'x'", "@n > @d", "true"]
    ),
)

CONDITIONS: Final = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} and {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} or {pair[1]})"),
        inner.map(lambda text: f"not ({text})"),
    ),
    max_leaves=6,
)
"""Conditions with an @ before each column, for the name of its table."""


@settings(
    max_examples=examples(200, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(condition=CONDITIONS)
def test_random_conditions_select_the_same_rows(engine: QueryEngine, condition: str) -> None:
    sql = f"select id from things where {condition.replace('@', '')}"
    rows = outcome(engine, sql, pushdown=True)
    assert rows == outcome(engine, sql, pushdown=False)
    assert not isinstance(rows, str)


@settings(max_examples=examples(50), deadline=None)
@given(condition=CONDITIONS, other=CONDITIONS)
def test_random_joins_select_the_same_rows(engine: QueryEngine, condition: str, other: str) -> None:
    left, right = condition.replace("@", "x."), other.replace("@", "y.")
    for join in ("join", "left join", "right join", "full join"):
        sql = (
            f"select count(*), sum(x.id % 1000), sum(y.id % 1000) from things x {join} things y "
            f"on x.id = y.id + 1 where ({left}) and ({right})"
        )
        rows = outcome(engine, sql, pushdown=True)
        assert rows == outcome(engine, sql, pushdown=False)
        assert not isinstance(rows, str)


# ---- columns, limits, tables


def requests(engine: QueryEngine, sql: str, *parameters: object) -> list[Any]:
    source = MemorySource()
    run(engine, sql, *parameters, source=source)
    return [(request.columns, request.filter, request.limit) for request in source.requests]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select symbol from orders", [(("symbol",), None, None)]),
        ("select count(*) from orders", [((), None, None)]),
        ("select count(*) from orders where id = 1", [((), "/id = 1", None)]),
        ("select 1 from orders limit 2", [((), None, 2)]),
        ("select id from orders limit 2 offset 1", [(("id",), None, 3)]),
        ("select id from orders where qty > 5 limit 2", [(("id",), "/qty > 5", 2)]),
        ("select id from orders where symbol < 'J' limit 2",
         [(("id", "symbol"), None, None)]),
        ("select id from orders order by id limit 2", [(("id",), None, None)]),
        ("select distinct id from orders limit 2", [(("id",), None, None)]),
        ("select max(id) from orders limit 1", [(("id",), None, None)]),
        ("select id, row_number() over () from orders limit 1", [(("id",), None, None)]),
        ("select unnest(array[1, 2]) from orders limit 1", [((), None, None)]),
        ("select id from orders group by id limit 1", [(("id",), None, None)]),
        ("select id from orders fetch first 2 rows only", [(("id",), None, 2)]),
        ("select 1 from orders limit 0", [((), None, 0)]),
        ("with x as (select id, qty from orders where id > 1) select id from x where qty > 1",
         [(("id", "qty"), "/id > 1", None)]),
        ("select (select max(total) from positions p where p.symbol = o.symbol) from orders o",
         [(("symbol",), None, None), (("symbol", "total"), None, None)]),
        ("select id from orders union all select total from positions where total > 1",
         [(("id",), None, None), (("total",), "/total > 1", None)]),
        (("select o.id from orders o left join positions p on o.symbol = p.symbol "
         "where o.id > 1 and p.total is null"),
         [(("id", "symbol"), "/id > 1", None), (("symbol", "total"), None, None)]),
        (("select o.id from orders o right join positions p on o.symbol = p.symbol "
         "where o.id is null and p.total > 1"),
         [(("id", "symbol"), None, None), (("symbol",), "/total > 1", None)]),
        (("select o.id from orders o full join positions p on o.symbol = p.symbol "
         "where o.id > 1"), [(("id", "symbol"), None, None), (("symbol",), None, None)]),
        (("select id from orders o where exists (select 1 from positions p where p.total > 1 "
         "and o.symbol = p.symbol)"),
         [(("id", "symbol"), None, None), (("symbol",), "/total > 1", None)]),
        ("select a.id from orders a, orders b where a.id = 1 and b.id = 2",
         [(("id",), "/id = 1", None), ((), "/id = 2", None)]),
        ("select a.id from orders a, orders b where a.id = b.id", [(("id",), None, None)]),
        ("select x.a from orders x(a, b) where x.b = 1",
         [(tuple(column.name for column in ORDERS.columns), None, None)]),
        ("select id from orders where id = 1 or exists (select 1)", [(("id",), None, None)]),
    ],
)  # fmt: skip
def test_a_scan_reads_no_more_than_the_query_needs(
    engine: QueryEngine, sql: str, expected: list[Any]
) -> None:
    assert requests(engine, sql) == expected


def test_parameters_are_pushed_down_as_constants(engine: QueryEngine) -> None:
    sql = "select id from orders where symbol = $1 and qty >= $2 and id = any($3) limit $4"
    found = requests(engine, sql, "IBM", 7, [1, 3], 2)
    assert found == [
        (("id", "symbol"), "/symbol = 'IBM' AND /qty >= 7 AND /id IN (1, 3)", None),
    ]
    assert run(engine, sql, "IBM", 7, [1, 3], 2)[1] == [(1,), (3,)]


def test_a_parameter_that_is_null_selects_nothing(engine: QueryEngine) -> None:
    assert run(engine, "select id from orders where symbol = $1", None)[1] == []


def test_a_filter_of_any_size_is_not_pushed_down(engine: QueryEngine) -> None:
    many = " or ".join(f"(id > {number} and qty < {number})" for number in range(1000))
    ((_, filter_, _),) = requests(engine, f"select id from orders where {many}")
    assert filter_ is None


def test_all_columns_of_a_star_are_scanned(engine: QueryEngine) -> None:
    everything = tuple(column.name for column in ORDERS.columns)
    assert requests(engine, "select * from orders") == [(everything, None, None)]
    assert requests(engine, "select o.* from orders o, positions p where o.symbol = p.symbol") == [
        (everything, None, None),
        (("symbol",), None, None),
    ]
    both = requests(engine, "select * from orders natural join positions")
    assert both[1][0] == tuple(column.name for column in POSITIONS.columns)
