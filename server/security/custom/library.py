"""Loads custom modules: Python modules that a configuration's `<Library>` names.

A library may be for authentication (`authentication.py`), for entitlement (`entitlement.py`), or
for both. Each purpose has its own factory function, which receives the name of the module and its
options, and raises `ValueError` for options that it does not understand. Modules run on a thread
of their own, outside the engine; while one call waits, others are processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from server.util.plugin_loader import explain, load_entry_point

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, Options
    from server.util.log_protocol import ServerLog


class CustomModuleError(ValueError):
    """A library cannot be used. The text says which and why."""


def make_module(module: ModuleSpec, options: Options, entry_point: str, method: str) -> object:
    """Load a library and make a module with its factory function.

    Args:
        module: the module as the configuration loads it.
        options: its options, where it is used.
        entry_point: the name of the factory function.
        method: a method that the made object must have.

    Raises:
        CustomModuleError: the library cannot be loaded, or the made object cannot be used.
        LibraryError: likewise.
    """
    create = load_entry_point(module.library, entry_point, "name, options")
    values: Mapping[str, Sequence[str]] = {
        option.name: list(options.all(option.name)) for option in options
    }
    try:
        instance: object = create(module.name, values)
    except ValueError as error:
        raise CustomModuleError(f"{module.name}: {error}") from error
    except Exception as error:  # third-party code may raise anything
        raise CustomModuleError(f"{module.name}: {entry_point} failed: {explain(error)}") from error
    if not callable(getattr(instance, method, None)):
        raise CustomModuleError(
            f"{module.library}: {entry_point} returned {type(instance).__name__},"
            f" which lacks {method}"
        )
    return instance


def clear_module_cache(module: object, name: str, log: ServerLog, *about: object) -> None:
    """Call a module's function `forget`, if it has one.

    Args:
        module: the object that a library has made.
        name: its name in the configuration.
        log: receives an entry on failure.
        about: the arguments: the user concerned, where there is one.
    """
    forget = getattr(module, "forget", None)
    if not callable(forget):
        return
    try:
        forget(*about)
    except Exception as error:  # third-party code may raise anything
        log.emit("25-0041", module=name, problem=explain(error))
