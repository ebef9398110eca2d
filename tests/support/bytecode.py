"""Each module of tests is compiled by one process of tests, which the others need not do again.

Modules are compiled as they are collected. In a fresh checkout all processes would compile all of
them at the same time, each for itself: ten seconds of a processor for each. So each of them first
imports a share of its own, and finds the rest compiled when it collects tests.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


def import_share(config: pytest.Config) -> None:
    """Import the modules that this process is to compile, if it collects all tests."""
    given: dict[str, object] | None = getattr(config, "workerinput", None)
    if given is None or sys.dont_write_bytecode or not _collects_all(config):
        return
    number, count = int(str(given["workerid"]).removeprefix("gw")), int(str(given["workercount"]))
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    for path in paths[len(paths) * number // count : len(paths) * (number + 1) // count]:
        # What is wrong with a module is said when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _collects_all(config: pytest.Config) -> bool:
    return [Path(argument).resolve() for argument in config.args] == [ROOT / "tests"]
