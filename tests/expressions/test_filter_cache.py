"""A filter means the same however often one like it has been parsed before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.expressions import BUILTINS, ExpressionError, parse, to_text
from server.expressions.filter_cache import FilterParser
from server.expressions.filter_form import ContentFilter, expr_of, lift_constants
from server.expressions.tree import Expr
from tests.expressions.strategies import almost_expressions, trees

FORMS = [
    "/a = {}",
    "{} = /a",
    "/a={}AND/b={}",
    "/a = {} AND (/b = {} OR /c > 5)",
    "/a IN ({}, {})",
    "/a IN ({}) AND NOT /b = {}",
    "/a LIKE {}",
    "/a LIKE {} AND /b = {}",
    "LENGTH({}) = LENGTH(/a)",
    "[/it's] = {}",
    "/a = r{}",
    "/a = {} {}",
    "/a = {",
    "/a BETWEEN {} AND {}",
    "/a = {} -- {}",
    "{}",
]
FORMS += [
    "/a={}",
    "/a>{}AND /b<={}",
    "/a > {} -{}",
    "/a -{} > {}",
    "/a{} = {}",
    "/a/{} = {}",
    "/a[{}] = {}",
    "[/a {}] = {}",
    "[t {}]./a = {}",
    "NOT (/a={} OR {}<>/b)",
    "/a NOT BETWEEN {} AND {} OR /b IS NOT NULL",
    "/a IN({},{})",
    "/a IN ({}, {}, -1)",
    "/a * {} = {}",
    "/a BEGINS WITH ({})",
    "-{} = /a AND NOT {} = /b",
    "({}) = /a AND (/b = ({}))",
    "/a = {}/b",
    "/a = {}AND/b = {}",
    "/a={}IN({})",
]
TEXTS = ["5", "-5", "0", "-0", "-0.0", "007", "5.", ".5", "5.25", "1e3", "5x", "x5", "1.2.3"]
TEXTS += ["123456789012345", "1234567890123456", "99999999999999999999", "0.1234567890123456"]
TEXTS += ["- 5", "--5", "+5", "NULL", "TRUE", "/5", "[5]", "5[", "5/", "5:", "(5)", "\u0665"]
TEXTS += ["'x'", "''", "'y y'", "' AND '", "'('", "'5'", "'/a'", "'r'", '"x"', '"it\'s"', "'\\''"]
TEXTS += ["'a.*'", "'['", "'\u00e9'", "'\\x41'", "'--'", "'", "x", "5"]


FIELDS = ["/b", "/bcd", "/b/c", "/b/c/d/e", "/55", "/b-c", "/b.c", "/@b", "[/b]", "/b[1]", "/b OF"]
FIELDS += ["/b /c", "1/b", "/b = NULL AND /e"]


def outcome(parse_it: object, text: str) -> Expr | str:
    assert callable(parse_it)
    try:
        made: Expr = parse_it(text)
    except ExpressionError as error:
        return str(error)
    return made


def lifted(text: str) -> ContentFilter:
    """The filter of a text that has never been parsed before."""
    return lift_constants(parse(text))


@pytest.mark.parametrize(
    ("text", "is_shared"), [("-2.5", True), ("0.0", True), ("-0.0", False), ("1", False)]
)
def test_doubles_share_a_form_but_for_the_negative_zero(text: str, is_shared: bool) -> None:
    assert (lifted(f"/a > {text}")[0] == lifted("/a > 1.5")[0]) == is_shared


def filter_outcome(parse_it: Callable[[str], ContentFilter], text: str) -> object:
    """A filter with its tree, or the error."""
    try:
        made = parse_it(text)
    except ExpressionError as error:
        return str(error)
    assert expr_of(made) == parse(text)
    return made


@given(
    st.lists(
        st.tuples(
            st.sampled_from(FORMS),
            st.sampled_from(FIELDS),
            st.lists(st.sampled_from(TEXTS), min_size=2, max_size=2),
        ),
        max_size=30,
    )
)
def test_filters_alike_but_for_their_constants(
    filters: list[tuple[str, str, list[str]]],
) -> None:
    kept = FilterParser(BUILTINS)
    for form, field, texts in filters:
        text = form.replace("/b", field)
        for one in texts:
            text = text.replace("{}", one, 1)
        assert outcome(kept.parse, text) == outcome(parse, text), text
        assert filter_outcome(kept.parse_content_filter, text) == filter_outcome(lifted, text), text


@given(st.lists(trees.map(to_text) | almost_expressions, max_size=6))
def test_any_filter(texts: list[str]) -> None:
    kept = FilterParser(BUILTINS)
    for text in texts * 2:
        assert outcome(kept.parse, text) == outcome(parse, text)
        assert filter_outcome(kept.parse_content_filter, text) == filter_outcome(lifted, text)


def test_more_forms_than_are_kept() -> None:
    kept = FilterParser(BUILTINS)
    for number in [*range(5000), *range(20)]:
        text = f"/f{number} = 'a{number}' AND /g = {number}"
        assert kept.parse(text) == parse(text)
    long = "/a = 'x'" + " OR /a = 'y'" * 500
    assert kept.parse(long) == parse(long)
