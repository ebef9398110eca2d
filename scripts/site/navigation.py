"""Sphinx extension: the site's navigation is what docs/README.md lists.

Each of its sections is a part of the navigation, with the pages that it links to in lists and
tables. GitHub shows the same page as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from sphinx.application import Sphinx

LIST: Final = "docs/README"

_SECTION: Final = re.compile(r"^## (?P<title>.+)\n(?P<text>(?:(?!^## ).*\n?)*)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^(?:- |\| )\[(?P<title>[^\]]+)\]\((?P<path>[^)#]+)\)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Have Sphinx ask for the navigation when it reads the list."""
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": True}


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the list of pages."""
    if page == LIST:
        source[0] += "".join(_trees(source[0]))


def _trees(text: str) -> Iterator[str]:
    for section in _SECTION.finditer(text):
        entries = [
            f"{entry['title']} <{document(entry['path'])}>"
            for entry in _ENTRY.finditer(section["text"])
        ]
        if entries:
            lines = "\n".join(entries)
            yield f"\n```{{toctree}}\n:hidden:\n:caption: {section['title']}\n\n{lines}\n```\n"


def document(path: str) -> str:
    """How Sphinx calls the page that docs/README.md links to by a path."""
    parts: list[str] = []
    for part in PurePosixPath("docs", path).with_suffix("").parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return f"/{'/'.join(parts)}"
