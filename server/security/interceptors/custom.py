"""Custom transport filters: Python modules named by a configuration's `<Library>`.

The library has a function

    def create_transport_filter(name: str, options: Mapping[str, Sequence[str]]) -> TransportFilter

which returns an object with the members of `server.security.interceptors.base.TransportFilter`, and
raises `FilterError` for invalid options.
"""

from __future__ import annotations

from typing import Final

from config_schema.spec import ModuleSpec, ModuleUse
from server.security.interceptors.base import FilterError, TransportFilter
from server.util.plugin_loader import LibraryError, explain, load_entry_point

ENTRY_POINT: Final = "create_transport_filter"

_MEMBERS: Final = ("header_only", "filter")


def load_filter(module: ModuleSpec, use: ModuleUse) -> TransportFilter:
    """Load a library, and return the filter that it makes.

    Args:
        module: the module as the configuration loads it; its options are defaults for all uses.
        use: the use of the module; its options override those of the module.

    Raises:
        FilterError: the library cannot be loaded, fails, or does not return a transport filter.
    """
    try:
        create = load_entry_point(module.library, ENTRY_POINT, "name, options")
    except LibraryError as error:
        raise FilterError(f"{module.location}: {error}") from error
    options: dict[str, list[str]] = {}
    for source in (module.options, use.options):
        options |= {option.name: list(source.all(option.name)) for option in source}
    try:
        instance: TransportFilter = create(module.name, options)
    except FilterError as error:
        raise FilterError(f"{use.location}: {module.name}: {error}") from error
    except Exception as error:  # the library is not ours, it may raise anything
        raise FilterError(
            f"{use.location}: {module.name}: {ENTRY_POINT} failed: {explain(error)}"
        ) from error
    missing = ", ".join(member for member in _MEMBERS if not hasattr(instance, member))
    if missing:
        raise FilterError(
            f"{module.location}: {module.library}: {ENTRY_POINT} returned"
            f" {type(instance).__name__}, which lacks {missing}"
        )
    return instance
