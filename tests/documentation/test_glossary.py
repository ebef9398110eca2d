"""docs/glossary.md: each term has a class or module that exists, and stands in one row."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

from tests.support.server import ROOT

PAGE: Final = (ROOT / "docs" / "glossary.md").read_text()
ROWS: Final = re.findall(
    r"^\| (?!term|---)(.+?) \| .+? \| (?:`(\w+)` in )?\[(.+?)\]", PAGE, re.MULTILINE
)


def test_each_term_is_defined_once() -> None:
    assert len(ROWS) > 60
    assert [term for term, count in Counter(term for term, _, _ in ROWS).items() if count > 1] == []


def test_the_classes_and_modules_exist() -> None:
    for term, name, path in ROWS:
        tree = ast.parse((ROOT / path).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        assert not name or name in defined, (term, name, path)
