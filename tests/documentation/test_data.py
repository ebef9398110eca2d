"""JSON, TOML and YAML on the pages can be read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.documentation.fences import Fence, fences

READERS: Final[dict[str, Callable[[str], Any]]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}


@pytest.mark.parametrize("fence", fences(*READERS), ids=str)
def test_it_can_be_read(fence: Fence) -> None:
    assert READERS[fence.language](fence.text)
