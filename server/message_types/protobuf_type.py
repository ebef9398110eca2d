"""The message type `protobuf`: bodies of one message of a `.proto` file.

The protobuf runtime parses bodies: its C parser reads all fields in less time than a loop in Python
needs to skip them. Paths are resolved against the definition beforehand, so that a read is a few
attribute look-ups.

Semantics (AMPS User Guide, Protobuf Message Types):

- A field that is not in the body is its default, if the definition gives one or the syntax is
  proto3 and the field has no presence of its own; otherwise NULL. So is a field of a `oneof` that
  is not set, and everything in a sub-message that is absent.
- A sub-message that is present has no value but is not NULL either: it reads as TRUE.
- An entry of a map is a step: `/prices/IBM`. Enumerations are Integers.
- proto2 has delta messages but no select lists, proto3 the other way round. For a delta, a default
  that is not in the body is no value. A difference keeps required fields, without which receivers
  could not parse it.
- A body that cannot be parsed has no fields at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from server.message_types.base import BodyError, Capabilities, MessageTypeError
from server.message_types.literal import LiteralType
from server.message_types.path_tree import MAX_DEPTH
from server.message_types.proto_compiler import compile_message, source_files
from server.message_types.raw_trees import retained_field_tree
from server.message_types.trees import read_path
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from server.message_types.base import Extractor, Value
    from server.message_types.options import MessageTypeOptions
    from server.message_types.paths import Path
    from server.message_types.raw_trees import RetainedFields
    from server.message_types.registry import Find
    from server.message_types.select_list import FieldSelection
    from server.message_types.trees import Tree

    Reader: TypeAlias = Callable[[Message], Value]

_CAPABILITIES = {
    "proto2": Capabilities(delta=True, build=False, select=False),
    "proto3": Capabilities(delta=False, build=False, select=True),
}


class ProtobufType(LiteralType):
    """`protobuf`.

    Options:
        ProtoPath: repeatable, at least one; `alias;directory` or a directory.
        ProtoFile: the file that defines the message.
        Type: the message, with its package.

    Attributes:
        source_files: the files of the definition.
    """

    def __init__(self, name: str, options: MessageTypeOptions, _find: Find) -> None:
        proto_paths = options.texts("ProtoPath")
        if not proto_paths:
            raise MessageTypeError("ProtoPath", "at least one is required: [alias;]directory")
        proto_file = _required(options, "ProtoFile", "the .proto file that defines the message")
        type_name = _required(options, "Type", "the message with its package, such as orders.Order")
        options.refuse_unknown()
        self.name = name
        self._class, syntax = compile_message(proto_paths, proto_file, type_name)
        self.capabilities = _CAPABILITIES[syntax]
        self.source_files = source_files(proto_paths, self._class)

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        parse = self._class.FromString
        descriptor = cast("Descriptor", self._class.DESCRIPTOR)
        readers = [_reader(descriptor, path) for path in paths]
        nothing: tuple[Value, ...] = (None,) * len(paths)

        def extract(body: bytes) -> tuple[Value, ...]:
            try:
                message = parse(body)
            except DecodeError:
                return nothing
            return tuple([read(message) for read in readers])

        return extract

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`: arrays are replaced, maps merged by key."""
        if not self.capabilities.delta:
            return super().merge(stored, delta, nulls=nulls)
        message = self._parse(stored)
        update = self._parse(delta)
        _clear_arrays(message, update)
        message.MergeFrom(update)
        return message.SerializePartialToString(deterministic=True)

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`. Fields that are
        not in the definition are left out."""
        if not self.capabilities.delta:
            return super().differ(previous, current, keep)
        message = self._parse(current)
        message.DiscardUnknownFields()
        changed = _clear_equal(message, self._parse(previous), retained_field_tree(keep))
        return message.SerializePartialToString(deterministic=True) if changed else None

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`. Fields that are not in the definition
        follow `+/` and `-/`."""
        if not self.capabilities.select:
            return super().select(body, selection)
        message = self._parse(body)
        if not selection.include:
            message.DiscardUnknownFields()
        _select(message, selection)
        return message.SerializePartialToString(deterministic=True)

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded (see `server.message_types.pretty`).

        Raises:
            BodyError: the body cannot be parsed.
        """
        content: dict[str, Tree] = MessageToDict(
            self._parse(body), preserving_proto_field_name=True
        )
        return content

    def _parse(self, body: bytes) -> Message:
        try:
            return self._class.FromString(body)
        except DecodeError as error:
            name = self._class.DESCRIPTOR.full_name
            raise BodyError(f"protobuf: the body is no {name}: {error}") from None


def _required(options: MessageTypeOptions, option: str, meaning: str) -> str:
    text = options.text(option)
    if not text or not text.strip():
        raise MessageTypeError(option, f"required: {meaning}")
    return text.strip()


# Reading


def _reader(descriptor: Descriptor, path: Path) -> Reader:
    """Make a function that reads one path from a message of this type."""
    field = descriptor.fields_by_name.get(str(path[0]))
    if field is None or len(path) > MAX_DEPTH:
        return lambda _: None
    rest = path[1:]
    if field.is_repeated:
        return lambda message: read_path(_tree(message, field, rest), rest)
    if field.message_type is None:
        read = _scalar_reader(field)
        return read if not rest else lambda message: read_path(cast("Tree", read(message)), rest)
    name = field.name
    while rest and rest[0] == 0:  # a value that is no array is its own element 0
        rest = rest[1:]
    if not rest:
        return lambda message: True if message.HasField(name) else None
    if not isinstance(rest[0], str):
        return lambda _: None
    inner = _reader(field.message_type, rest)
    return lambda message: inner(getattr(message, name)) if message.HasField(name) else None


def _scalar_reader(field: FieldDescriptor) -> Reader:
    name = field.name
    if _is_text(field):
        if _is_always_there(field):
            return lambda message: getattr(message, name).decode("utf-8", "surrogateescape")
        return lambda message: (
            getattr(message, name).decode("utf-8", "surrogateescape")
            if message.HasField(name)
            else None
        )
    if _is_always_there(field):
        return lambda message: getattr(message, name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _is_text(field: FieldDescriptor) -> bool:
    return field.type in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


def _is_always_there(field: FieldDescriptor) -> bool:
    """Return whether a field that is not in the body has a value."""
    if field.has_presence:
        return field.has_default_value and field.containing_oneof is None
    return True


def _tree(message: Message, field: FieldDescriptor, rest: Path) -> Tree:
    """Convert a field for `read_path` to read `rest`: only the values on the path."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map_tree(getattr(message, field.name), field.message_type, rest)
    if field.is_repeated:
        return [_value_tree(value, field, rest) for value in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name) and not _is_always_there(field):
        return None
    return _value_tree(getattr(message, field.name), field, rest)


def _value_tree(value: Any, field: FieldDescriptor, rest: Path) -> Tree:
    if field.message_type is None:
        return bytes_to_text(value) if isinstance(value, bytes) else cast("Tree", value)
    names = [position for position, step in enumerate(rest) if isinstance(step, str)]
    if not names:
        return True
    name = str(rest[names[0]])
    inner = field.message_type.fields_by_name.get(name)
    return {} if inner is None else {name: _tree(value, inner, rest[names[0] + 1 :])}


_KEYS: dict[int, Callable[[str], object]] = {
    FieldDescriptor.CPPTYPE_STRING: lambda text: text.encode().decode(),
    FieldDescriptor.CPPTYPE_BOOL: lambda text: {"true": True, "false": False}[text],
}


def _map_tree(entries: Any, entry: Descriptor, rest: Path) -> Tree:
    """Convert a map of a message: the entry at `rest`, or no entry if `rest` begins with no key."""
    if not rest or not isinstance(rest[0], str):
        return {}
    try:
        key = _KEYS.get(entry.fields_by_name["key"].cpp_type, int)(rest[0])
        if key not in entries:
            return {}
    except (ValueError, KeyError):  # text that is no key of this map, or out of its range
        return {}
    return {rest[0]: _value_tree(entries[key], entry.fields_by_name["value"], rest[1:])}


# Rebuild; a field here may also be an extension, which is no attribute of its message


def _get(message: Any, field: FieldDescriptor) -> Any:
    if field.is_extension:
        return message.Extensions[field]
    return getattr(message, field.name)


def _is_present(message: Any, field: FieldDescriptor) -> bool:
    if field.is_repeated:
        return len(_get(message, field)) > 0
    if field.is_extension:
        return bool(message.HasExtension(field))
    return bool(message.HasField(field.name))


def _clear(message: Any, field: FieldDescriptor) -> None:
    if field.is_extension:
        message.ClearExtension(field)
    else:
        message.ClearField(field.name)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _clear_arrays(message: Message, update: Message) -> None:
    """Clear the arrays of a message that an update replaces; `MergeFrom` would append."""
    for field, value in update.ListFields():
        if field.is_repeated:
            if not _is_map(field):
                _clear(message, field)
        elif field.message_type is not None and _is_present(message, field):
            _clear_arrays(_get(message, field), value)


def _clear_equal(message: Message, previous: Message, kept: RetainedFields) -> bool:
    """Remove unchanged fields, except kept and required ones.

    Returns:
        True if a field has changed.
    """
    changed = False
    for field, value in message.ListFields():
        below = kept.get(field.name)
        if below == {}:
            continue
        if not _is_present(previous, field):
            changed = True
        elif _is_map(field):
            changed |= _clear_equal_entries(value, _get(previous, field))
        elif field.message_type is not None and not field.is_repeated:
            inner_changed = _clear_equal(value, _get(previous, field), below or {})
            changed |= inner_changed
            if not inner_changed and not below and not field.is_required:
                _clear(message, field)
        elif value != _get(previous, field):
            changed = True
        elif not field.is_required:
            _clear(message, field)
    return changed


def _clear_equal_entries(entries: Any, previous: Any) -> bool:
    for key in list(entries):
        if key in previous and entries[key] == previous[key]:
            del entries[key]
    return len(entries) > 0


def _select(message: Message, selection: FieldSelection) -> None:
    """Remove the fields that a selection excludes."""
    for field, value in message.ListFields():
        rule = selection.children.get(field.name)
        if rule is None:
            keep = selection.include
        elif field.message_type is None or not rule.children:
            keep = rule.include
        elif _is_map(field):
            keep = _select_entries(value, field.message_type, rule) or rule.include
        elif field.is_repeated:
            keep = _select_elements(value, rule) or rule.include
        else:
            _select(value, rule)
            keep = rule.include or bool(value.ListFields())
        if not keep:
            _clear(message, field)


def _select_elements(messages: Any, rule: FieldSelection) -> bool:
    for index in reversed(range(len(messages))):
        _select(messages[index], rule)
        if not rule.include and not messages[index].ListFields():
            del messages[index]
    return len(messages) > 0


def _select_entries(entries: Any, entry: Descriptor, rule: FieldSelection) -> bool:
    holds_messages = entry.fields_by_name["value"].message_type is not None
    for key in list(entries):
        text = str(key).lower() if isinstance(key, bool) else str(key)
        of_key = rule.children.get(text)
        if of_key is None or not holds_messages or not of_key.children:
            keep = (of_key or rule).include
        else:
            _select(entries[key], of_key)
            keep = of_key.include or bool(entries[key].ListFields())
        if not keep:
            del entries[key]
    return len(entries) > 0
