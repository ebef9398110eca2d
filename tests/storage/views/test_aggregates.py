"""Aggregates: whatever came and went, the answer is that of the values that are left."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import ContextKind, aggregates, parse_field, semantics
from server.message_types.base import Value
from server.storage.views.aggregates import Accumulator, function_of
from server.storage.views.exact import ExactSum
from server.storage.views.extremes import ExtremeHeap
from tests.support.chances import examples

NAN = math.nan


def aggregate(call: str) -> tuple[Accumulator, Callable[[], Value]]:
    """An aggregate's accumulator, and how it answers."""
    (node,) = aggregates(parse_field(f"{call} AS /x", ContextKind.PROJECTION).source)
    function = function_of(node)
    accumulator = function.make_accumulator()
    return accumulator, lambda: function.read_result(accumulator)


def answer_of(call: str, values: list[Value]) -> Value:
    """What an aggregate gives for some values."""
    accumulator, answer = aggregate(call)
    for value in values:
        accumulator.add(value)
    return answer()


def same(one: Value, other: Value) -> bool:
    """Equal in type and value; NaN is NaN."""
    if one != one:
        return other != other
    return type(one) is type(other) and one == other


NAMES = ("ANY", "AVG", "COUNT", "COUNT_DISTINCT", "MAX", "MIN", "STDDEV_POP", "STDDEV_SAMP", "SUM")
CALLS = (*(f"{name}(/a)" for name in (*NAMES, "UNIQUE")), "GROUP_CONCAT(/a, '; ')")

CASES: list[tuple[str, list[Value], Value]] = [
    ("SUM(/a)", [10, 10, 25], 45.0),
    ("SUM(/a)", ["40", "60"], 100.0),
    ("SUM(/a)", [], None),
    ("SUM(/a)", [None, None], None),
    ("SUM(/a)", [None, 1], 1.0),
    ("SUM(/a)", [1, "one"], NAN),
    ("SUM(/a)", [1, NAN], NAN),
    ("SUM(/a)", [math.inf, 1], math.inf),
    ("SUM(/a)", [math.inf, -math.inf], NAN),
    ("SUM(/a)", [-math.inf, -math.inf], -math.inf),
    ("SUM(/a)", [1e308, 1e308], math.inf),
    ("SUM(/a)", [1e308, 1e308, -1e308], 1e308),
    ("SUM(/a)", [0.1] * 10, 1.0),
    ("SUM(/a)", [True, False, True], 2.0),
    ("SUM(/a)", [2**53, 1, 1], 2.0**53 + 2),
    ("AVG(/a)", [1, 2], 1.5),
    ("AVG(/a)", [1e308, 1e308], 1e308),
    ("AVG(/a)", [None, 4], 4.0),
    ("AVG(/a)", [None], None),
    ("AVG(/a)", ["x"], NAN),
    ("COUNT(/a)", [], 0),
    ("COUNT(/a)", [1, None, "x", NAN, False], 4),
    ("COUNT_DISTINCT(/a)", [1, "1", "1.0", 1.0, True, "x", None], 2),
    ("COUNT_DISTINCT(/a)", [NAN, float("nan"), 1], 2),
    ("COUNT_DISTINCT(/a)", [], 0),
    ("MIN(/a)", [24, 20, "cat", 75, 1.3, 200, "75", "42"], 1.3),
    ("MAX(/a)", [24, 20, "cat", 75, 1.3, 200, "75", "42"], "cat"),
    ("MAX(/a)", [150.34, 149.76, 149.32, 151.10], 151.10),
    ("MIN(/a)", ["10", "9"], "10"),
    ("MIN(/a)", ["10", 9], 9),
    ("MAX(/a)", ["b", "a", "é", "z"], "é"),
    ("MAX(/a)", ["a", "a\0"], "a\0"),
    ("MIN(/a)", [None], None),
    ("MIN(/a)", [1, NAN], NAN),
    ("MAX(/a)", [True, False], True),
    ("MIN(/a)", [True, False], False),
    ("MAX(/a)", [-math.inf, -1], -1),
    ("STDDEV_POP(/a)", [2, 4, 4, 4, 5, 5, 7, 9], 2.0),
    ("STDDEV_POP(/a)", [5], 0.0),
    ("STDDEV_POP(/a)", [], None),
    ("STDDEV_POP(/a)", [1, "x"], NAN),
    ("STDDEV_POP(/a)", [1e9 + 1, 1e9 + 3], 1.0),
    ("STDDEV_SAMP(/a)", [1, 3], math.sqrt(2)),
    ("STDDEV_SAMP(/a)", [5], None),
    ("STDDEV_SAMP(/a)", [math.inf, 1], NAN),
    ("ANY(/a)", [None, 7], 7),
    ("UNIQUE(/a)", ["x", None, "x"], "x"),
    ("UNIQUE(/a)", ["x", "y"], None),
    ("UNIQUE(/a)", [], None),
    ("GROUP_CONCAT(/a)", ["b", "a", "b", None, 3], "3,a,b"),
    ("GROUP_CONCAT(/a, '')", ["b", "a"], "ab"),
    ("GROUP_CONCAT(/a, '; ')", [], None),
]


@pytest.mark.parametrize(("call", "values", "expected"), CASES)
def test_answers(call: str, values: list[Value], expected: Value) -> None:
    """Each function over the values of a group, whatever their order."""
    assert same(answer_of(call, values), expected)
    assert same(answer_of(call, values[::-1]), expected)


scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=64),
    st.sampled_from([0.1, 0.2, 0.3, 1e300, 1e-300, 5e-324]),
    st.sampled_from(["a", "b", "10", "9", "1.0", "é", "\udcff", "a\0"]),
)


@settings(max_examples=examples(300, 20), deadline=None)
@given(st.lists(st.tuples(scalars, st.booleans()), max_size=40))
def test_what_is_gone_leaves_nothing_behind(steps: list[tuple[Value, bool]]) -> None:
    """After any coming and going, every function answers as for what is there."""
    for call in CALLS:
        accumulator, answer = aggregate(call)
        there: list[Value] = []
        for value, goes in steps:
            if goes and there:
                accumulator.remove(there.pop(len(there) // 2))
            else:
                accumulator.add(value)
                there.append(value)
        expected = answer_of(call, there)
        if call == "UNIQUE(/a)":  # of equal values any may be given
            assert semantics.identity_key(answer()) == semantics.identity_key(expected) or (
                answer() != answer() and expected != expected
            )
        else:
            assert same(answer(), expected), (call, there)


finite = st.one_of(
    st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False, width=64)
)


@settings(max_examples=examples(300, 20), deadline=None)
@given(st.lists(finite, min_size=1, max_size=30))
def test_numbers_are_exact_but_for_one_rounding(numbers: list[Any]) -> None:
    """Sums, means and deviations against fractions."""
    exact = [Fraction(number) for number in numbers]
    total, count = sum(exact), len(exact)
    assert answer_of("SUM(/a)", numbers) == _nearest(total)
    assert answer_of("AVG(/a)", numbers) == _nearest(total / count)
    squares = sum((number - total / count) ** 2 for number in exact)
    assert answer_of("STDDEV_POP(/a)", numbers) == math.sqrt(_nearest(squares / count))
    if count > 1:
        assert answer_of("STDDEV_SAMP(/a)", numbers) == math.sqrt(_nearest(squares / (count - 1)))


def _nearest(number: Fraction | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@settings(max_examples=examples(100, 20), deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)), max_size=20))
def test_duckdb_agrees(numbers: list[float | None]) -> None:
    """An independent database gives the same, where AMPS's rules are SQL's."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (a DOUBLE)")
        if numbers:
            database.executemany("INSERT INTO t VALUES (?)", [[number] for number in numbers])
        row = database.execute(
            "SELECT fsum(a), avg(a), count(a), count(DISTINCT a), max(a), min(a),"
            " stddev_pop(a), CASE WHEN count(a) > 1 THEN stddev_samp(a) END FROM t"
        ).fetchone()
    assert row is not None
    calls = ("SUM", "AVG", "COUNT", "COUNT_DISTINCT", "MAX", "MIN", "STDDEV_POP", "STDDEV_SAMP")
    for name, expected in zip(calls, row, strict=True):
        answer = answer_of(f"{name}(/a)", list(numbers))
        if expected is None:
            assert answer is None, name
        else:
            assert answer == pytest.approx(expected, rel=1e-9, abs=1e-6), name


def test_a_million_updates_leave_no_trace() -> None:
    """Prices that change again and again: the sum stays the one of what is there, to the bit."""
    accumulator, answer = aggregate("SUM(/a)")
    chance = random.Random(8)
    prices = [round(chance.uniform(0, 1e6), 2) for _ in range(50)]
    for price in prices:
        accumulator.add(price)
    for _ in range(300_000):
        place = chance.randrange(len(prices))
        accumulator.remove(prices[place])
        prices[place] = round(chance.uniform(0, 1e6), 2)
        accumulator.add(prices[place])
    assert answer() == math.fsum(prices)


def test_a_sum_is_not_longer_than_its_numbers() -> None:
    """However many numbers there were, the digits are those of the widest range."""
    total = ExactSum()
    for shift in range(1, 1075):
        total.add_ratio(2**53 - 1, shift)
        total.add_ratio(1 - 2**53, shift)
    assert total.numerator == 0
    assert total.shift == 1074


def test_a_heap_forgets_what_has_been_removed() -> None:
    """Values that come and go do not pile up below one that stays."""
    heap = ExtremeHeap(int, greatest=False)
    heap.add(0)
    for value in range(1, 10_000):
        heap.add(value)
        heap.remove(value)
    assert heap.first() == 0
    assert len(heap._heap) < 100
