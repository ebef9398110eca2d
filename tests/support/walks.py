"""The drawn walks of docs/architecture.md: which functions they name, and in which order.

As a program it is `ampServer`, and writes down which of them are called.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from server.cli import amp_server

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
TRACE: Final = "walked.txt"
"""Where the functions stand that a process has called: in the directory that it starts in."""

_DRAWING: Final = re.compile(r"(?ms)^## ([^\n]+)\n(?:(?!^## ).)*?```mermaid\n(.*?)```")
_NAME: Final = re.compile(r"\b(?:actions|client|config_schema|pipeline|server)(?:\.\w+)+")


def walks() -> dict[str, list[str]]:
    """The names in each walk, in their order, by the heading that it stands under."""
    page = PAGE.read_text()
    return {heading: _NAME.findall(drawing) for heading, drawing in _DRAWING.findall(page)}


def trace() -> None:
    """From now on, have this process write down which functions of the walks it calls."""
    names = {name for walk in walks().values() for name in walk}
    ends = {name.rpartition(".")[2] for name in names} | {"__init__"}
    file = os.open(TRACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name in ends:
            qualified = frame.f_code.co_qualname.removesuffix(".__init__")
            name = f"{frame.f_globals.get('__name__')}.{qualified}"
            if name in names:
                os.write(file, f"{name}\n".encode())

    threading.setprofile(note)
    sys.setprofile(note)


if __name__ == "__main__":
    trace()
    sys.exit(amp_server.main(sys.argv[1:]))
