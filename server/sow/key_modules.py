"""Key generators: modules that a topic's `<KeyGenerator>` names.

Built in is the one for chains of ids. Any other is a Python module that `<Library>` names, with a
function

    def create_key_generator(topic: str, message_type: MessageType,
                             options: Mapping[str, Sequence[str]]) -> KeySource

which raises `KeyModuleError` for options that it does not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Final, TypeAlias

from server.base.libraries import LibraryError, load_entry_point
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
    try:
        return load_entry_point(library, ENTRY_POINT, "topic, message_type, options")
    except LibraryError as error:
        raise KeyModuleError("Library", str(error)) from error
