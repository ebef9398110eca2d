"""Which modules of a name are ours, and how to import ours where others have the name.

The packages that stand beside this one have common names: `server`, `client`. Whichever directory
comes first in `sys.path` decides who has such a name, and that may be an application's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

_HOME: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("server", "client", "config_schema", "actions", "pipeline")
"""What stands beside this one."""

_OF_THE_CLIENT: Final = ("client", "server")


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


@contextmanager
def own_packages() -> Iterator[None]:
    """Import our packages within the block, whoever else has their names.

    Modules that others have under these names stay theirs: they are put aside for the block, and
    ours disappear from `sys.modules` behind it. Ours go on working, since they hold on to each
    other.
    """
    contested = [name for name in _OF_THE_CLIENT if foreign_origin(name) is not None]
    if not contested:
        yield
        return
    theirs = _taken(contested)
    home = str(_HOME)
    sys.path.insert(0, home)
    try:
        yield
    finally:
        sys.path.remove(home)
        _taken(contested)
        sys.modules.update(theirs)


def _taken(names: list[str]) -> dict[str, ModuleType]:
    return {
        module: sys.modules.pop(module)
        for module in list(sys.modules)
        if module.partition(".")[0] in names
    }
