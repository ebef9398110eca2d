"""Detects modules of an application that shadow the packages beside this one.

These packages have common names, such as `server`. Python imports the first module of that name in
`sys.path`, which may be an application's.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

_HOME: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("server", "config_schema", "actions", "pipeline")
"""The packages beside this one."""


def foreign_origin(name: str) -> str | None:
    """Return the origin of a module that shadows one of Amperage's packages.

    Args:
        name: the name of the package, such as "server".

    Returns:
        The file or directory of the foreign module, or its name if it has neither; None if the name
        resolves to Amperage's package or to nothing.
    """
    try:
        spec = find_spec(name)
    except ValueError:  # an imported module without a spec, created by code
        return name
    if spec is None:
        return None
    directories = [spec.origin] if spec.origin is not None else []
    directories += spec.submodule_search_locations or []
    if any(Path(directory).resolve().is_relative_to(_HOME / name) for directory in directories):
        return None
    return directories[0] if directories else name
