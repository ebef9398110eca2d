"""No block of code on the pages is left out of the tests without a reason."""

from __future__ import annotations

import re
from typing import Final

from tests.documentation.fences import ROOT, RUN_BY, all_fences, pages

MAX_NOT_RUN: Final = 18
"""Rather fewer: give `sessions.py`, or `files/`, what they lack."""

GENERATED: Final = ("docs/configuration.md", "docs/messages.md")


def test_every_block_says_its_language() -> None:
    """Which is one that some test runs; output and pictures are `text`."""
    unknown = [
        str(fence)
        for fence in all_fences()
        if fence.language not in RUN_BY and fence.note("not run") is None
    ]
    assert unknown == []


def test_all_blocks_have_fences() -> None:
    """Indented text is code, too, and no test would see it."""
    for page in pages():
        if str(page.relative_to(ROOT)) not in GENERATED:
            text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())
            assert re.findall(r"\n\n(    (?![-*|\d]).*)", text) == [], page


def test_what_is_not_run_is_little_and_says_why() -> None:
    reasons = {str(fence): fence.note("not run") for fence in all_fences()}
    skipped = {where: reason for where, reason in reasons.items() if reason is not None}
    assert [where for where, reason in skipped.items() if len(reason) < 10] == []
    listed = "\n".join(f"{where}: {reason}" for where, reason in skipped.items())
    assert len(skipped) <= MAX_NOT_RUN, listed


def test_what_is_run_elsewhere_is_run_there() -> None:
    named = {name for fence in all_fences() for name in (fence.note("run by") or "").split(", ")}
    assert [name for name in named - {""} if not (ROOT / name).is_file()] == []


def test_the_comments_before_blocks_are_understood() -> None:
    known = {"not run", "run by", "values vary"}
    assert {kind for fence in all_fences() for kind, _ in fence.notes} <= known
