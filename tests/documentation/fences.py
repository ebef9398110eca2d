"""The fenced blocks of all pages, and what becomes of each.

Every block says its language, and every language has one test that runs its blocks (RUN_BY). What
cannot be run says why, in a comment that no reader sees, on the line before the block:

    <!-- not run: it needs systemd, and root -->
    <!-- run by: tests/cli/test_service.py -->

Other comments there help to run a block: see the modules that ask for `Fence.note`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

RUN_BY: Final = {
    "console": "test_console.py",
    "python": "test_python.py",
    "xml": "test_fragments.py",
    "json": "test_data.py",
    "toml": "test_data.py",
    "yaml": "test_data.py",
    "sql": "test_python.py",
    "mermaid": "tests/test_architecture.py",
    "text": "nobody: it is no code",
}
"""Which test runs the blocks of a language."""

_FENCE: Final = re.compile(
    r"(?P<notes>(?:^[ ]*<!--[ ][^\n]*[ ]-->\n)*)"
    r"^(?P<indent>[ ]*)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_NOTE: Final = re.compile(r"<!-- (?P<kind>[a-z ]+?)(?:: (?P<value>.*?))? -->")


@dataclass(frozen=True)
class Fence:
    """A block.

    Attributes:
        page: its page, from the root of the repository.
        line: where it begins.
        language: what stands behind the marks.
        text: what is in it.
        notes: comments before it, as pairs of kind and value.
    """

    page: str
    line: int
    language: str
    text: str
    notes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def note(self, kind: str) -> str | None:
        """The value of a comment before it ("" for one without); None where there is none."""
        return dict(self.notes).get(kind)


def pages() -> list[Path]:
    """Every page of the documentation."""
    outer = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "sample_configs" / "README.md"]
    return [*outer, *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def all_fences() -> tuple[Fence, ...]:
    """The blocks of all pages, in their order."""
    return tuple(fence for page in pages() for fence in _fences_of(page))


def fences(*languages: str, page: str | None = None) -> list[Fence]:
    """The blocks to be run.

    Args:
        languages: of these.
        page: of this page only.
    """
    return [
        fence
        for fence in all_fences()
        if fence.language in languages
        and fence.note("not run") is None
        and fence.note("run by") is None
        and page in (None, fence.page)
    ]


def _fences_of(page: Path) -> Iterator[Fence]:
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        notes = tuple(
            (note["kind"], note["value"] or "") for note in _NOTE.finditer(found["notes"])
        )
        indent = found["indent"]
        body = (
            re.sub(f"^{indent}", "", found["text"], flags=re.MULTILINE) if indent else found["text"]
        )
        line = text.count("\n", 0, found.start("language")) + 1
        yield Fence(str(page.relative_to(ROOT)), line, found["language"], body, notes)


def python_files(page: str) -> dict[str, str]:
    """The blocks of a page that are files: their first line is a comment with the name."""
    named = (
        (re.match(r"# ([\w/]+\.py)\n", fence.text), fence) for fence in fences("python", page=page)
    )
    return {name[1]: fence.text for name, fence in named if name}
