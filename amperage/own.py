"""Checks that the packages beside this one are Amperage's.

They have common names, such as `server`. The directory that comes first in `sys.path` decides which
module has such a name, and it may be an application's.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

_HOME: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("server", "config_schema", "actions", "pipeline")
"""What stands beside this one."""


def foreign_origin(name: str) -> str | None:
    """Where a package of ours would be imported from, if that is not ours.

    Args:
        name: such as "server".

    Returns:
        The file or directory of the other's; None if it is ours.
    """
    try:
        spec = find_spec(name)
    except ValueError:  # a module that was made by hand
        return name
    if spec is None:
        return None
    places = [spec.origin] if spec.origin is not None else []
    places += spec.submodule_search_locations or []
    if any(Path(place).resolve().is_relative_to(_HOME / name) for place in places):
        return None
    return places[0] if places else name
