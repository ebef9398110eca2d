"""Modules of one's own: Python modules named by a configuration's `<Library>`.

A library may be for authentication (`authentication.py`), for entitlement (`entitlement.py`), or
for both. What it is for is made by a function of its own, which gets the name of the module and its
options, and raises `ValueError` for options that it does not understand. What it makes runs on a
thread of its own, beside the engine; while one question waits, others are answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from server.base.libraries import explain, load_entry_point

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, Options
    from server.base.log import Log


class CustomError(ValueError):
    """A library cannot be used. The text says which and why."""


def make_module(module: ModuleSpec, options: Options, entry_point: str, method: str) -> object:
    """Load a library and let it make a module.

    Args:
        module: the module as the configuration loads it.
        options: its options, where it is used.
        entry_point: the function that makes it.
        method: what it has to have.

    Raises:
        CustomError: the library cannot be loaded, or what it makes cannot be used.
        LibraryError: likewise.
    """
    create = load_entry_point(module.library, entry_point, "name, options")
    given: Mapping[str, Sequence[str]] = {
        option.name: list(options.all(option.name)) for option in options
    }
    try:
        made: object = create(module.name, given)
    except ValueError as error:
        raise CustomError(f"{module.name}: {error}") from error
    except Exception as error:  # the library is not ours, it may raise anything
        raise CustomError(f"{module.name}: {entry_point} failed: {explain(error)}") from error
    if not callable(getattr(made, method, None)):
        raise CustomError(
            f"{module.library}: {entry_point} returned {type(made).__name__}, which lacks {method}"
        )
    return made


def have_forget(module: object, name: str, log: Log, *about: object) -> None:
    """Have a module forget what it keeps, if it has a function `forget`.

    Args:
        module: what a library has made.
        name: what the configuration calls it.
        log: told when it fails.
        about: whom it is about.
    """
    forget = getattr(module, "forget", None)
    if not callable(forget):
        return
    try:
        forget(*about)
    except Exception as error:  # the library is not ours, it may raise anything
        log.emit("25-0041", module=name, problem=explain(error))
