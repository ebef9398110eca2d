"""Filters that are decided for many bodies at once match what they match one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.expressions import ContextKind, parse
from server.expressions.backends.compile_message import compile_filter
from server.expressions.backends.plain_tests import plain_tests
from server.expressions.tree import Expr, paths
from server.message_types.bulk import (
    MAX_BULK_FILTERS,
    UNDECIDED,
    BulkMessageType,
    LiteralTest,
)
from server.message_types.json_type import JsonType
from tests.expressions.cases import FUNCTIONS, good_cases
from tests.message_types.bodies import message_type
from tests.support.frame_slices import bodies_in_stream

JSON = message_type("json")
LAST_WINS = message_type("json", EarlyTerminationOptimization=["false"])

TERMS = [
    "/a = 1",
    "2 < /a",
    "/a != 1.5",
    "/a <= 9007199254740991",
    "NOT /a >= 2",
    "/a BETWEEN -1 AND 1e3",
    "/a IN (1, 2.5, -3)",
    "/a NOT IN (1, 2)",
    "/b = 'EU'",
    "/b != 'EU'",
    "'EU' <= /b",
    "/b > 'E'",
    "NOT /b = '1'",
    "/b IN ('EU', 'US')",
    "/b NOT IN ('EU', 'ABC')",
    "/b BETWEEN 'A' AND 'EV'",
    "/c/a = 1",
    "/c/d/a = 'EU'",
    "/d = 5",
]
VALUES = [
    *("1", "2", "-3", "2.5", "1.5", "1e0", "1e400", "9007199254740993", "9" * 19, "9" * 400),
    *("0.1e-30", "-0", "-0.0", "-", "1.", "01", "NaN", "Infinity", "-Infinity", "nil"),
    *('"EU"', '"US"', '"E"', '"EUR"', '""', '"1"', '"\\u0045U"', '"E\\"', '"Eü"', '"E\udcff"', '"'),
    *("null", "true", "false", "[]", "[1]", '["EU",2]', "[1", "{}", '{"a":1}', "{", ""),
    *('{"a":1,"d":{"a":"EU"}}', '{"d":{"a":"EU"},"a":[1]}', '{"d":[{"a":"EU"}],"a":1}', ' "EU" '),
]
NAMES = ["a", "b", "c", "d", "x", "\\u0061"]

members = st.lists(
    st.builds('"{}":{}'.format, st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6
)
bodies = st.builds(
    lambda some, start, end: (start + ",".join(some) + end).encode("utf-8", "surrogateescape"),
    members,
    st.sampled_from(["{", "{", "{", " { ", "\ufeff{", "[{", ""]),
    st.sampled_from(["}", "}", "}", "} x", "}]", "", ","]),
)
filters = st.lists(
    st.lists(st.sampled_from(TERMS), min_size=1, max_size=4).map(" AND ".join),
    min_size=1,
    max_size=5,
)


def those_of(tree: Expr) -> Sequence[LiteralTest]:
    tests = plain_tests(tree)
    assert tests is not None
    return tests


def decided(trees: Sequence[Expr], given: Sequence[bytes]) -> list[int]:
    """The outcome for each body."""
    assert isinstance(JSON, BulkMessageType)
    decide = JSON.bulk_decider([those_of(tree) for tree in trees])
    assert decide is not None
    outcomes = [0] * len(given)
    end = 0
    for begin, stop, outcome in decide(given):
        assert end <= begin < stop
        end = stop
        outcomes[begin:end] = [outcome] * (end - begin)
    return outcomes


def matched(trees: Sequence[Expr], body: bytes) -> int:
    """The same, as filters are decided for one message."""
    outcome = 0
    for place, tree in enumerate(trees):
        values = JSON.extractor(paths(tree))(body)
        outcome |= compile_filter(tree, FUNCTIONS)(values) << place
    return outcome


@given(filters, st.lists(bodies, min_size=1, max_size=8), st.integers(0, 200))
def test_what_is_decided_is_what_matches(
    texts: list[str], given: list[bytes], next_length: int
) -> None:
    """Bodies as objects, and as places in the stream, whatever stands behind them there."""
    trees = [parse(text) for text in texts]
    outcomes = decided(trees, given)
    for body, outcome in zip(given, outcomes, strict=True):
        assert outcome in (UNDECIDED, matched(trees, body))
    slices = bodies_in_stream(given, behind=bytes([next_length, 44, 34]))
    assert list(slices) == given
    in_place = decided(trees, slices)
    assert in_place[:-1] == outcomes[:-1]
    assert in_place[-1] in (UNDECIDED, outcomes[-1])


@given(filters, st.sampled_from([0, 1, 2, 3.5, -1]), st.sampled_from(["EU", "ABC", "1"]))
def test_bodies_with_nothing_odd_are_decided(texts: list[str], number: float, word: str) -> None:
    trees = [parse(text) for text in texts]
    inner = {"a": 1, "d": {"a": word}}
    body = json.dumps({"x": [1, "{"], "b": word, "c": inner, "a": number, "d": 5}).encode()
    assert decided(trees, [body]) == [matched(trees, body)]


def test_the_shared_cases_are_decided_alike() -> None:
    decided_cases = 0
    for case in good_cases():
        tree = parse(case.text, case.kind, FUNCTIONS) if case.kind is ContextKind.FILTER else None
        if tree is None or plain_tests(tree) is None:
            continue
        (outcome,) = decided([tree], [json.dumps(case.record).encode()])
        assert outcome in (UNDECIDED, int(case.result is True)), case
        decided_cases += outcome != UNDECIDED
    assert decided_cases > 20


@pytest.mark.parametrize(
    "text",
    [
        "/a = 'ü'",
        "/a = ''",
        "/a = NULL",
        "/a = 9007199254740992",
        "/a = /b",
        "/a IN (1, 'x')",
        "/a IN (1, NULL)",
        "/a[0] = 1",
        "/a + 1 = 2",
        "/a LIKE 'x'",
        "/a = 1 OR /a = 2",
        "NOT (/a = 1 AND /b = 2)",
        "/a = 1 AND /b IS NULL",
        "NOT /a BETWEEN 1 AND 2",
    ],
)
def test_what_takes_more_is_left_to_others(text: str) -> None:
    assert plain_tests(parse(text)) is None


def test_as_many_filters_are_decided_as_is_said() -> None:
    trees = [parse(f"/a = {number}") for number in range(MAX_BULK_FILTERS)]
    given = [b'{"a":%d}' % number for number in range(MAX_BULK_FILTERS + 1)]
    assert decided(trees, given) == [*(1 << number for number in range(MAX_BULK_FILTERS)), 0]
    with pytest.raises(ValueError, match="61 filters; not more than 60"):
        decided([*trees, parse("/a = 60")], given)


def test_where_the_last_of_equal_names_counts_bodies_are_decided_one_by_one() -> None:
    assert isinstance(LAST_WINS, JsonType)
    assert LAST_WINS.bulk_decider([those_of(parse("/a = 1"))]) is None
