"""Lists the fields that a body has, for message types whose bodies describe themselves.

A field is a path to values. Names in the elements of arrays are fields, too, as in identifiers of
the expression language (server/message_types/trees.py): `{"legs": [{"px": 1}]}` has `/legs/px`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from server.message_types.base import BodyError
from server.message_types.bflat import BFlatType
from server.message_types.composite import (
    CompositeGlobalType,
    CompositeLocalType,
    leading_parts,
)
from server.message_types.fix import FixType
from server.message_types.json_type import JsonType
from server.message_types.paths import PathError, parse_path
from server.message_types.pretty import TreeDecoder
from server.message_types.struct_type import StructType
from server.message_types.xml_tree import name_of, parse_readable
from server.message_types.xml_type import XmlType
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from lxml import etree

    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.message_types.trees import Tree

MAX_FIELD_DEPTH: Final = 3
"""Names of a path, below the root element of XML, or below the number of a composite's part."""

MAX_LISTED_BODY: Final = 256 * 1024
"""Bytes of the longest body that is parsed to list its fields."""

_MAX_ELEMENTS: Final = 100
"""Elements of an array that are searched for fields."""

FieldLister: TypeAlias = Callable[[bytes], Iterable["Path"]]
"""Lists the fields of a body, perhaps repeatedly. It never raises: a body that cannot be read has
no fields."""


def field_lister(message_type: MessageType) -> FieldLister | None:
    """Return a function that lists the fields of bodies; None if the type has none to list."""
    if not message_type.capabilities.fields:
        return None
    if isinstance(message_type, CompositeLocalType | CompositeGlobalType):
        return _composite_lister(message_type)
    if isinstance(message_type, FixType):
        return _fix_lister(message_type)
    if isinstance(message_type, XmlType):
        return _list_xml_fields
    if isinstance(message_type, JsonType):
        return _tree_lister(_decode_json)
    if isinstance(message_type, StructType):
        return _struct_lister(message_type)
    if isinstance(message_type, BFlatType):
        list_tags = _tree_lister(message_type.tree)
        return lambda body: [tuple(str(tag).split("/")) for tag, *_ in list_tags(body)]
    if isinstance(message_type, TreeDecoder):
        return _tree_lister(message_type.tree)
    return None


def _tree_lister(decode: Callable[[bytes], object]) -> FieldLister:
    def list_fields(body: bytes) -> Iterable[Path]:
        try:
            tree = decode(body)
        except (msgspec.DecodeError, BodyError, ValueError, RecursionError):
            return ()
        return _list_tree_fields(tree, ())

    return list_fields


def _decode_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace")
        if "\ufffd" not in text:
            raise
        return msgspec.json.decode(text)  # all that was wrong may be bytes that are no UTF-8


def _list_tree_fields(node: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the scalars and arrays below a node; MAX_FIELD_DEPTH bounds recursion."""
    if isinstance(node, dict):
        if len(path) < MAX_FIELD_DEPTH:
            for name, value in node.items():
                yield from _list_tree_fields(value, (*path, str(name)))
    elif isinstance(node, list):
        elements = node[:_MAX_ELEMENTS]
        if path and not any(isinstance(element, dict) for element in elements):
            yield path
        for element in elements:
            if isinstance(element, dict):
                yield from _list_tree_fields(element, path)
    elif path:
        yield path


def _fix_lister(message_type: FixType) -> FieldLister:
    separator = bytes([message_type.separator])

    def list_fields(body: bytes) -> Iterator[Path]:
        for field in message_type.normalize_separators(body).split(separator):
            tag, sign, _ = field.partition(b"=")
            if sign and tag:
                yield tuple(bytes_to_text(tag).split("/"))

    return list_fields


def _struct_lister(message_type: StructType) -> FieldLister:
    paths = []
    for text in cast("dict[str, Tree]", message_type.tree(b"")):
        try:
            paths.append(parse_path(text))
        except PathError:
            continue
    return lambda _body: paths


def _list_xml_fields(body: bytes) -> Iterator[Path]:
    root = parse_readable(body)
    return iter(()) if root is None else _list_elements(root, ())


def _list_elements(element: etree._Element, path: tuple[str, ...]) -> Iterator[Path]:
    """Yield the paths of attributes, and of elements without other elements in them."""
    for child in element.iterchildren("*"):
        child_path = (*path, name_of(child))
        for attribute in child.keys():  # noqa: SIM118 - an element iterates over its children
            if not attribute.startswith("{"):  # of no namespace
                yield (*child_path, f"@{attribute}")
        if not len(child):
            yield child_path
        elif len(child_path) <= MAX_FIELD_DEPTH:
            yield from _list_elements(child, child_path)


def _composite_lister(message_type: CompositeLocalType | CompositeGlobalType) -> FieldLister | None:
    listers = [field_lister(child) for child in message_type.children]
    is_local = isinstance(message_type, CompositeLocalType)

    def list_fields(body: bytes) -> Iterator[Path]:
        parts, _ = leading_parts(body, len(listers))
        for number, (lister, part) in enumerate(zip(listers, parts, strict=False)):
            if lister is not None and part:
                for path in lister(part):
                    yield (str(number), *path) if is_local else path

    return list_fields
