"""The chaining key generator: all messages of a chain of ids get the key of the chain's first id.

The *primary* field of a message holds its own id, *secondary* fields hold the ids of messages that
it follows. All ids that are known to belong together form a chain:

    {"id": 1}                a new chain; its key is made from 1
    {"id": 2, "parent": 1}   2 joins the chain of 1
    {"id": 3, "parent": 2}   so does 3
    {"id": 2}                known: the same chain

An unknown id in a secondary field counts as if it had been a message of its own: it heads a new
chain, unless another id of the message is already in a chain; then it joins that one. A message
with ids in different chains has no key.

With validation, an unknown secondary id with a known primary one is refused as well: if its own
message had come first, there would have been two chains to join.

Source: AMPS User Guide, Chaining Key Generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from config_schema.units import UnitError, parse_bool
from server.expressions import semantics
from server.message_types.base import MessageType, Value
from server.message_types.paths import Path, PathError, parse_path
from server.storage.sow.keys.chain_file import ChainFile
from server.storage.sow.keys.errors import KeyModuleError
from server.storage.sow.keys.key_source import KeyHash, KeyRefusedError
from server.util.encoding import bytes_to_text


class ChainingOptions(NamedTuple):
    """The generator's options.

    Attributes:
        primary: the field with a message's own id.
        secondary: the fields with ids of messages that it follows.
        file_name: the file that stores the chains.
        is_validating: refuse messages that seem to have come in the wrong order.
    """

    primary: Path
    secondary: tuple[Path, ...]
    file_name: str
    is_validating: bool


def chaining_options(options: Mapping[str, Sequence[str]]) -> ChainingOptions:
    """Read the options.

    Raises:
        KeyModuleError: an option is missing, unknown or wrong.
    """
    option_names = ("Key", "Primary", "Secondary", "FileName", "Validation")
    for name in options:
        if name not in option_names:
            raise KeyModuleError(name, f"unknown option, expected one of {', '.join(option_names)}")
    primaries = list(options.get("Primary", ()))
    secondaries = [*options.get("Key", ()), *options.get("Secondary", ())]
    if not primaries and options.get("Key"):
        primaries = [secondaries.pop(0)]
    if len(primaries) != 1:
        raise KeyModuleError("Primary", "expected one primary field: a Primary, or the first Key")
    if not secondaries:
        raise KeyModuleError("Secondary", "expected at least one secondary field")
    file_names = options.get("FileName", ())
    if len(file_names) != 1 or not file_names[0]:
        raise KeyModuleError("FileName", "expected one file, which keeps the chains")
    try:
        validation = parse_bool(options.get("Validation", ("false",))[-1])
    except UnitError as error:
        raise KeyModuleError("Validation", str(error)) from None
    return ChainingOptions(
        _path("Primary", primaries[0]),
        tuple(_path("Secondary", text) for text in secondaries),
        file_names[0],
        validation,
    )


def _path(option: str, text: str) -> Path:
    try:
        return parse_path(text)
    except PathError as error:
        raise KeyModuleError(option, str(error)) from None


class ChainingKeys:
    """The key source of one topic.

    Args:
        domain: the topic's name.
        message_type: the topic's message type.
        options: the fields, and whether to validate.
        file: stores the chains.
    """

    def __init__(
        self, domain: str, message_type: MessageType, options: ChainingOptions, file: ChainFile
    ) -> None:
        self._hash: Final = KeyHash(domain)
        self._extract: Final = message_type.extractor((options.primary, *options.secondary))
        self._is_validating: Final = options.is_validating
        self.file: Final = file
        self._key_by_id = {chained_id: str(key) for chained_id, key in file.load()}

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._key_by_id)

    def key(self, body: bytes, given: str | None) -> str:  # noqa: ARG002 - keys are generated
        """See `KeySource.key`."""
        primary, secondary = self._read_ids(body)
        ids = secondary if primary is None else [primary, *secondary]
        if not ids:
            return self._hash.hash_values([None])
        keys = {key for text in ids if (key := self._key_by_id.get(text)) is not None}
        if len(keys) > 1:
            raise KeyRefusedError(
                f"the ids {', '.join(ids)} of the message belong to different chains"
            )
        if self._is_validating and primary in self._key_by_id:
            for text in secondary:
                if text not in self._key_by_id:
                    raise KeyRefusedError(
                        f"the message chains {primary} to {text}, which has not been seen although "
                        f"{primary} has: they seem to have come in the wrong order"
                    )
        key = keys.pop() if keys else self._hash.hash_text(secondary[0] if secondary else ids[0])
        self._add_to_chain(ids, key)
        return key

    def learn_key(self, body: bytes, key: str) -> None:
        """Learn the SOW key that a message got at another instance.

        Its ids join that chain, except for those in another one.

        Raises:
            RecordStoreError: the key cannot be stored.
        """
        primary, secondary = self._read_ids(body)
        if key.isdecimal():  # other keys are not of a chain
            self._add_to_chain(secondary if primary is None else [primary, *secondary], key)

    def _read_ids(self, body: bytes) -> tuple[str | None, list[str]]:
        """Return the id in the primary field of a message, and those in the secondary fields."""
        values = self._extract(body)
        return _id(values[0]), [text for value in values[1:] if (text := _id(value)) is not None]

    def _add_to_chain(self, ids: Sequence[str], key: str) -> None:
        """Add the unknown ones of these ids to a chain."""
        unknown = [text for text in dict.fromkeys(ids) if text not in self._key_by_id]
        if unknown:
            self.file.append(unknown, int(key))
            self._key_by_id.update(dict.fromkeys(unknown, key))

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _id(value: Value) -> str | None:
    octets = semantics.octets(value)
    return None if octets is None else bytes_to_text(octets)
