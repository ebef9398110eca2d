"""The check of commit messages that CONTRIBUTING.md sets up."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

HOOK: Final = Path(__file__).parents[1] / ".githooks" / "commit-msg"


@pytest.mark.process
@pytest.mark.parametrize(
    ("subject", "is_accepted"),
    [
        ("queues: return expired leases in order", True),
        ("storage, topics: one reader of entries", True),
        ("# a comment\n\nserver/journal: check the seal", True),
        ("Merge branch 'main'", True),
        ("Return expired leases in order", False),
        ("queues:", False),
        ("queues: let leases expire in order", False),
        ("client: Say what was lost", False),
        ("queues: " + "x" * 200, False),
        ("", False),
    ],
)
def test_a_subject_names_package_and_change(
    tmp_path: Path, subject: str, is_accepted: bool
) -> None:
    message = tmp_path / "message"
    message.write_text(subject + "\n\nThe reason.\n" if subject else "")
    done = subprocess.run([HOOK, message], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is is_accepted
    assert is_accepted or "expected the package and the change" in done.stderr
