"""Texts that all matches of a regular expression contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.expressions.regex.patterns import RegexPatternError, compile_regex
from server.expressions.regex.required_literal import needle

PIECES = [
    *"ab/-.^$|()[]{}*+?",
    *("ab", "\\.", "\\d", "\\a", "\\x41", "\\/", "[^a]", "[]b]", "[[:alpha:]]", "[\\]a]"),
    *(
        "(?:ab)",
        "(?i)",
        "(?#c)",
        "(*UTF)",
        "{0}",
        "{1,2}",
        "{,2}",
        "{a",
        "*?",
        "++",
        "é",
        "\\Qa.\\E",
    ),
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text("ab/-.]{}1Aé", max_size=9)
)
def test_every_match_contains_it(pattern: str, text: str) -> None:
    """Whatever the expression is made of."""
    try:
        regex = compile_regex(pattern)
    except RegexPatternError:
        return
    if regex.has_match(text):
        assert needle(pattern) in text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^orders/.*", "orders/"),
        (".*\\.trades$", ".trades"),
        ("^t.*x7$", "x7"),
        ("a?bc+de*f", "bc"),
        ("ab{2}cde{0,1}", "cd"),
        ("x(a|bcd)yz", "yz"),
        ("abc|def", ""),
        ("(?i)abc", ""),
        ("abc\\x41", ""),
        (".*", ""),
        ("a" * 10_000 + ".", ""),
    ],
)
def test_it_is_the_longest_that_is_certain(pattern: str, expected: str) -> None:
    """Or nothing, if the expression is not understood or too long."""
    assert needle(pattern) == expected
