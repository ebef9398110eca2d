"""Regular expressions compared: what is told about them is true of every short name."""

from __future__ import annotations

from itertools import product

import pytest

from config_schema.regex import matches
from config_schema.selection import Coverage, TopicPattern

LETTERS = "ab/"
NAMES = ["".join(name) for length in (1, 2, 3, 4) for name in product(LETTERS, repeat=length)]
TEXTS = ["", "a", "b", "ab", "a/", "/", "aab"]
EXPRESSIONS = [
    start + text + end
    for start, text, end in product(["", "^", ".*", "^.*"], TEXTS, ["", "$", ".*", ".*$"])
] + [".+", "^.+$", "^(a|b)", "[ab]", r"^a\/", "a+b", "a|b$"]


def expression(text: str) -> TopicPattern:
    return TopicPattern(text, "json", is_expression=True)


SELECTED = {text: frozenset(name for name in NAMES if matches(text, name)) for text in EXPRESSIONS}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_what_is_told_is_true(text: str) -> None:
    for other, names in SELECTED.items():
        if expression(text).includes(expression(other)):
            assert names <= SELECTED[text], other
        if not expression(text).overlaps(expression(other)):
            assert not names & SELECTED[text], other


@pytest.mark.parametrize(
    ("outer", "inner", "told"),
    [
        (".*", "^(a|b)[a-z]", False),
        (".*", "^orders/", True),
        (".+", "^orders/", True),
        ("^", ".*", True),
        ("^orders", "^orders/eu$", True),
        ("^orders/eu$", "^orders", False),
        ("/eu$", "^orders/eu$", True),
        ("orders", "^my/orders", True),
        ("^orders", "orders", False),
        (r"^a\.b", r"^a\.b\.c", True),
        (r"^a.b", r"^a\.b", False),
        ("^(a|b)", "^(a|b)", True),
        ("^(a|b)", "^(b|a)", False),
    ],
)
def test_what_can_be_told(outer: str, inner: str, told: bool) -> None:
    assert expression(outer).includes(expression(inner)) == told


@pytest.mark.parametrize(
    ("name", "regex_topics", "is_expression"),
    [
        ("orders", True, False),
        ("fix.orders", True, False),
        ("fix.*", True, True),
        ("^fix", True, True),
        ("^fix", False, False),
    ],
)
def test_what_is_an_expression(name: str, regex_topics: bool, is_expression: bool) -> None:
    assert (
        TopicPattern.from_name(name, "json", regex_topics=regex_topics).is_expression
        == is_expression
    )


def test_types_keep_topics_apart() -> None:
    assert not expression(".*").includes(TopicPattern("orders", "xml", is_expression=False))
    assert not expression(".*").overlaps(TopicPattern(".*", "xml", is_expression=True))
    assert not list(
        Coverage([expression(".*")]).intersections(TopicPattern("a", "xml", is_expression=False))
    )


def test_parts_are_what_both_select() -> None:
    """A name as it is; an expression, the narrower one, or both where they overlap."""
    recorded = Coverage([expression("^x/"), TopicPattern("orders", "json", is_expression=False)])
    parts = {
        text: [
            "&".join(one.name for one in part) for part in recorded.intersections(expression(text))
        ]
        for text in ("^x/y", ".*", "^y|x", "s$", "^ord", "^z")
    }
    assert parts == {
        "^x/y": ["^x/y"],
        ".*": ["^x/", "orders"],
        "^y|x": ["^y|x&^x/"],
        "s$": ["s$&^x/", "orders"],
        "^ord": ["orders"],
        "^z": [],
    }
