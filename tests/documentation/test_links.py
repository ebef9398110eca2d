"""Links from page to page lead to files, headings and anchors that exist.

`test_site.py` proves the same by building the site, which takes minutes of a processor; this one
takes a second, and runs in `make check`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.server import ROOT

PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "sample_configs" / "README.md"]
)

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?!\w+:)([^()\s#]*)(?:#([^()\s]+))?\)")
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_ANCHOR: Final = re.compile(r"""<a (?:id|name)=["']([^"']+)["']""")


@cache
def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    return _FENCE.sub("", page.read_text())


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what a link may name after the `#`: anchors, and headings in GitHub's form."""
    text = prose(page)
    return frozenset(_ANCHOR.findall(text)) | {slug(each) for each in _HEADING.findall(text)}


def slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST make of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for path, anchor in _LINK.findall(prose(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(f"{path}#{anchor}")
    assert broken == []
