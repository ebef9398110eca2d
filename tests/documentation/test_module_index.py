"""docs/modules.md is up to date with the modules and their docstrings."""

from __future__ import annotations

import runpy
from functools import cache

from tests.documentation.fences import ROOT

MADE = runpy.run_path(str(ROOT / "scripts" / "make_module_index.py"))
page = cache(MADE["page"])


def test_the_page_is_up_to_date() -> None:
    assert MADE["PAGE"].read_text("utf-8") == page(), "run: make pages"


def test_every_module_has_a_summary() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| [")]
    assert len(rows) > 1000
    assert [row for row in rows if row.endswith("|  |")] == []
