"""Key generators: the modules that a topic's `<KeyGenerator>` names.

The one for chains of ids is built in. Any other is a Python module that `<Library>` names, with a
function

    def create_key_generator(topic: str, message_type: MessageType,
                             options: Mapping[str, Sequence[str]]) -> KeySource

which returns an object with the method `key` of `server.storage.sow.keys.key_source.KeySource`, and
raises `KeyModuleError` for options that it does not understand. A later error of the generator
costs only the message that needed the key (`LibraryKeys`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Final, TypeAlias

from server.message_types.base import MessageType
from server.storage.sow.keys.chain_file import ChainFile
from server.storage.sow.keys.chaining import ChainingKeys, chaining_options
from server.storage.sow.keys.errors import KeyModuleError
from server.storage.sow.keys.key_source import KeyRefusedError, KeySource
from server.util.plugin_loader import LibraryError, explain, load_entry_point

GeneratorOptions: TypeAlias = Mapping[str, Sequence[str]]
GeneratorFactory: TypeAlias = Callable[[str, MessageType, GeneratorOptions], KeySource]

CHAINING: Final = "libamps_id_chaining_key_generator.so"
ENTRY_POINT: Final = "create_key_generator"

_MAX_KEY_LENGTH: Final = 65_535
"""Characters of a key; publishers may not give longer ones either."""


def _chaining(topic: str, message_type: MessageType, options: GeneratorOptions) -> KeySource:
    parsed = chaining_options(options)
    return ChainingKeys(topic, message_type, parsed, ChainFile(FilePath(parsed.file_name)))


BUILT_IN: Final[Mapping[str, GeneratorFactory]] = {CHAINING: _chaining}
"""Base name of a library -> factory of its generators (AMPS User Guide, Optional Modules)."""


def create_key_generator(
    library: str, topic: str, message_type: MessageType, options: GeneratorOptions
) -> KeySource:
    """Create the key generator of a topic.

    Args:
        library: the `<Library>` of the module.
        topic: the topic's name.
        message_type: the topic's message type.
        options: the elements of `<GeneratorOptions>`, each with its values in order.

    Raises:
        KeyModuleError: the library cannot be loaded, or an option is wrong.
        DamagedChainFileError: the chaining generator's file cannot be read.
        FileInUseError: another process has the file open.
        OSError: a file of the generator cannot be opened.
    """
    base_name = FilePath(library).name.removesuffix(".so")
    factory = BUILT_IN.get(f"{base_name}.so") or _custom(library)
    return factory(topic, message_type, options)


class LibraryKeys:
    """Keys of a library, which may fail, or return an invalid key.

    Args:
        source: the library's key source.
    """

    __slots__ = ("_make_key",)

    def __init__(self, source: KeySource) -> None:
        self._make_key = source.key

    def key(self, body: bytes, given: str | None) -> str:
        """See `KeySource.key`."""
        try:
            key = self._make_key(body, given)
        except KeyRefusedError:
            raise
        except Exception as error:  # the library is not ours, it may raise anything
            raise KeyRefusedError(f"the key generator failed: {explain(error)}") from error
        if not _is_key(key):
            raise KeyRefusedError(
                f"the key generator gave {key!r:.80}:"
                f" expected a text of 1 to {_MAX_KEY_LENGTH} characters"
            )
        return key


def _is_key(key: object) -> bool:
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY_LENGTH:
        return False
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _custom(library: str) -> GeneratorFactory:
    try:
        create = load_entry_point(library, ENTRY_POINT, "topic, message_type, options")
    except LibraryError as error:
        raise KeyModuleError("Library", str(error)) from error

    def factory(topic: str, message_type: MessageType, options: GeneratorOptions) -> KeySource:
        try:
            source = create(topic, message_type, options)
        except KeyModuleError:
            raise
        except Exception as error:  # see above
            text = f"{library}: {ENTRY_POINT} failed: {explain(error)}"
            raise KeyModuleError("Library", text) from error
        if not callable(getattr(source, "key", None)):
            text = f"{library}: {ENTRY_POINT} returned {type(source).__name__}, which lacks key"
            raise KeyModuleError("Library", text)
        return LibraryKeys(source)

    return factory
