"""XML bodies as lxml trees: safe parsing of untrusted input, names, values, and serialization.

A body may have several top-level elements, as views build them (`/id` and `/qty` side by side), so
every body gets a root element of our own. Document type declarations are refused, and with them
entities and any resource that would be fetched. Elements nest to `MAX_DEPTH` (AMPS User Guide,
Default Message Types: 64).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from lxml import etree

from server.message_types.base import BodyError
from server.message_types.number_text import double_text

if TYPE_CHECKING:
    from server.message_types.base import Value

MAX_DEPTH = 64


def _parser(*, recover: bool) -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        recover=recover,
    )


_STRICT = _parser(recover=False)
_RECOVERING = _parser(recover=True)
_ROOT = "body"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot express (XML 1.0, production 2)."""
_LOCAL_NAME = re.compile(r"[^\s<>&\"'/=@{}\[\]:*]+")

_too_deep = etree.XPath("boolean(" + "/*" * (MAX_DEPTH + 2) + ")")


def parse(body: bytes) -> etree._Element:
    """Parse a body in order to rebuild it.

    Returns:
        Our root element with the body's elements in it.

    Raises:
        BodyError: the body is not XML, has a document type, or nests too deep.
    """
    root = _parse(body, _STRICT)
    if _too_deep(root):
        raise BodyError(f"XML: elements nest deeper than {MAX_DEPTH}")
    return root


def parse_readable(body: bytes) -> etree._Element | None:
    """Parse the readable part of a body, with the result of `parse`; None if there is none."""
    for parser in (_STRICT, _RECOVERING):
        try:
            return _parse(body, parser)
        except BodyError:
            continue
    return None


def _parse(body: bytes, parser: etree.XMLParser) -> etree._Element:
    declared = body.lstrip()[:5] == b"<?xml"
    text = body.lstrip() if declared else b"<body>" + body + b"</body>"
    try:
        element: etree._Element | None = etree.fromstring(text, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BodyError(f"XML: {error}") from None
    if element is None:
        raise BodyError("XML: no element")
    if not declared:
        return element
    if element.getroottree().docinfo.doctype:
        raise BodyError("XML: document type declarations are not accepted")
    root = etree.Element(_ROOT)
    root.append(element)
    return root


def render(root: etree._Element) -> bytes:
    """Serialize the elements under our root."""
    return b"".join([etree.tostring(element, encoding="utf-8") for element in root])


def name_of(element: etree._Element) -> str:
    """Return an element's name as written, with its prefix."""
    local = etree.QName(element).localname
    return f"{element.prefix}:{local}" if element.prefix else local


def children(parent: etree._Element, name: str) -> list[etree._Element]:
    """Return the child elements of a name, as written."""
    prefix, tag = _prefix_and_tag(name)
    return [child for child in parent.iterchildren(tag) if child.prefix == prefix] if tag else []


@lru_cache(maxsize=4096)
def _prefix_and_tag(name: str) -> tuple[str | None, str | None]:
    """Return the prefix, and the tag in any namespace, of a name; no tag if it is no XML name."""
    prefix, _, local = name.rpartition(":")
    return prefix or None, "{*}" + local if _LOCAL_NAME.fullmatch(local) else None


def attribute_key(element: etree._Element, name: str) -> str:
    """Return the key for `element.get` and `element.set` of an attribute name as written."""
    prefix, _, local = name.rpartition(":")
    namespace = element.nsmap.get(prefix) if prefix else None
    return f"{{{namespace}}}{local}" if namespace else name


def text_of(element: etree._Element) -> str | None:
    """Return an element's own text; None if there is none, or only white space between elements."""
    if not len(element):
        return element.text or None
    text = (element.text or "") + "".join([child.tail or "" for child in element])
    return text.strip() or None


def text_for(value: Value) -> str | None:
    """Return the text of a scalar; characters that XML cannot express become U+FFFD."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return double_text(value)
    return _NOT_XML.sub("\ufffd", str(value))
