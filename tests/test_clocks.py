"""Moments of the wall clock are never compared with those of a monotonic clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

WALL: Final = frozenset({"now", "time", "time_ns"})
UNSET: Final = frozenset({"steady", "steady_unpaused", "monotonic", "monotonic_ns", "perf_counter"})
"""The functions that return moments of each kind; `elapsed` is of the latter kind, too."""

_CALL_OF: Final = r"\b(?:{})\("
_WALL_CALL: Final = re.compile(_CALL_OF.format("|".join(WALL)))
_UNSET_CALL: Final = re.compile(_CALL_OF.format("|".join(UNSET | {"elapsed"})))

PACKAGES: Final = ("server", "actions", "amperage", "pipeline")


def kinds(node: ast.AST) -> set[str]:
    """Return which kinds of moments an expression reads, "wall" or "unset"."""
    found = set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute | ast.Name):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else part.func.id
            if name in WALL and not _is_date(part.func):
                found.add("wall")
            if name in UNSET | {"elapsed"}:
                found.add("unset")
    return found


def _is_date(function: ast.expr) -> bool:
    """Return whether it is `datetime.now`, which takes a time zone, and is for people."""
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "datetime"


def mixtures(text: str) -> Iterator[int]:
    """Yield the lines of expressions that take both kinds of moments.

    A variable counts as what its function assigns to it.
    """
    if not (_WALL_CALL.search(text) and _UNSET_CALL.search(text)):
        return  # parsing all sources takes seconds
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        variables: dict[str, set[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = ast.unparse(node.targets[0])
                if isinstance(node.value, ast.Call | ast.BinOp):
                    variables.setdefault(target, set()).update(kinds(node.value))
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp | ast.Compare):
                used = kinds(node)
                for part in ast.walk(node):
                    if isinstance(part, ast.Name | ast.Attribute):
                        used |= variables.get(ast.unparse(part), set())
                if len(used) > 1:
                    yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_no_expression_takes_moments_of_both_kinds(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in paths for line in mixtures(path.read_text())
    ]
    allowed = {
        path for path in found if path.startswith("server/app/wiring/loop_clock.py")
    }  # where the two are compared on purpose
    assert set(found) == allowed


MIXED: Final = [
    "def f(self):\n    return self.clock.now() - self.clock.steady()",
    "def f(self):\n    now = clock.now()\n    return now > clock.steady_unpaused()",
    "def f(self):\n    begun = time.monotonic()\n    return time.time() - begun",
]


@pytest.mark.parametrize("text", MIXED)
def test_a_mixture_is_found(text: str) -> None:
    assert list(mixtures(text))
