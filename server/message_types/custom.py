"""Custom message types: Python modules named by a configuration's `<Library>`.

The library is the name of an importable module (`acme.feeds`) or the path of a file
(`./modules/feed.py`). It has a function

    def create_message_type(name: str, options: Mapping[str, Sequence[str]]) -> MessageType

which returns an object with everything that `server.message_types.base.MessageType` lists, and
raises `MessageTypeError` for options that it does not understand.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from server.message_types.base import Capabilities, MessageType, MessageTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

ENTRY_POINT = "create_message_type"

_MEMBERS = tuple(member for member in vars(MessageType) if not member.startswith("_"))


def load_custom(name: str, library: str, options: Mapping[str, Sequence[str]]) -> MessageType:
    """Load a library and let it make the type.

    Raises:
        MessageTypeError: the library cannot be loaded, or what it makes is not a message type.
    """
    module = _load_file(library) if _is_file(library) else _load_module(library)
    entry = getattr(module, ENTRY_POINT, None)
    if not callable(entry):
        raise MessageTypeError("Library", f"{library} has no function {ENTRY_POINT}(name, options)")
    made = entry(name, options)
    missing = ", ".join(member for member in _MEMBERS if not hasattr(made, member))
    if missing:
        made_by = f"{library}: {ENTRY_POINT} returned {type(made).__name__}"
        raise MessageTypeError("Library", f"{made_by}, which lacks {missing}")
    if not isinstance(made.capabilities, Capabilities):
        raise MessageTypeError("Library", f"{library}: capabilities must be a Capabilities object")
    checked: MessageType = made
    return checked


def _is_file(library: str) -> bool:
    return library.endswith((".py", ".so")) or "/" in library


def _load_module(library: str) -> ModuleType:
    try:
        return importlib.import_module(library)
    except (ImportError, SyntaxError) as error:
        raise MessageTypeError("Library", f"cannot import {library}: {error}") from error


def _load_file(library: str) -> ModuleType:
    path = FilePath(library)
    if path.suffix != ".py":
        raise MessageTypeError(
            "Library", f"{library} is not a Python module: expected a .py file or a module's name"
        )
    if not path.is_file():
        raise MessageTypeError("Library", f"there is no file {library}")
    module_name = f"amperage_library_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise MessageTypeError("Library", f"cannot load {library}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        del sys.modules[module_name]
        raise MessageTypeError("Library", f"cannot load {library}: {error}") from error
    return module
