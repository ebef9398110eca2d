"""The client, under a name that nothing else has.

    from amperage import HAClient

Everything is that of the package `client`. An application that has a `client.py` or a `server.py`
of its own can use this name only: to it, `client` and `server` are its own modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amperage.client import *  # noqa: F403 - all of it is given, at run time by __getattr__

    __version__: str


def __getattr__(name: str) -> Any:
    """Import the client when something of it is asked for: commands begin without it."""
    from amperage.own import own_packages

    if name == "__version__":
        from config_schema.version import VERSION

        return VERSION
    with own_packages():
        from amperage import client
    if name != "__all__" and name not in client.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update({exported: getattr(client, exported) for exported in client.__all__})
    globals()["__all__"] = list(client.__all__)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), "__version__"})
