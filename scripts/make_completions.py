"""Writes `completions/`: what completes the commands in shells, which packages install.

Run it after the options of a command have changed: `make pages`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest.mock import patch

from server.app.completion.scripts import SHELLS, file_name

ROOT: Final = Path(__file__).parents[1]
DIRECTORY: Final = ROOT / "completions"


COMMANDS: Final[Mapping[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())[
    "project"
]["scripts"]
"""The commands that are installed, and where each begins."""


def start_of(name: str) -> Callable[[], int]:
    """The function that a command begins with."""
    module, _, function = COMMANDS[name].partition(":")
    start: Callable[[], int] = getattr(import_module(module), function)
    return start


def completions() -> Iterator[tuple[Path, str]]:
    """The files, by their path in the directory, and their text."""
    for name in COMMANDS:
        for shell in SHELLS:
            yield Path(shell, file_name(shell, name)), _printed(name, shell)


def _printed(name: str, shell: str) -> str:
    """What a command prints for a shell."""
    out = io.StringIO()
    with (
        patch.object(sys, "argv", [name, "--print-completion", shell]),
        contextlib.redirect_stdout(out),
    ):
        try:
            status: object = start_of(name)()
        except SystemExit as ended:
            status = ended.code
    if status:
        raise SystemExit(f"{name} has no completion for {shell}")
    return out.getvalue()


if __name__ == "__main__":
    for path, text in completions():
        (DIRECTORY / path).parent.mkdir(parents=True, exist_ok=True)
        (DIRECTORY / path).write_text(text)
