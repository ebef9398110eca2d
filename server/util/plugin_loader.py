"""Python modules that a configuration names as the Library of a Module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class LibraryError(ValueError):
    """A library cannot be loaded. The text names it, and the reason."""


def load_library(library: str) -> ModuleType:
    """Load a library, and return its module.

    Args:
        library: the name of an importable module (`acme.feeds`), or the path of a Python file
            (`./modules/feed.py`).

    Raises:
        LibraryError: there is no such module or file, or it cannot be imported.
    """
    return _load_file(library) if is_file(library) else _import(library)


def load_entry_point(library: str, name: str, arguments: str) -> Callable[..., Any]:
    """Load a library, and return its factory function.

    Args:
        library: as for `load_library`.
        name: the function's name.
        arguments: its arguments as in a call, for the error.

    Raises:
        LibraryError: the library cannot be loaded, or has no such function.
    """
    entry: object = getattr(load_library(library), name, None)
    if not callable(entry):
        raise LibraryError(f"{library} has no function {name}({arguments})")
    return entry


def is_file(library: str) -> bool:
    """Return whether a library is named as a file, and not as a module to import."""
    return library.endswith((".py", ".so")) or "/" in library


def _import(library: str) -> ModuleType:
    try:
        return importlib.import_module(library)
    except Exception as error:  # the library is not ours, running it may raise anything
        raise LibraryError(f"cannot import {library}: {explain(error)}") from error


def _load_file(library: str) -> ModuleType:
    path = Path(library)
    if path.suffix != ".py":
        raise LibraryError(
            f"{library} is not a Python module: expected a .py file or a module's name"
        )
    if not path.is_file():
        raise LibraryError(f"there is no file {library}")
    module_name = f"amperage_library_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise LibraryError(f"cannot load {library}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the library is not ours, running it may raise anything
        del sys.modules[module_name]
        raise LibraryError(f"cannot load {library}: {explain(error)}") from error
    return module


def explain(error: BaseException) -> str:
    """Return the error as text, with its file and line if the library itself raised it."""
    if isinstance(error, ImportError | SyntaxError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    position = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}: " if trace else ""
    return f"{position}{type(error).__name__}: {error}"
