"""The message type `xml`: elements are fields, their attributes `@name`.

Sibling elements of one name are an array. All values are text, and an element without content is
NULL. Bodies are rebuilt from the parsed tree: unaffected elements keep their text; comments,
processing instructions and the XML declaration are not kept.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from lxml import etree

from server.message_types.base import BodyError, Capabilities, TypeWithoutOptions
from server.message_types.select_list import FieldSelection, selection_of
from server.message_types.xml_tree import (
    MAX_DEPTH,
    attribute_key,
    children,
    name_of,
    parse,
    parse_readable,
    render,
    text_for,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import Extractor, FieldValue, Value
    from server.message_types.paths import Path

_NO_FIELDS = FieldSelection(include=False)


class XmlType(TypeWithoutOptions):
    """`xml`; it has no options."""

    capabilities = Capabilities(typed=False)

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        empty: tuple[Value, ...] = (None,) * len(paths)
        too_deep = [len(_elements(path)) > MAX_DEPTH for path in paths]

        def extract(body: bytes) -> tuple[Value, ...]:
            root = parse_readable(body)
            if root is None:
                return empty
            return tuple(
                [
                    None if deep else _read(root, path)
                    for path, deep in zip(paths, too_deep, strict=True)
                ]
            )

        return extract

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`."""
        return self.update(b"", fields)

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`."""
        root = parse(stored)
        _merge(root, parse(delta), nulls=nulls)
        return render(root)

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`."""
        changed, difference = _differ(parse(previous), parse(current), selection_of(keep))
        return render(difference) if changed else None

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`."""
        root = parse(body)
        _select(root, selection)
        return render(root)

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        root = parse(body)
        for path, value in fields:
            try:
                _set(root, path, value)
            except ValueError as error:  # a name that is invalid in XML
                raise BodyError(f"XML: {error}") from None
        return render(root)


def _elements(path: Path) -> list[str]:
    return [step for step in path if isinstance(step, str) and not step.startswith("@")]


def _read(root: etree._Element, path: Path) -> Value:
    nodes = [root]
    *above, last = path
    while isinstance(last, int) and above and isinstance(above[-1], int):
        *above, last = above  # a value's element 0 is the value itself
    subscript = last if isinstance(last, int) else None
    steps = above if subscript is not None else [*above, last]
    attribute = str(steps[-1])[1:] if str(steps[-1]).startswith("@") else None
    for step in steps if attribute is None else steps[:-1]:
        if isinstance(step, int):
            nodes = nodes[step : step + 1]
        else:
            nodes = [child for node in nodes for child in children(node, step)]
    if attribute is None:
        values = [text_of(node) for node in nodes]
    else:
        attributes = [node.get(attribute_key(node, attribute)) for node in nodes]
        values = [value or None for value in attributes if value is not None]
    if subscript is not None:
        return values[subscript] if subscript < len(values) else None
    return list(values) if len(values) > 1 else values[0] if values else None


def _children_by_tag(parent: etree._Element) -> dict[str, list[etree._Element]]:
    groups: dict[str, list[etree._Element]] = {}
    for child in parent:
        groups.setdefault(str(child.tag), []).append(child)
    return groups


def _merge(stored: etree._Element, delta: etree._Element, *, nulls: bool) -> None:
    """Apply a delta to an element: one element merges into one, several replace all of the name."""
    for name, value in delta.items():
        if nulls or value:
            stored.set(name, value)
    if text_of(delta) is not None:
        stored.text = delta.text
    olds_by_tag = _children_by_tag(stored)
    for tag, new_nodes in _children_by_tag(delta).items():
        olds = olds_by_tag.get(tag, [])
        are_null = all(map(_is_null, new_nodes))
        if len(new_nodes) == 1 and len(olds) == 1 and not (nulls and are_null):
            _merge(olds[0], new_nodes[0], nulls=nulls)
        elif nulls or not are_null:
            _replace(stored, olds, new_nodes)


def _is_null(element: etree._Element) -> bool:
    return not len(element) and not element.attrib and not element.text


def _replace(
    parent: etree._Element, old_nodes: Sequence[etree._Element], new_nodes: Sequence[etree._Element]
) -> None:
    """Replace the old elements by new ones at the place of the first, or append them."""
    for new in new_nodes:
        new.tail = None
        if old_nodes:
            old_nodes[0].addprevious(new)
        else:
            parent.append(new)
    for old in old_nodes:
        parent.remove(old)


def _differ(
    previous: etree._Element, current: etree._Element, keep: FieldSelection
) -> tuple[bool, etree._Element]:
    """Return whether an element differs outside the kept fields, and the difference to send."""
    difference = etree.Element(current.tag, nsmap=current.nsmap)
    changed = False
    for name, value in current.items():
        if keep.includes((f"@{name}",)):
            difference.set(name, value)
        elif value != previous.get(name):
            changed = True
            difference.set(name, value)
    if text_of(current) != text_of(previous):
        changed = True
        difference.text = current.text
    before = _children_by_tag(previous)
    for tag, new_nodes in _children_by_tag(current).items():
        rule = keep.children.get(name_of(new_nodes[0]), _NO_FIELDS) if keep.children else _NO_FIELDS
        olds = before.get(tag, [])
        if rule.include:
            difference.extend(map(_copy, new_nodes))
        elif len(new_nodes) == 1 and len(olds) == 1:
            if _is_same_leaf(olds[0], new_nodes[0]):
                continue
            inner_changed, inner = _differ(olds[0], new_nodes[0], rule)
            changed = changed or inner_changed
            if inner_changed or len(inner) or inner.attrib:
                difference.append(inner)
        elif list(map(_text, new_nodes)) != list(map(_text, olds)):
            changed = True
            difference.extend(map(_copy, new_nodes))
    return changed, difference


def _is_same_leaf(left: etree._Element, right: etree._Element) -> bool:
    plain = not (len(left) or len(right) or left.attrib or right.attrib)
    return plain and left.text == right.text


def _copy(element: etree._Element) -> etree._Element:
    copied = deepcopy(element)
    copied.tail = None
    return copied


def _text(element: etree._Element) -> bytes:
    return etree.tostring(element, encoding="utf-8", with_tail=False)


def _select(element: etree._Element, selection: FieldSelection) -> None:
    """Remove the parts of an element that a selection excludes."""
    for name in list(element.attrib):
        if not selection.includes((f"@{name}",)):
            del element.attrib[name]
    if not selection.include:
        element.text = None
    for child in list(element):
        if not selection.include:
            child.tail = None
        rule = selection.children.get(name_of(child))
        if rule is None:
            keep = selection.include
        else:
            _select(child, rule)
            keep = rule.include or not _is_null(child)
        if not keep:
            element.remove(child)


def _set(root: etree._Element, path: Path, value: Value) -> None:
    names = [step for step in path if isinstance(step, str)]
    if len(_elements(path)) > MAX_DEPTH:
        raise BodyError(f"XML: elements nest deeper than {MAX_DEPTH}")
    *above, last = names
    parent = root
    for name in above:
        nodes = children(parent, name)
        parent = nodes[0] if nodes else _new(parent, name)
    if last.startswith("@"):
        key = attribute_key(parent, last[1:])
        text = text_for(value[0] if isinstance(value, list) else value)
        parent.attrib.pop(key, None)
        if text is not None:
            parent.set(key, text)
        return
    values = value if isinstance(value, list) else [value]
    elements = children(parent, last)
    for extra in elements[len(values) :]:
        parent.remove(extra)
    elements += [_new(parent, last) for _ in values[len(elements) :]]
    for element, scalar in zip(elements, values, strict=False):
        del element[:]
        element.text = text_for(scalar)


def _new(parent: etree._Element, name: str) -> etree._Element:
    prefix, _, local = name.rpartition(":")
    if prefix and prefix not in parent.nsmap:
        raise BodyError(f"XML: the prefix of {name} is not declared")
    element: etree._Element = etree.SubElement(
        parent, f"{{{parent.nsmap[prefix]}}}{local}" if prefix else local
    )
    return element
