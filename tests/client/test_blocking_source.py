"""The blocking client's commands and stream are those of the asyncio client, without `await`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = runpy.run_path(str(ROOT / "scripts" / "make_blocking_client.py"))


@pytest.mark.process  # ruff sorts and formats what the script makes
@pytest.mark.parametrize("name", SCRIPT["SOURCES"])
def test_the_blocking_module_is_what_its_source_makes(name: str) -> None:
    """Edit the source, then run `make pages`."""
    assert (SCRIPT["CLIENT"] / name).read_text() == SCRIPT["blocking_source"](name)
