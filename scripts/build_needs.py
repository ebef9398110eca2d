"""Checks in a moment that Amperage can be compiled here: `make` and setup.py ask before they begin.

It runs with any Python from 3.11 on, and imports nothing that has to be installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

ADVICE: Final = (
    "Amperage has modules that are compiled: it takes a C compiler and the headers of Python."
    " Debian, Ubuntu: apt install gcc python3-dev. Fedora, RHEL: dnf install gcc python3-devel."
    " Or install a wheel that was built elsewhere for the same Python"
)


def missing() -> list[str]:
    """Return the missing requirements of a compilation, in words."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    found = []
    if shutil.which(compiler) is None:
        found.append(f"the C compiler {compiler}")
    if not header.is_file():
        found.append(f"Python's header {header}")
    return found


if __name__ == "__main__":
    if lacking := missing():
        sys.exit(f"Missing: {', '.join(lacking)}. {ADVICE}.")
