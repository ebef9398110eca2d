"""The structure of a configuration: which elements, how often, with which kind of value.

Synonyms are renamed first, so that the schema and all later stages know one name per element.
Then xmlschema validates the whole tree against amps_config.xsd. It reports the element that
violates a rule; this module composes the message from the schema's documentation of that element,
because the author of a configuration does not read XSD.

Errors that show only when several places are compared (a name that is not defined, an expression
that does not parse) are left to the compiler.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from xmlschema import XMLSchemaChildrenValidationError, XMLSchemaValidationError
from xmlschema.validators import XsdAttributeGroup, XsdElement, XsdGroup

from config_schema import schema, suggest
from config_schema.document import ConfigDocument, ConfigNode
from config_schema.problems import Problems
from config_schema.schema import ElementDoc
from config_schema.units import (
    UnitError,
    parse_bool,
    parse_count,
    parse_inet_address,
    parse_interval,
    parse_octal_mask,
    parse_size,
    quoted,
)
from config_schema.version import AMPS_VERSION

MAX_VIOLATIONS: Final = 500
"""Further violations are not reported: such a file is not a configuration with a few errors."""

_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "interval": parse_interval,
    "size": parse_size,
    "count": parse_count,
    "boolean": parse_bool,
    "fileMask": parse_octal_mask,
    "inetAddr": parse_inet_address,
}
"""Simple types of the schema with a parser that gives the best error message for a bad value."""


def validate(document: ConfigDocument, problems: Problems) -> ConfigNode:
    """Check the structure of a configuration, or of the part that could be read.

    ConfigValidation `disabled` skips the schema; the compiler replaces values that it cannot use,
    and refuses those for which it has no replacement.

    Args:
        document: the configuration as read.
        problems: collects violations, and a note for each element that has no effect.

    Returns:
        The tree in canonical names, with or without problems.
    """
    if document.root.tag != schema.ROOT:
        problems.error(
            document.root,
            document.root.tag,
            f"the outermost element of a configuration is {schema.ROOT}",
        )
        return document.root
    root = _canonical(document.root, schema.ROOT)
    _check_versions(root, problems)
    if not validates(root):
        node = root.find("ConfigValidation") or root
        problems.warning(
            node, _label(root, node), "the configuration is used without checking its structure"
        )
        return root
    tree = _to_element(root, schema.ROOT, schema.ROOT)
    for violation in islice(_violations(tree), MAX_VIOLATIONS):
        problems.error(*violation)
    _remark(tree, problems)
    return root


class _Element(Element):
    """An element for xmlschema, with its node, its path, and its name in messages."""

    node: ConfigNode
    path: str
    label: str


class _Violation(NamedTuple):
    """The arguments of Problems.error."""

    where: ConfigNode
    element: str
    message: str
    hint: str | None = None


def _canonical(node: ConfigNode, path: str) -> ConfigNode:
    names = schema.synonyms(path)
    children = []
    for child in node.children:
        tag = names.get(child.tag, child.tag)
        synonym = child.tag if tag != child.tag else None
        children.append(replace(_canonical(child, f"{path}/{tag}"), tag=tag, synonym=synonym))
    return replace(node, children=tuple(children))


def validates(root: ConfigNode) -> bool:
    """Return true if a configuration is to be validated; only a valid `disabled` turns that off."""
    try:
        return parse_bool(root.value("ConfigValidation", "enabled") or "")
    except UnitError:
        return True


def _check_versions(root: ConfigNode, problems: Problems) -> None:
    """Compare with the implemented version (AMPS User Guide, AMPS Process Options)."""
    for name, report in (
        ("RequiredMinimumVersion", problems.error),
        ("SuggestedMinimumVersion", problems.warning),
    ):
        for node in root.all(name):
            if not node.is_incomplete and _version(node.text) > _version(AMPS_VERSION):
                implemented = f"this server implements {AMPS_VERSION}"
                report(
                    node, _label(root, node), f"asks for AMPS {node.text} or later; {implemented}"
                )


def _version(text: str) -> list[int]:
    """Return the numbers of a version; trailing zeros do not count."""
    numbers = [int(number) for number in re.findall(r"\d+", text[:100])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _to_element(node: ConfigNode, path: str, label: str) -> _Element:
    element = _Element(node.tag, dict(node.attributes))
    element.text = node.text
    element.node = node
    element.path = path
    element.label = label
    element.extend(
        _to_element(child, f"{path}/{child.tag}", _label(node, child)) for child in node.children
    )
    return element


def _violations(tree: _Element) -> Iterator[_Violation]:
    explained = set()  # xmlschema repeats itself for every bad child or attribute of an element
    for error in schema.load_schema().iter_errors(tree):
        element = error.elem
        if not isinstance(element, _Element):
            raise TypeError(f"a violation without its element: {error.reason}")
        if element.path not in schema.elements():
            continue  # where any element is tolerated, it may be another AMPSConfig
        kind = (element, type(error), type(error.validator))
        if kind not in explained:
            explained.add(kind)
            yield from _explain(element, error)


def _explain(element: _Element, error: XMLSchemaValidationError) -> Iterator[_Violation]:
    if isinstance(error, XMLSchemaChildrenValidationError):
        yield from _wrong_children(element)
    elif isinstance(error.validator, XsdAttributeGroup):
        yield from _unknown_attributes(element)
    elif isinstance(error.validator, XsdGroup):
        expected = "expected elements only"
        yield _violation(element, f"unexpected text {quoted(element.node.text)}: {expected}")
    elif isinstance(error.validator, XsdElement) and len(element):
        yield _violation(element, f"expected text, found the element {element[0].tag}")
    elif not element.node.is_incomplete:
        yield _bad_value(element)


def _wrong_children(element: _Element) -> Iterator[_Violation]:
    """Compare the children of an element with the schema."""
    listed = schema.children(element.path)
    first: dict[str, ConfigNode] = {}
    for child in element.node.children:
        doc = listed.get(child.tag)
        earlier = first.setdefault(child.tag, child)
        label = _label(element.node, child)
        if doc is None and _others(element.path) == "refused":
            hint = suggest.for_element(child.tag, element.path)
            yield _Violation(child, label, "unknown element", hint)
        elif doc and not doc.repeatable and earlier is not child:
            name = "" if earlier.written_tag == child.written_tag else f" as {earlier.written_tag}"
            duplicate = f"it is already at {earlier.location}{name}"
            yield _Violation(child, label, f"given twice: {duplicate}")
    for name, doc in listed.items():
        if doc.required and name not in first and not element.node.is_incomplete:
            expected = f": expected {_content(doc)}"
            label = f"{element.node.written_tag}/{name}"
            yield _Violation(element.node, label, f"is missing but required{expected}")


def _content(doc: ElementDoc) -> str:
    """Return the expected content of an element, for the message that it is missing."""
    inside = [child for child in schema.children(doc.path).values() if child.required]
    names = " and ".join(child.name for child in inside) or " or ".join(schema.children(doc.path))
    if not names:
        return doc.expected
    return f"{doc.expected} or {names}" if doc.expected else f"an element with {names} in it"


def _unknown_attributes(element: _Element) -> Iterator[_Violation]:
    for name in element.node.attributes:
        suggestion = suggest.nearest(name, schema.children(element.path))
        hint = f"write it as an element, <{suggestion}>" if suggestion else None
        yield _violation(element, f"unknown attribute {quoted(name)}", hint)


def _bad_value(element: _Element) -> _Violation:
    text, doc = element.node.text, schema.elements()[element.path]
    try:
        _PARSERS.get(doc.type_name, str)(text)
    except UnitError as error:
        return _violation(element, str(error))
    if text and doc.values:
        text = _wrong_word(text, doc)
    choices = ", ".join(doc.values)
    listed = f" ({choices})" if any(value not in doc.expected for value in doc.values) else ""
    problem_text = f"{quoted(text)} is not accepted" if text else "is empty"
    suggestion = suggest.nearest(text, doc.values)
    hint = f"did you mean {suggestion}?" if suggestion else None
    return _violation(element, f"{problem_text}: expected {doc.expected}{listed}", hint)


def _wrong_word(text: str, doc: ElementDoc) -> str:
    """Return the first word of a list that is not accepted; the whole text if there is no list."""
    words = re.split(r"\s*[,\s]\s*", text) if "separated by" in doc.expected else []
    known = {value.casefold() for value in doc.values}
    return next((word for word in words if word and word.casefold() not in known), text)


def _remark(element: _Element, problems: Problems) -> None:
    """Report elements that the schema accepts but that are ignored or have no effect."""
    parent, listed = element.node, schema.children(element.path)
    tolerated = _others(element.path) == "tolerated"
    for child in element:
        if not isinstance(child, _Element):
            raise TypeError("every element of the tree is made by _to_element")
        label = _label(parent, child.node)
        reason = schema.effect(child.path)
        if reason is not None:
            problems.info(child.node, label, f"has no effect here: {reason}")
        if tolerated and child.node.tag not in listed:
            hint = suggest.for_element(child.node.tag, element.path)
            if suggest.is_misplaced_or_misspelt(child.node.tag, element.path):
                problems.error(child.node, label, "unknown element", hint)
            else:
                problems.warning(child.node, label, "unknown element, ignored", hint)
        _remark(child, problems)


def _violation(element: _Element, message: str, hint: str | None = None) -> _Violation:
    return _Violation(element.node, element.label, message, hint)


def _others(path: str) -> schema.UnlistedChildren:
    doc: ElementDoc | None = schema.elements().get(path)
    return doc.others if doc else "any"


def _label(parent: ConfigNode, child: ConfigNode) -> str:
    return f"{parent.written_tag}/{child.written_tag}"
