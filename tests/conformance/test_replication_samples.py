"""The samples of replication are right by themselves and together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.server import ROOT, amp_server

SAMPLES: Final = ROOT / "sample_configs" / "replication"
FILES: Final = sorted(SAMPLES.glob("*.xml"))
TOPOLOGIES: Final = ("pair_", "hub spoke_", "chain_", "view_")
"""What the names of the instances of each begin with."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_valid(path: Path) -> None:
    run = amp_server("--verify-config", path)
    assert run.returncode == 0
    assert f"{path} is valid: 0 errors" in run.stderr


@pytest.mark.parametrize("names", [*TOPOLOGIES, ""], ids=[*TOPOLOGIES, "all"])
def test_those_that_belong_together_fit_together(names: str) -> None:
    """By themselves, and all at once, in which no two are in each other's way."""
    paths = [path for path in FILES if path.stem.startswith(tuple(names.split() or [""]))]
    run = amp_server("--verify-config", *paths)
    assert run.returncode == 0
    together = ", ".join(str(path) for path in paths)
    assert run.stderr.endswith(f"\n{together} fit together: 0 errors, 0 warnings\n")


def test_all_belong_to_a_topology_and_say_how_they_are_started() -> None:
    """The first of each with the commands for all, and with what to try."""
    for path in FILES:
        assert path.stem.startswith(tuple(" ".join(TOPOLOGIES).split()))
        text = path.read_text()
        assert f"    ampServer sample_configs/replication/{path.name}\n" in text
        assert re.search("spark|says what to try", text)
