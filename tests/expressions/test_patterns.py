"""Regular expressions: any pattern ends, and the two ways to search give the same."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.expressions import parse
from server.expressions.backends.compile_message import compile_filter, compile_value
from server.expressions.concat import MAX_TEXT_LENGTH
from server.expressions.regex.bounded_repetition import bound_repetitions
from server.expressions.regex.budget import LONG_SEARCHES
from server.expressions.regex.patterns import compile_regex
from server.message_types.base import Value

SLOW = ("a" * 18 + "X") * 50_000
"""For `(a+)+[bc]` every letter is a beginning that takes half a million steps at worst."""


def finds(pattern: str, text: str) -> bool:
    """Whether LIKE finds a pattern in a text."""
    return compile_filter(parse(f"/a LIKE '{pattern}'"))((text,))


def replaced(pattern: str, text: str, replacement: str = "-") -> object:
    """What REGEXP_REPLACE makes of a text."""
    tree = parse(f"REGEXP_REPLACE(/a, '{pattern}', '{replacement}')")
    return compile_value(tree)((text,))


@pytest.mark.parametrize("pattern", ["(a+)+[bc]", "(?:a|aa)+[bc]", "(a*)*[bc]", "(?R)?b+[bc]"])
def test_a_search_that_would_not_end_finds_nothing(pattern: str) -> None:
    assert not finds(pattern, SLOW)


@pytest.mark.parametrize("pattern", ["(a+)+[bc]", "(a*)*[bc]", "(?R)?b+[bc]"])
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("/a LIKE '{}'", False),
        ("/a NOT LIKE '{}'", False),
        ("NOT (/a LIKE '{}')", False),
        ("(/a LIKE '{}') IS NULL", True),
        ("CONCAT(/a, '') NOT LIKE '{}'", False),
    ],
)
@pytest.mark.parametrize("value", [SLOW, [SLOW, "x"]], ids=["text", "array"])
def test_nothing_follows_from_a_search_that_would_not_end(
    pattern: str, condition: str, holds: bool, value: Value
) -> None:
    assert compile_filter(parse(condition.format(pattern)))((value,)) is holds


@pytest.mark.parametrize("pattern", ["(a+)+[bc]", "(a+)+[bc]|X"])
def test_a_replacement_that_would_not_end_leaves_the_text(pattern: str) -> None:
    assert replaced(pattern, SLOW) == SLOW


def test_long_texts_are_searched_to_their_end() -> None:
    line = "I" + "x" * 100_000
    assert finds("I.*[CD]", line + "C")
    assert not finds("I.*[CD]", line)
    assert finds("^([a-z]+,)*$", "abc," * 10_000)
    assert replaced("I.*[CD]", f"{line}C and so on") == "- and so on"
    assert replaced("I.*?[CD]", f"{line}C|" * 3) == "-|-|-|"
    assert replaced("o+", "zoo" * 100_000) == "z-" * 100_000


class Count:
    """Counts long searches, and allows all."""

    def __init__(self) -> None:
        self.searches = 0
        self.remaining = LONG_SEARCHES

    def spend(self, searches: int = 1) -> None:
        assert searches > 0
        self.searches += 1


def long_searches(pattern: str, text: str) -> int:
    """How many long searches it takes to look for a pattern in a text."""
    count = Count()
    compile_regex(pattern, search_counter=count).has_match(text)
    return count.searches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?:a|b)*?a*+[xy]", "a" * 5_000),
        (r"(?=(a+))a*b\1", "a" * 200_000),
        ("a*+[xy]", "a" * 200_000),
        ("[a-z]{2,}+=", "a" * 200_000),
        ("foo.*bar", "foo" * 100_000),
    ],
)
def test_steps_that_go_through_all_of_a_long_text_are_few(pattern: str, text: str) -> None:
    """PCRE2 counts such a step like any other: these take few, for each position."""
    assert long_searches(pattern, text) == 1
    assert not finds(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)FOO.*bar",
        "foo.*b[ae]r",
        "^x.*bar$",
        ".*foo.*",
        ".*nowhere",
        "(*UTF)foo.*bar",
        "[xy]{3}foo",
        "foo|z$",
    ],
)
def test_usual_expressions_are_no_long_searches(pattern: str) -> None:
    text = "x" * 8_000 + "foo" + "y" * 8_000  # slow machines take long for more
    for end in ("", "bar"):
        # The limit is a time: while another program has the processor, a search may seem long.
        assert 0 in (long_searches(pattern, text + end) for _ in range(10))
        expected = "nowhere" not in pattern and (bool(end) or "r" not in pattern)
        assert finds(pattern, text + end) is expected


def test_too_many_replacements_give_null() -> None:
    assert replaced("x?", "x" * 1_000_001, "") is None
    assert replaced("x", "x" * 5_000, "y" * (MAX_TEXT_LENGTH // 4_000)) is None


_ATOMS = ["a", "b", "(a|b)", "a*", "b+?", "[ab]", "(?:ab)?", "^", "$", ".", "a{2}", "(b)?", "|"]
_ATOMS += [r"\b", ".*", "(?=b)", "(?!a)", "(?<=a)", "(?i)A"]


@given(
    st.lists(st.sampled_from(_ATOMS), max_size=5).map("".join),
    st.text(alphabet="ab\n", max_size=8),
)
def test_a_match_is_found_however_long_the_text_around_it_is(pattern: str, text: str) -> None:
    # "#.*?<" takes more steps than a quick search has for one place of a long text.
    bounded = f"#.*?<(?:{pattern})>"
    assert finds(bounded, f"{'#' * 20_000}<{text}>") == finds(bounded, f"#<{text}>")


_REPEATED = [
    "a*",
    "a+",
    "[ab]*+",
    "b*?",
    "a{2,}",
    "(?:a|b)*",
    "(a+)b",
    ".*",
    "^",
    "$",
    r"\w+",
    "c?",
]


@given(
    st.lists(st.sampled_from(_REPEATED), max_size=4).map("".join),
    st.lists(st.tuples(st.sampled_from("abc\n"), st.sampled_from([1, 2, 63, 64, 65, 130]))),
)
def test_the_form_with_short_steps_finds_the_same(
    pattern: str, runs: list[tuple[str, int]]
) -> None:
    short = bound_repetitions(pattern.encode())
    assert short is not None
    text = "".join(letter * times for letter, times in runs[:3])
    regex = compile_regex(short.decode())
    assume(regex.has_match(text) is not None)  # the limit of steps was not reached
    assert regex.first_match(text) == compile_regex(pattern).first_match(text)


@pytest.mark.parametrize(
    "pattern", [r"(a+)\1*", "(?x) a * b", r"\Qa*\E", "(?<n>a)*", "a{200,}", "(?R)"]
)
def test_an_expression_that_is_not_understood_has_no_form_with_short_steps(pattern: str) -> None:
    assert bound_repetitions(pattern.encode()) is None


def test_a_comment_at_the_end_of_a_pattern_hides_nothing() -> None:
    assert finds("(?x) I .* [CD] # a comment", "ID")
    assert not finds("(?x) I .* [CD] # a comment", "I" + "x" * 100_000)


def test_patterns_too_long_for_machine_code_are_interpreted() -> None:
    long = "x*" * 10_000
    assert finds(f"^{long}y$", "xxy")
    assert not finds(f"^{long}y$", "xxz")
    assert replaced(f"{long}y", "axxyb") == "a-b"
