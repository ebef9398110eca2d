"""The client of Amperage.

    from amperage import HAClient

The package contains the whole client, so that an application can have its own `client.py` or
`server.py`.
"""

from __future__ import annotations

import typing as _typing
from importlib import import_module as _import_module
from pathlib import Path as _Path

from amperage.compiled_modules import choose as _choose

_choose(_Path(__file__).parents[1])

if _typing.TYPE_CHECKING:
    from amperage.client import *  # noqa: F403 - at run time, __getattr__ returns these names

    __version__: str
else:  # hidden from type checkers, so that they report a missing name

    def __getattr__(name: str) -> _typing.Any:
        """Import the client when one of its names is first used, so that commands start fast."""
        if name == "__version__":
            from amperage.client.version import installed_version

            return installed_version()
        if not name.startswith("__") or name == "__all__":
            client = _import_module("amperage.client")
            if name in client.__all__ or name == "__all__":
                globals().update({one: getattr(client, one) for one in client.__all__})
                globals()["__all__"] = list(client.__all__)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__getattr__("__all__"), "__version__"])
