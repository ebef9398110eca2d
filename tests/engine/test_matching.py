"""The set of filters on a topic against a model: each filter evaluated by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.expressions import BUILTINS, ContextKind, parse
from server.expressions.backends.compile_message import compile_filter
from server.expressions.filter_form import lift_constants
from server.expressions.functions.registry import Function, Parameter
from server.expressions.tree import Expr, paths
from server.message_types.registry import MessageTypes
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import FilterSet
from tests.support.chances import examples
from tests.support.content_filters import content_filter

JSON = MessageTypes().get("json")

LITERALS = st.sampled_from(
    ["1", "1.0", "'1'", "'1.0'", "'a'", "'b'", "''", "0", "-1", "9007199254740993", "'x1'", "NULL"]
)
FIELDS = st.sampled_from(["/a", "/b", "/c", "/n/d"])
TERMS = st.one_of(
    st.builds("{} = {}".format, FIELDS, LITERALS),
    st.builds("{} = {}".format, LITERALS, FIELDS),
    st.builds("{} IN ({}, {})".format, FIELDS, LITERALS, LITERALS),
    st.builds("{} NOT IN ({}, {})".format, FIELDS, LITERALS, LITERALS),
    st.builds("{} != {}".format, FIELDS, LITERALS),
    st.builds("{} > {}".format, FIELDS, LITERALS),
    st.builds("{} IS NULL".format, FIELDS),
    st.builds("{} LIKE 'a'".format, FIELDS),
    st.builds("{} = {}".format, FIELDS, FIELDS),
)
FILTERS = st.one_of(
    st.lists(TERMS, min_size=1, max_size=3).map(" AND ".join),
    st.lists(TERMS, min_size=2, max_size=3).map(" OR ".join),
    st.builds("NOT ({})".format, TERMS),
)
VALUES = st.recursive(
    st.sampled_from(
        [None, True, False, 0, 1, 1.0, -1, 9007199254740993, 1e308, "", "1", "1.0", "a", "b", "x1"]
    ),
    lambda value: st.lists(value, max_size=3),
    max_leaves=4,
)
BODIES = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": VALUES, "c": VALUES, "n": st.fixed_dictionaries({"d": VALUES})}
)


def matches(expr: Expr, body: bytes) -> bool:
    """The model: one filter, one extractor, one predicate."""
    return compile_filter(expr)(JSON.extractor(paths(expr))(body))


def unexpected(filter_: Filter, error: Exception) -> None:
    """None of these filters fails."""
    raise AssertionError(filter_.text) from error


def encode(body: dict[str, Any]) -> bytes:
    """The body as JSON."""
    return json.dumps(body).encode()


@settings(max_examples=examples(100, 20))
@given(st.lists(FILTERS, min_size=1, max_size=12), st.lists(BODIES, min_size=1, max_size=4))
def test_filters_match_together_as_they_do_alone(
    texts: list[str], bodies: list[dict[str, Any]]
) -> None:
    """Whatever is indexed, shared or scanned, the answer is that of each filter by itself."""
    exprs = [parse(text, ContextKind.FILTER, BUILTINS) for text in texts]
    filters = FilterSet(JSON, BUILTINS, unexpected)
    added = [filters.add(lift_constants(expr)) for expr in exprs]
    for body in map(encode, bodies):
        expected = {f for f, expr in zip(added, exprs, strict=True) if matches(expr, body)}
        filters.count_messages(1)  # some are looked at closely
        matched = filters.match(body)
        assert set(matched) == expected
        assert len(matched) == len(expected)


@settings(max_examples=examples(100, 20))
@given(
    st.lists(st.tuples(st.booleans(), FILTERS, st.integers(0, 100)), max_size=40),
    st.lists(BODIES, min_size=2, max_size=2),
)
@example(
    [(False, "/a = ''", 0), (True, "/a = 1", 0), (False, "/b = 1", 1), (False, "/b = 1", 0)], []
)
def test_filters_come_and_go(
    steps: list[tuple[bool, str, int]], bodies: list[dict[str, Any]]
) -> None:
    """After any additions and removals, exactly the filters that are left are found."""
    filters = FilterSet(JSON, BUILTINS, unexpected)
    users: list[tuple[Filter, Expr]] = []
    for add, text, pick in steps:
        if add or not users:
            expr = parse(text, ContextKind.FILTER, BUILTINS)
            users.append((filters.add(lift_constants(expr)), expr))
        else:
            filters.remove(users.pop(pick % len(users))[0])
    assert bool(filters) == bool(users)
    for body in map(encode, bodies):
        assert set(filters.match(body)) == {f for f, expr in users if matches(expr, body)}


def test_equal_filters_are_one() -> None:
    """However they are written, they are decided once."""
    filters = FilterSet(JSON, BUILTINS, unexpected)
    first = filters.add(content_filter("/a = 1 AND /b=2"))
    assert filters.add(content_filter("(/a = 1)   and (/b = 2)")) is first


def test_fields_that_nobody_asks_for_any_more_are_read_no_more() -> None:
    """Fields come and go with the filters that use them."""
    filters = FilterSet(JSON, BUILTINS, unexpected)
    for number in range(1000):
        gone = filters.add(content_filter(f"/field{number} = 1"))
        filters.remove(gone)
    kept = filters.add(content_filter("/a = 1"))
    assert filters.match(b'{"a": 1}') == (kept,)


@pytest.mark.parametrize("term", ["/field{n} > {n}", "/field{n} = {m} AND /other{n} IS NULL"])
@pytest.mark.parametrize("matches_between", [False, True])
def test_fields_get_new_positions(term: str, *, matches_between: bool) -> None:
    """However many go, and whatever comes meanwhile; what is left is found at any time."""
    filters = FilterSet(JSON, BUILTINS, unexpected)

    def add(text: str) -> Filter:
        return filters.add(content_filter(text))

    users = [add(term.format(n=number, m=number + 1)) for number in range(1000)]
    body = json.dumps({f"field{number}": number + 1 for number in range(1000)}).encode()
    for removal in range(1000):
        filters.remove(users.pop(0))
        if removal % 100 == 50:
            users.append(add(f"/new{removal} IS NULL"))
        if matches_between and removal % 10 == 0:
            assert set(filters.match(body)) == set(users)
    assert set(filters.match(body)) == set(users)


@pytest.mark.parametrize("count", [10, 200])
def test_forms_with_fields_of_their_own(count: int) -> None:
    """Whether all fields are read from each message, or those of candidates only."""
    filters = FilterSet(JSON, BUILTINS, unexpected)
    users = [
        filters.add(content_filter(f"/a = 'x' AND /b{number} > {number} AND /c = 1"))
        for number in range(count)
    ]
    fields = {f"b{number}": number + number % 2 for number in range(count)}
    body = encode({"a": "x", "c": 1} | fields)
    assert filters.match(body) == tuple(users[1::2])
    assert filters.match(encode({"a": "y"} | fields)) == ()


def test_a_filter_that_fails_is_decided_no_more() -> None:
    """It is told of once, and the others are decided as if it were not there."""

    def fails(_value: object) -> bool:
        raise RuntimeError("a defect")

    broken = Function("BROKEN", "Tests", "Fails.", fails, (Parameter.ANY,))
    functions = BUILTINS.with_functions([broken])
    failed: list[tuple[str, str]] = []
    filters = FilterSet(JSON, functions, lambda one, error: failed.append((one.text, str(error))))
    texts = ["/a = 1", "BROKEN(/a)", "/a = 1 AND BROKEN(/b)", "/a > 0"]
    first, scanned, indexed, last = (filters.add(content_filter(text, functions)) for text in texts)
    for _ in range(2):
        assert set(filters.match(b'{"a": 1}')) == {first, last}
    assert [error for _, error in failed] == ["a defect"] * 2
    assert {text for text, _ in failed} == {scanned.text, indexed.text}
    for one in (scanned, indexed, first):
        filters.remove(one)
    assert filters.match(b'{"a": 1}') == (last,)
    filters.remove(last)
    assert not filters
