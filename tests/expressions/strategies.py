"""Random trees, values and texts for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from server.expressions.grammar import ARITHMETIC, COMPARISONS
from server.expressions.tree import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Pattern,
)
from server.message_types.base import Value

WORDS = ["", "a", "IBM", "abc", "1", "2", "1.0", "-3", "1e2", "é", "\udc80", "x\x00y", "9" * 18]
NUMBERS = [0, 1, 2, -3, 7, 2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**63)]
DOUBLES = [0.0, 1.0, 0.5, -3.0, 7.25, 2.0**53, 1e300]
FIELDS = ("a", "b", "c d", "@e")

constants = st.one_of(
    st.none(), st.sampled_from(NUMBERS), st.sampled_from(DOUBLES), st.sampled_from(WORDS)
)
scalars: st.SearchStrategy[Any] = st.one_of(
    constants, st.booleans(), st.just(float("nan")), st.just(float("inf"))
)
values: st.SearchStrategy[Value] = st.one_of(
    scalars, st.lists(st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=4)
)


def _numbers_are_not_negated(operand: Expr) -> bool:
    """A minus before a number is part of the number."""
    return not (isinstance(operand, Literal) and isinstance(operand.value, int | float))


literals = st.builds(Literal, constants)
identifiers = st.builds(lambda name: Identifier((name,)), st.sampled_from(FIELDS))
patterns = st.builds(
    Pattern, st.sampled_from(["a", "^a", "1$", "^1$", ".", "[0-9]+", "(?i)ibm", "", "é"])
) | st.builds(Pattern, st.sampled_from(["a", "1.0", "é", "x", "."]), st.just(True))
arithmetic_signs = st.sampled_from(sorted({sign for sign, _ in ARITHMETIC.values()}))
comparison_signs = st.sampled_from(sorted({sign for sign, _ in COMPARISONS.values()}))


def _chain(node: type[And | Or], operands: list[Expr]) -> Expr:
    flat: list[Expr] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, node) else (operand,)
    return node(tuple(flat))


def _compound(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    items = st.lists(inner, min_size=1, max_size=3).map(tuple)
    literal_items = st.lists(literals, min_size=1, max_size=3).map(tuple)
    operands = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Negate, inner.filter(_numbers_are_not_negated)),
        st.builds(Arithmetic, arithmetic_signs, inner, inner),
        st.builds(Comparison, comparison_signs, inner, inner),
        st.builds(Comparison, comparison_signs, identifiers, literals),
        st.builds(Comparison, comparison_signs, literals, identifiers),
        st.builds(Between, inner, inner, inner),
        st.builds(Between, identifiers, literals, literals),
        st.builds(In, inner, items),
        st.builds(In, identifiers, literal_items),
        st.builds(Like, inner, patterns),
        st.builds(Affix, st.sampled_from(["BEGINS WITH", "ENDS WITH"]), inner, items),
        st.builds(Affix, st.just("BEGINS WITH"), identifiers, literal_items),
        st.builds(IsNull, inner),
        st.builds(IsNan, inner),
        st.builds(Not, inner),
        st.builds(_chain, st.just(And), operands),
        st.builds(_chain, st.just(Or), operands),
        st.builds(lambda a, b, c: Call("IF", (a, b, c)), inner, inner, inner),
        st.builds(lambda arguments: Call("COALESCE", arguments), items),
        st.builds(lambda argument: Call("LENGTH", (argument,)), inner),
        st.builds(lambda argument: Call("ARRAY_SUM", (argument,)), inner),
    )


trees: st.SearchStrategy[Expr] = st.recursive(literals | identifiers, _compound, max_leaves=12)

FRAGMENTS = [
    "/a",
    "/b",
    "[/c",
    "d]",
    "[t]./x",
    "1",
    "2.5",
    "'x'",
    '"y"',
    "r'z'",
    "(",
    ")",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "!=",
    "<",
    "BETWEEN",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "BEGINS",
    "ENDS",
    "WITH",
    "IS",
    "NULL",
    "NAN",
    "OF",
    "CURRENT",
    "AS",
    "HINT",
    "IF(",
    "SUM(",
    "UPPER(",
    "\\",
    "'",
    '"',
    "[",
    "]",
    "@",
    ".",
    "&&",
    "||",
    "é",
    "{{X}}",
]

almost_expressions = st.lists(st.sampled_from(FRAGMENTS), max_size=12).flatmap(
    lambda parts: st.sampled_from([" ".join(parts), "".join(parts)])
)
