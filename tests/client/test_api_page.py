"""docs/client_api.md is what the docstrings make it, and has every public name."""

from __future__ import annotations

import re
import runpy

from amperage import client
from tests.documentation.fences import ROOT

PAGE = ROOT / "docs" / "client_api.md"


def test_the_page_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_client_api.py"))
    assert PAGE.read_text("utf-8") == made["page"](), "run: python scripts/make_client_api.py"


def test_the_page_has_every_public_name() -> None:
    text = PAGE.read_text("utf-8")
    named = set(re.findall(r"^### (\w+)$|^\| `(\w+)` \|", text, re.MULTILINE))
    assert {one or other for one, other in named} == set(client.__all__)
