"""What CONTRIBUTING.md and README.md name is there: files, targets of make, tests, benchmarks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from benchmarks.__main__ import BENCHMARKS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text()
README: Final = (ROOT / "README.md").read_text()
PERFORMANCE: Final = (ROOT / "docs" / "performance.md").read_text()
PLACEHOLDER: Final = "NAME"

_WORDS: Final = re.compile(r"`([^`\s]+)`")
_LINKS: Final = re.compile(r"\]\(([^)#:]+)\)")
_FILE: Final = re.compile(r"[\w./]+(/|\.(md|py|toml|txt|xsd))")


def named_files(text: str) -> list[str]:
    """The files and directories that a text links to, or has between backticks."""
    words = [word for word in _WORDS.findall(text) if _FILE.fullmatch(word)]
    return [path for path in [*words, *_LINKS.findall(text)] if PLACEHOLDER not in path]


def test_the_files_exist() -> None:
    named = named_files(PAGE)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_files_that_the_readme_links_to_exist() -> None:
    assert [path for path in _LINKS.findall(README) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("text", [PAGE, README], ids=["CONTRIBUTING.md", "README.md"])
def test_the_targets_of_make_exist(text: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"[`$] ?make ([a-z]+)", text))
    assert named
    assert named <= targets


def test_the_tests_that_are_run_exist() -> None:
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", PAGE)
    assert [
        path for path, _ in named if PLACEHOLDER not in path and not (ROOT / path).exists()
    ] == []
    single = [(path, test) for path, test in named if test]
    assert single
    assert all(f"def {test}(" in (ROOT / path).read_text() for path, test in single)


def test_the_benchmarks_exist() -> None:
    """Those that the pages name are those that there are, and each can be run."""
    documented = re.findall(r"^python -m benchmarks (\w+)", PERFORMANCE, re.MULTILINE)
    assert sorted(documented) == sorted([*BENCHMARKS, "profile"])
    assert set(re.findall(r"-m benchmarks (\w+)", PAGE)) <= set(documented)
    modules = [(ROOT / "benchmarks" / f"{name}.py").read_text() for name in BENCHMARKS]
    assert all("\ndef main(" in module for module in modules)


def test_every_recipe_has_ten_lines_at_most() -> None:
    recipes = re.findall(r"^## Adding .*\n\n((?:.+\n)+)", PAGE, re.MULTILINE)
    assert len(recipes) == 7
    assert all(recipe.count("\n") <= 10 for recipe in recipes)
