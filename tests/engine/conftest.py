"""Instances for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.incoming import Make, Prepare
from tests.engine.replicas import Replica


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes instances."""
    made: list[Replica] = []

    def make(name: str, prepare: Prepare = lambda _: None, **more: Any) -> Replica:
        made.append(Replica(name, tmp_path, prepare=prepare, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
