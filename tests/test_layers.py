"""The picture of the rooms, the contract that is checked, and the tree say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.documentation.fences import fences

_ROOT = Path(__file__).parents[1]


def layers() -> list[str]:
    """The lines of the contract, as the picture names the rooms."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["type"] == "layers")
    return [re.sub(r"\b(server|amperage)\.", "", line) for line in contract["layers"]]


def test_the_picture_has_the_layers_of_the_contract() -> None:
    blocks = [fence.text.splitlines() for fence in fences("text", page="docs/architecture.md")]
    (picture,) = (block for block in blocks if block[1].startswith("scripts "))
    assert [line.split("  ")[0] for line in picture] == layers()


def test_every_room_has_a_place() -> None:
    rooms = re.findall(r"\w+", " ".join(layers()))
    built = [room for room in rooms if f"({room})" not in " ".join(layers())]
    packages = [file.parent for file in _ROOT.glob("*/__init__.py")]
    inside = [
        file.parent
        for house in ("amperage", "server")
        for file in _ROOT.glob(f"{house}/*/__init__.py")
    ]
    beside = [
        file
        for house in ("amperage", "server")
        for file in _ROOT.glob(f"{house}/*.py")
        if file.stem != "__init__"
    ]
    houses = {place.name for place in packages} - {"amperage", "server", "tests", "benchmarks"}
    assert sorted(built) == sorted(houses | {place.stem for place in [*inside, *beside]})
