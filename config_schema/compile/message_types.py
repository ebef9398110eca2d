"""Message types: built-in and configured types.

Source: AMPS User Guide, Default Message Types and Configuring Message Types.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from config_schema.catalogue import ModuleKind
from config_schema.compile.modules import find_module
from config_schema.compile.reader import ElementReader
from config_schema.compile.scope import Scope, TypeCapabilities
from config_schema.spec import MessageTypeSpec, Option, Options
from config_schema.units import quoted

_COMPLETE: Final = TypeCapabilities()

FORMATS: Final[Mapping[str, TypeCapabilities]] = {
    "fix": _COMPLETE,
    "nvfix": _COMPLETE,
    "xml": _COMPLETE,
    "json": _COMPLETE,
    "bson": _COMPLETE,
    "bflat": _COMPLETE,
    "msgpack": _COMPLETE,
    "binary": TypeCapabilities(fields=False, view=False, enrichment=False),
    "protobuf": TypeCapabilities(view=False, enrichment=False),
    "struct": TypeCapabilities(view=False),
    "composite-local": _COMPLETE,
    "composite-global": TypeCapabilities(view=False),
}
"""The capabilities of the modules of message types."""

BUILT_IN: Final = ("fix", "nvfix", "xml", "json", "bson", "bflat", "msgpack", "binary")
"""Message types that need no definition; each is its module with the default options."""

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "composite-local": ("MessageType",),
    "composite-global": ("MessageType",),
    "protobuf": ("ProtoPath", "ProtoFile", "Type"),
    "struct": ("Field",),
}
"""Elements that a definition cannot do without, by module."""

OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "fix": ("FieldSeparator", "HeaderSeparator", "MessageSeparator"),
    "nvfix": ("FieldSeparator", "HeaderSeparator", "MessageSeparator"),
    "json": ("EarlyTerminationOptimization",),
}
"""Elements that only these modules know."""

_COMMON: Final = ("Name", "Module", "AMPSVersionCompliance", "Options")
_STRUCT_FIELD: Final = re.compile(r"(/\S+)\s*=\s*([@=<>]?)\s*(\d*)\s*([xcbB?hHiIlLqQnNfdsSp])")
_NEEDS_COUNT: Final = "xsSp"
_PACKAGED: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def compile_message_types(root: ElementReader, scope: Scope) -> tuple[MessageTypeSpec, ...]:
    """Compile the MessageTypes section and make every message type known."""
    scope.message_types.update({name: FORMATS[name] for name in BUILT_IN})
    types: dict[str, MessageTypeSpec] = {}
    defined = {
        reader.text("Name") for reader in root.section_children("MessageTypes", "MessageType")
    }
    for reader in root.section_children("MessageTypes", "MessageType"):
        name = reader.required("Name")
        module = reader.text("Module") or _module_called(reader, name)
        if name in types:
            reader.error(f"message type {quoted(name)} is defined twice", tag="Name")
        if module and module not in FORMATS:
            find_module(reader, module, ModuleKind.MESSAGE_TYPE, scope)
        _check_elements(reader, module)
        _check_parts(reader, module, scope, defined)
        scope.message_types[name] = FORMATS.get(module, _COMPLETE)
        types[name] = _spec(reader, name, module)
    return tuple(types.values())


def _module_called(reader: ElementReader, name: str) -> str:
    if name in FORMATS:
        return name
    reader.error(
        "is missing but required: the module that reads messages of this type, "
        f"one of {', '.join(FORMATS)}",
        tag="Module",
    )
    return ""


def _check_elements(reader: ElementReader, module: str) -> None:
    required = REQUIRED.get(module, ())
    for tag in required:
        if not reader.texts(tag):
            reader.error(f"is missing but required by the module {module}", tag=tag)
    if module in FORMATS:
        known = (*_COMMON, *required, *OPTIONAL.get(module, ()))
        for child in reader.children():
            if child.node.tag not in known and _belongs_to_some_module(child.node.tag):
                child.warning(f"has no effect: the module {module} does not know it")
    for field in reader.children("Field"):
        _check_struct_field(field)
    type_name = reader.text("Type")
    if module == "protobuf" and type_name and not _PACKAGED.fullmatch(type_name):
        reader.error(
            f"{quoted(type_name)} is not the name of a type: expected one such as my.package.Order",
            tag="Type",
        )
    if "FieldSeparator" in OPTIONAL.get(module, ()):
        for tag in OPTIONAL[module]:
            _check_separator(reader, tag)


def _check_parts(
    reader: ElementReader, module: str, scope: Scope, defined: Collection[str | None]
) -> None:
    """Check the parts of a composite type, which are types that exist or stand before it."""
    if not module.startswith("composite-"):
        return
    for part in reader.children("MessageType"):
        if part.value in defined and part.value not in scope.message_types:
            part.error(
                f"message type {quoted(part.value)} is not defined before this place",
                "move its MessageType up",
            )
        else:
            scope.check_message_type(part, part.value)


def _belongs_to_some_module(tag: str) -> bool:
    tables = (*REQUIRED.values(), *OPTIONAL.values())
    return any(tag in table for table in tables)


def _check_struct_field(field: ElementReader) -> None:
    match = _STRUCT_FIELD.fullmatch(field.value)
    if match is None:
        field.error(
            f"{quoted(field.value)} is not a field: expected a path, an equals sign, and a format "
            "of Python's struct such as /id = i or /code = 16s"
        )
    elif match[4] in _NEEDS_COUNT and not match[3]:
        field.error(f"{quoted(field.value)} needs a number of bytes before {match[4]}")


def _check_separator(reader: ElementReader, tag: str) -> None:
    text = reader.text(tag)
    if text is not None and not (text.isascii() and text.isdigit() and int(text) < 256):
        reader.error(
            f"{quoted(text)} is not a separator: expected the code of a character, from 0 to 255",
            tag=tag,
        )


def _spec(reader: ElementReader, name: str, module: str) -> MessageTypeSpec:
    options = [
        Option(child.node.tag, child.value, (), child.location)
        for child in reader.children()
        if child.node.tag not in _COMMON
    ]
    nested = reader.child("Options")
    if nested:
        options += [
            Option(child.node.tag, child.value, (), child.location) for child in nested.children()
        ]
    return MessageTypeSpec(
        name=name,
        module=module,
        version_compliance=int(reader.choice("AMPSVersionCompliance", ("2", "4", "5"), "4")),
        options=Options(tuple(options)),
        location=reader.location,
    )
