"""The versions of the server, of Python, of packages and of the system."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.cli.doctor.findings import Examination

AREA: Final = "versions"
_DISTRIBUTION: Final = "amperage"


def examine(running: str, examination: Examination) -> None:
    """Collect versions, and compare that of the running server with this one.

    Args:
        running: the version that the server reports; empty if unknown.
        examination: collects the findings.
    """
    packages = {
        name: distribution.version
        for distribution in metadata.distributions()
        if (name := distribution.metadata["Name"])
    }
    examination.facts[AREA] = {
        "amperage": VERSION,
        "amps": AMPS_VERSION,
        "running": running or None,
        "python": sys.version,
        "interpreter": sys.executable,
        "system": _system(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "packages": dict(sorted(packages.items(), key=lambda pair: pair[0].lower())),
    }
    examination.add_ok(
        AREA, "amperage", f"{VERSION}, Python {platform.python_version()}, {_system()}"
    )
    if running and running != VERSION:
        examination.add_attention(
            AREA,
            "the server that runs",
            running,
            f"it is another version than this command's, {VERSION}",
            "restart the server if it was upgraded; else use the commands that came with it",
        )


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = ""
    return f"{name or platform.system()}, kernel {platform.release()}"
