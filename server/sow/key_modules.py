"""Key generators: modules that a topic's `<KeyGenerator>` names.

Built in is the one for chains of ids. Any other is a Python module that `<Library>` names by its
import name or its `.py` file, with a function

    def create_key_generator(topic: str, message_type: MessageType,
                             options: Mapping[str, Sequence[str]]) -> KeySource

which raises `KeyModuleError` for options that it does not understand.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from types import ModuleType
from typing import Final, TypeAlias

from server.message_types.base import MessageType
from server.sow.chain_file import ChainFile
from server.sow.chaining import ChainingKeys, chaining_options
from server.sow.key_errors import KeyModuleError
from server.sow.keys import KeySource

Options: TypeAlias = Mapping[str, Sequence[str]]
Factory: TypeAlias = Callable[[str, MessageType, Options], KeySource]

CHAINING: Final = "libamps_id_chaining_key_generator.so"
ENTRY_POINT: Final = "create_key_generator"


def _chaining(topic: str, message_type: MessageType, options: Options) -> KeySource:
    chosen = chaining_options(options)
    return ChainingKeys(topic, message_type, chosen, ChainFile(FilePath(chosen.file_name)))


BUILT_IN: Final[Mapping[str, Factory]] = {CHAINING: _chaining}
"""Base name of a library -> what makes its generators (AMPS User Guide, Optional Modules)."""


def create_key_generator(
    library: str, topic: str, message_type: MessageType, options: Options
) -> KeySource:
    """Make the key generator of a topic.

    Args:
        library: the `<Library>` of the module.
        topic: the topic's name.
        message_type: the topic's message type.
        options: the elements of `<Options>`, each with its values in order.

    Raises:
        KeyModuleError: the library cannot be loaded, or an option is wrong.
        DamagedChainFileError: the chaining generator's file cannot be read.
        OSError: a file of the generator cannot be opened.
    """
    factory = BUILT_IN.get(FilePath(library).name) or _custom(library)
    return factory(topic, message_type, options)


def _custom(library: str) -> Factory:
    module = _load_file(library) if library.endswith((".py", ".so")) else _load_module(library)
    entry = getattr(module, ENTRY_POINT, None)
    if not callable(entry):
        raise KeyModuleError(
            "Library", f"{library} has no function {ENTRY_POINT}(topic, message_type, options)"
        )
    factory: Factory = entry
    return factory


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, SyntaxError) as error:
        raise KeyModuleError("Library", f"cannot import {name}: {error}") from error


def _load_file(library: str) -> ModuleType:
    path = FilePath(library)
    if path.suffix != ".py":
        raise KeyModuleError(
            "Library",
            f"{library} is neither {CHAINING} nor a Python module (a .py file or a module's name)",
        )
    name = f"amperage_library_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise KeyModuleError("Library", f"there is no file {library}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        del sys.modules[name]
        raise KeyModuleError("Library", f"cannot load {library}: {error}") from error
    return module
