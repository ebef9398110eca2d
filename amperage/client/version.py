"""The installed version of the client."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Final

_DISTRIBUTIONS: Final = ("amperage", "amperage-client")


@cache
def installed_version() -> str:
    """Return the version of the distribution that has the client; empty if none is installed."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
