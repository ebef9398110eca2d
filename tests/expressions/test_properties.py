"""What holds for all expressions: back ends agree, texts and trees correspond, errors are ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import (
    BUILTINS,
    ContextKind,
    ExpressionError,
    check,
    parse,
    semantics,
    to_text,
)
from server.expressions.arrays import elements
from server.expressions.backends.columns import column_of
from server.expressions.backends.compile_message import compile_filter
from server.expressions.message_context import NO_CONTEXT
from server.expressions.numerals import numeral
from server.expressions.regex.patterns import compile_pattern, matcher
from server.expressions.tree import Expr, Pattern, slots
from server.message_types.base import Value
from tests.expressions import model, strategies
from tests.expressions.backends import evaluate_everywhere
from tests.expressions.cases import same
from tests.support.chances import examples

records = st.lists(
    st.tuples(*(strategies.values for _ in strategies.FIELDS)), min_size=1, max_size=5
)
alike = st.one_of(
    *(
        st.lists(st.one_of(st.none(), kind), min_size=1, max_size=6)
        for kind in (
            st.sampled_from(strategies.NUMBERS[:6]),
            st.sampled_from(strategies.DOUBLES),
            st.sampled_from(strategies.WORDS),
            st.sampled_from([1, 2.5, 3]),
            st.sampled_from([0.5, -2.0, float("nan"), float("inf")]),
            st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63), 3]),
        )
    )
)


def _values(tree: Expr, record: dict[str, Value]) -> tuple[Value, ...]:
    return tuple(record[str(slot.path[0])] for slot in slots(tree) if isinstance(slot, tuple))


@settings(max_examples=examples(400), deadline=None)
@given(strategies.trees, records)
def test_back_ends_agree_on_any_record(tree: Expr, rows: list[tuple[Value, ...]]) -> None:
    named = [dict(zip(strategies.FIELDS, row, strict=True)) for row in rows]
    tuples = [_values(tree, record) for record in named]
    results = evaluate_everywhere(tree, tuples, BUILTINS, NO_CONTEXT)
    if model.supported(tree):
        for record, result in zip(named, results, strict=True):
            assert same(result, semantics.first(model.meaning(tree, record)))


@settings(max_examples=examples(300), deadline=None)
@given(strategies.trees, st.tuples(*(alike for _ in strategies.FIELDS)))
def test_back_ends_agree_on_columns_of_one_kind(
    tree: Expr, columns: tuple[list[Value], ...]
) -> None:
    rows = list(zip(*columns, strict=False))
    named = [dict(zip(strategies.FIELDS, row, strict=True)) for row in rows]
    evaluate_everywhere(tree, [_values(tree, record) for record in named], BUILTINS, NO_CONTEXT)


@settings(max_examples=examples(300), deadline=None)
@given(strategies.trees)
def test_what_is_printed_reads_as_the_same_tree(tree: Expr) -> None:
    assert parse(to_text(tree)) == tree


@settings(max_examples=examples(500), deadline=None)
@given(strategies.almost_expressions | st.text(max_size=40), st.sampled_from(ContextKind))
def test_any_text_is_read_or_refused(text: str, kind: ContextKind) -> None:
    assert check(text, kind) is None or isinstance(check(text, kind), str)


@settings(max_examples=examples(300), deadline=None)
@given(strategies.almost_expressions)
def test_what_is_read_prints_and_reads_again(text: str) -> None:
    try:
        tree = parse(text)
    except ExpressionError as error:
        place = error.position
    else:
        place = 0
        assert parse(to_text(tree)) == tree
    assert 0 <= place <= len(text)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(sorted(semantics.COMPARATORS)),
    st.lists(strategies.scalars, min_size=15, max_size=20),
    st.lists(strategies.scalars, min_size=15, max_size=20),
)
def test_long_arrays_compare_as_all_their_pairs_do(
    sign: str, left: list[Value], right: list[Value]
) -> None:
    assert semantics.COMPARATORS[sign](left, right) is model.compare(sign, left, right)


FEW: list[list[Value]] = [[0.0, 1.5, 3.5], [0, 1, 4], ["1", "1a", "2"], ["", "0.5", None, 2]]
few_values = st.sampled_from(FEW).flatmap(
    lambda known: st.lists(st.sampled_from(known), min_size=17, max_size=20)
)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(sorted(semantics.COMPARATORS)), few_values, few_values)
def test_long_arrays_of_few_values_compare_as_all_their_pairs_do(
    sign: str, left: list[Value], right: list[Value]
) -> None:
    assert semantics.COMPARATORS[sign](left, right) is model.compare(sign, left, right)


def test_a_word_between_numerals_is_above_all_numbers() -> None:
    assert semantics.less([9] * 20, ["1", "1a", "2"] * 10) is True
    assert semantics.less([9] * 20, ["1", "2"] * 10) is False


@pytest.mark.parametrize(
    ("left", "sign", "right"),
    [
        (["1", "9", "100"], ">", [50]),  # the greatest numeral, not the greatest text
        ([1, float("nan")], "!=", [1]),
        (["5"], "=", [5]),
        ([5], "=", ["5"]),
        ([2**53 + 1], "=", [2.0**53]),
        ([2.0**53], "=", [2**53 + 1]),
    ],
)
def test_one_pair_decides_about_long_arrays(
    left: list[Value], sign: str, right: list[Value]
) -> None:
    assert semantics.COMPARATORS[sign](left * 20, right * 20) is True


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(strategies.constants, min_size=1, max_size=4), strategies.values)
def test_hashing_finds_exactly_the_values_among_literals(
    literals: list[int | float | str | None], value: Value
) -> None:
    members = semantics.LiteralSet(literals)
    among = semantics.is_in(value, literals)
    assert members.contains(value) is among
    if not members.large:
        assert (among is True) is any(_is_hashed(members, item) for item in elements(value))


def _is_hashed(members: semantics.LiteralSet, value: Value) -> bool:
    if isinstance(value, str):
        return value in members.texts or numeral(value) in members.numbers
    return value in members.numbers or value in members.text_numbers


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(strategies.values, max_size=6) | alike)
def test_a_column_keeps_its_values(values: list[Value]) -> None:
    kept = column_of(values).to_values()
    for before, after in zip(values, kept, strict=True):
        assert same(before, after) or (before == "" and after is None) or isinstance(before, list)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(["", "^"]),
    st.text(st.sampled_from("ab1 é#\n"), min_size=1, max_size=3),
    st.sampled_from(["", "$"]),
    st.text(st.sampled_from("ab1 é#\n"), min_size=1, max_size=6),
)
def test_simple_patterns_match_as_the_engine_does(
    start: str, literal: str, end: str, text: str
) -> None:
    pattern = Pattern(start + literal + end)
    assert matcher(pattern)(text) is compile_pattern(pattern).has_match(text)
    quoted = Pattern(literal, is_quoted=True)
    assert matcher(quoted)(text) is (literal in text)
    assert compile_pattern(quoted).has_match(text) is (literal in text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "NOT " * 100_000 + "1",
        "-" * 100_000 + "1",
        "- " * 100_000 + "1",
        "UPPER(" * 100_000,
        "IF(1, " * 50_000,
        "1" + " + 1" * 100_000,
        "1" + " = 1" * 100_000,
        "/a IN (" * 50_000,
        "1 BETWEEN " * 50_000,
        "/a" * 200_000,
        "/a IS NULL" + " IS NULL" * 100_000,
        "[" * 100_000,
        "'" + "\\" * 100_000,
        "x" * 2_000_000,
    ],
    ids=lambda text: text[:8],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


def test_long_chains_are_no_deep_trees() -> None:
    predicate = compile_filter(parse(" OR ".join(f"/a = {number}" for number in range(5_000))))
    assert predicate((4_999,))
    assert not predicate((5_000,))


@pytest.mark.parametrize("text", ["-/a", "/a / /b", "/a % /b", "/a + /b", "/a - /b", "/a * /b"])
@pytest.mark.parametrize(
    "row",
    [
        (7, -2),
        (-7, 2),
        (7, 0),
        (2**62, 2**62),
        (-(2**63), -1),
        (2**40, 2**40),
        (7.5, 0.0),
        (1, None),
    ],
)
def test_arithmetic_of_columns_is_that_of_rows(
    text: str, row: tuple[int | float, int | float | None]
) -> None:
    tree = parse(f"{text} >= 3 OR {text} < 3")
    for kept in (parse(text), tree):
        width = len(slots(kept))
        evaluate_everywhere(kept, [row[:width], (6, 3)[:width]], BUILTINS, NO_CONTEXT)


@pytest.mark.parametrize("sign", sorted(semantics.COMPARATORS))
@pytest.mark.parametrize("literal", ["'word'", "'2'", "'2.0'", "2", "''", "NULL"])
@pytest.mark.parametrize(
    "column", [[float("nan"), 2.0, None], [2, 3, None], ["2", "word", None], [2, 2.5, 9.0]]
)
def test_comparisons_of_columns_are_those_of_rows(
    sign: str, literal: str, column: list[Value]
) -> None:
    for text in (f"/a {sign} {literal}", f"{literal} {sign} /a", f"NOT /a {sign} {literal}"):
        evaluate_everywhere(parse(text), [(value,) for value in column], BUILTINS, NO_CONTEXT)


def test_the_deepest_tree_compiles() -> None:
    for function in ("UPPER(", "COALESCE(", "IF(1, ", "ARRAY_SUM("):
        closing = ", 0)" if function == "IF(1, " else ")"
        nested = function * 99 + "/a" + closing * 99
        assert compile_filter(parse(nested))(("7",))
    negated = "NOT (" * 48 + "/a" + ")" * 48
    assert compile_filter(parse(negated))((1,))
