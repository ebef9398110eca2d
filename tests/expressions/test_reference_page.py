"""The page about expressions says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.expressions import parse
from server.expressions.functions.reference_page import functions_part
from server.expressions.grammar import ARITHMETIC, COMPARISONS, ESCAPES, MAX_DEPTH, MAX_LENGTH

PAGE = (Path(__file__).parents[2] / "docs" / "expressions.md").read_text("utf-8")


def test_the_functions_are_those_of_the_registry() -> None:
    assert PAGE.endswith(functions_part()), (
        "run python -m server.expressions.functions.reference_page"
    )


@pytest.mark.parametrize("operator", [*COMPARISONS, *ARITHMETIC])
def test_every_operator_is_on_the_page(operator: str) -> None:
    assert f"`{operator}`" in PAGE


def test_escapes_and_limits_are_on_the_page() -> None:
    for escape in ESCAPES:
        assert f"\\{escape}" in PAGE
    assert f"{MAX_LENGTH:,} characters" in PAGE
    assert f"{MAX_DEPTH} levels" in PAGE


def test_the_opening_example_is_an_expression() -> None:
    example = re.search(r"```text\n(.*)\n```", PAGE)
    assert example
    assert parse(example[1])
