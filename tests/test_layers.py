"""docs/architecture.md, the import contract and the tree agree about layers and packages."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from tests.documentation.fences import fences

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "architecture.md"


@cache
def layers() -> list[str]:
    """The layers of the contract, from the top."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["type"] == "layers")
    return list(contract["layers"])


def test_the_page_has_the_layers_of_the_contract() -> None:
    blocks = [fence.text.splitlines() for fence in fences("text", page="docs/architecture.md")]
    (picture,) = (block for block in blocks if block[0].startswith("7  "))
    numbered = [f"{7 - number}  {layer}" for number, layer in enumerate(layers())]
    assert picture == numbered


def test_every_package_is_in_a_layer() -> None:
    named = re.findall(r"[\w.]+", " ".join(layers()))
    top = {file.parent.name for file in _ROOT.glob("*/__init__.py")}
    inside = {
        ".".join(file.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in ("amperage", "server")
        for file in [*_ROOT.glob(f"{package}/*/__init__.py"), *_ROOT.glob(f"{package}/*.py")]
    }
    packages = (top | inside) - {"amperage", "server", "tests", "benchmarks"}
    for package in sorted(packages):
        parts = [name for name in named if name == package or name.startswith(f"{package}.")]
        assert parts, f"{package} is in no layer"
        if package not in parts:
            path = package.replace(".", "/")
            files = _ROOT.glob(f"{path}/*/__init__.py")
            assert {f"{package}.{file.parent.name}" for file in files} == set(parts), (
                f"a part of {package} is in no layer"
            )


def layer(name: str) -> int | None:
    """The number of the layer that a module is in."""
    for number, line in enumerate(reversed(layers())):
        if any(f"{name}.".startswith(f"{package}.") for package in re.findall(r"[\w.]+", line)):
            return number
    return None


def test_cython_keeps_to_the_layers() -> None:
    """The import contract reads Python only."""
    imports = [
        (".".join(file.relative_to(_ROOT).with_suffix("").parts), imported)
        for package in ("amperage", "pipeline", "server")
        for file in sorted(_ROOT.glob(f"{package}/**/*.p[yx][xd]"))
        for imported in re.findall(r"(?m)^\s*from ([\w.]+) c?import", file.read_text("utf-8"))
    ]
    inside = [(one, other) for one, other in imports if layer(other) is not None]
    assert len(inside) > 30
    upward = [(one, other) for one, other in inside if (layer(one) or 0) < (layer(other) or 0)]
    assert upward == []


def test_the_page_names_every_package() -> None:
    page = _PAGE.read_text("utf-8")
    named = set(re.findall(r"^\| `([\w/]+)/` \|", page, re.MULTILINE))
    packages = {
        str(file.parent.relative_to(_ROOT))
        for pattern in ("*/__init__.py", "server/*/__init__.py", "amperage/*/__init__.py")
        for file in _ROOT.glob(pattern)
    }
    beside = {"server", "tests", "benchmarks", "pyspark_amps", "pyspark_amps_journal"}
    assert named == packages - beside
