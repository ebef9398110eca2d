"""Writes docs/modules.md from the docstrings of the packages and modules.

Run it after a module was added, renamed or described anew: `make pages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "modules.md"
PACKAGES: Final = ("amperage", "config_schema", "server", "actions", "pipeline")
_HEAD: Final = """\
# Modules

Every module of the product with the first sentence of its docstring.
[architecture.md](architecture.md) explains the packages. This page is generated; after a change of
a module, run `make pages`.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for package in PACKAGES for line in _package(ROOT / package))])


def _package(directory: Path) -> Iterator[str]:
    initial = directory / "__init__.py"
    if not initial.exists():
        return
    yield f"## {directory.relative_to(ROOT)}/\n"
    yield f"{_summary(initial)}\n"
    modules = [file for file in sorted(directory.iterdir()) if _is_module(file)]
    if modules:
        yield "| module | |"
        yield "|---|---|"
        for file in modules:
            link = f"[{file.name}](../{file.relative_to(ROOT)})"
            yield f"| {link} | {_summary(file)} |"
        yield ""
    for inner in sorted(directory.iterdir()):
        if inner.is_dir():
            yield from _package(inner)


def _is_module(file: Path) -> bool:
    return file.suffix in {".py", ".pyx"} and file.name != "__init__.py"


def _summary(file: Path) -> str:
    """Return the first sentence of a module's docstring, as Markdown."""
    found = re.search(r'^r?"""(.*?)"""', file.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    docstring = found[1] if found else ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
