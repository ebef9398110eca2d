"""The registry of message types, by the name of their module in the configuration.

`BUILT_IN` is an explicit list: an implementation is imported when a configuration first uses it, so
that an instance without, say, protobuf never loads it. An implementation is a class; its arguments
are the type's name, its `MessageTypeOptions` and a function that finds other types by name
(composite types have parts).

Any other module is a custom one: a Python module that `<Library>` names, see `load_custom`.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from server.message_types.base import MessageTypeError
from server.message_types.custom import load_custom
from server.message_types.options import MessageTypeOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from server.message_types.base import MessageType

    Find: TypeAlias = Callable[[str], MessageType]
    Factory: TypeAlias = Callable[[str, MessageTypeOptions, Find], MessageType]

BUILT_IN: Mapping[str, str] = {
    "bflat": "server.message_types.bflat.BFlatType",
    "binary": "server.message_types.binary.BinaryType",
    "bson": "server.message_types.bson_type.BsonType",
    "composite-global": "server.message_types.composite.CompositeGlobalType",
    "composite-local": "server.message_types.composite.CompositeLocalType",
    "fix": "server.message_types.fix.FixType",
    "json": "server.message_types.json_type.JsonType",
    "msgpack": "server.message_types.msgpack_type.MsgpackType",
    "nvfix": "server.message_types.fix.FixType",
    "protobuf": "server.message_types.protobuf_type.ProtobufType",
    "struct": "server.message_types.struct_type.StructType",
    "xml": "server.message_types.xml_type.XmlType",
}
"""Module name -> class (AMPS User Guide, Default Message Types)."""

DECLARED = ("bflat", "binary", "bson", "fix", "json", "msgpack", "nvfix", "xml")
"""Message types that exist without a `<MessageType>`: they need no options."""


def create(
    name: str,
    module: str,
    options: Mapping[str, Sequence[str]],
    *,
    find: Find | None = None,
    libraries: Mapping[str, str] | None = None,
) -> MessageType:
    """Make one message type.

    Args:
        name: the type's name in the configuration.
        module: a key of `BUILT_IN` or of `libraries`.
        options: the elements of the `<MessageType>` except Name and Module, each with its values in
            order.
        find: finds a type defined earlier, by name; by default only the declared types.
        libraries: name -> `<Library>` of the configuration's modules, for custom types.

    Raises:
        MessageTypeError: the module is unknown or cannot be loaded, or an option is wrong.
    """
    if module in BUILT_IN:
        path, _, class_name = BUILT_IN[module].rpartition(".")
        factory: Factory = getattr(importlib.import_module(path), class_name)
        return factory(name, MessageTypeOptions(options), find or MessageTypes().get)
    libraries = libraries or {}
    if module in libraries:
        return load_custom(name, libraries[module], options)
    near = get_close_matches(module, [*BUILT_IN, *libraries], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise MessageTypeError("Module", f"there is no message type module {module!r}{hint}")


class MessageTypes:
    """The message types of one instance: the declared ones and those of its configuration."""

    def __init__(self, libraries: Mapping[str, str] | None = None) -> None:
        self._libraries = libraries
        self._types: dict[str, MessageType] = {}

    def define(self, name: str, module: str, options: Mapping[str, Sequence[str]]) -> MessageType:
        """Make a type and register it for `get`; a declared type may be redefined with other
        options.

        Raises:
            MessageTypeError: see `create`.
        """
        message_type = create(name, module, options, find=self.get, libraries=self._libraries)
        self._types[name] = message_type
        return message_type

    def get(self, name: str) -> MessageType:
        """Find a type by its name.

        Raises:
            MessageTypeError: there is no type of that name.
        """
        if name not in self._types and name in DECLARED:
            self.define(name, name, {})
        try:
            return self._types[name]
        except KeyError:
            near = get_close_matches(name, [*self._types, *DECLARED], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise MessageTypeError(None, f"message type {name!r} is not defined{hint}") from None
