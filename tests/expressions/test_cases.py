"""Every line of the case files, through every back end."""

from __future__ import annotations

import pytest

from server.expressions import ContextKind, check, parse, parse_field
from server.expressions.tree import Expr, slots
from tests.expressions.backends import evaluate_everywhere
from tests.expressions.cases import FUNCTIONS, Case, bad_cases, good_cases, same

GOOD = list(good_cases())
BAD = list(bad_cases())


def _tree(case: Case) -> Expr:
    if case.kind is ContextKind.ENRICHMENT:
        return parse_field(case.text, case.kind, FUNCTIONS).source
    return parse(case.text, case.kind, FUNCTIONS)


@pytest.mark.parametrize("case", GOOD, ids=lambda case: f"{case.line}: {case.text}")
def test_an_expression_gives_its_result_in_every_back_end(case: Case) -> None:
    tree = _tree(case)
    values = case.values(slots(tree))
    nulls = tuple(None for _ in values)
    results = evaluate_everywhere(
        tree, [values, nulls, values], FUNCTIONS, case.message_context(), case.kind
    )
    assert same(results[0], case.result), f"{case.text} gives {results[0]!r}"
    assert check(case.text, case.kind, FUNCTIONS) is None


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case[0]}: {case[2]}")
def test_an_expression_is_refused_with_its_error(case: tuple[int, ContextKind, str, str]) -> None:
    _, kind, text, error = case
    problem = check(text, kind)
    assert problem is not None
    assert error in problem
    assert "HERE -->" in problem


def test_the_case_files_are_as_large_as_they_are_meant_to_be() -> None:
    assert len(GOOD) + len(BAD) >= 600


def test_every_function_has_a_case() -> None:
    texts = " ".join(case.text.upper() for case in GOOD)
    assert [name for name in FUNCTIONS if f"{name}(" not in texts] == []
