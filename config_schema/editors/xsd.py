"""The language as XML Schema 1.0, which xmllint and most editors read.

Elements in any order, each any number of times, are a choice that repeats; that is all that 1.0 can
say of them. Beside a choice of known elements it cannot allow any other one, either: the options of
modules of one's own are marked as unknown.
"""

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

from config_schema.editors.contents import ElementContents, is_container, shared_contents
from config_schema.editors.values import VARIABLE, ValueType, value_types
from config_schema.reference_page import examples, facts, nested_elements
from config_schema.schema import ROOT, ElementDoc, children, elements

_HEAD: Final = """<?xml version="1.0" encoding="UTF-8"?>
<!--
  What may be written in a configuration of AMPS, for editors that complete and check it (XSD 1.0).
  Made from config_schema/amps_config.xsd; docs/editors.md says how it is used.
-->
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
"""
_INCLUDE: Final = """  <xs:element name="Include">
    <xs:annotation>
      <xs:documentation>The file whose content stands here.</xs:documentation>
    </xs:annotation>
    <xs:complexType>
      <xs:simpleContent>
        <xs:extension base="xs:token">
          <xs:attribute name="comment" type="xs:token">
            <xs:annotation>
              <xs:documentation>Whether --dump-config says where the file begins.</xs:documentation>
            </xs:annotation>
          </xs:attribute>
        </xs:extension>
      </xs:simpleContent>
    </xs:complexType>
  </xs:element>
"""


def xml_schema() -> str:
    """Write the schema."""
    lines = [_HEAD]
    for value_type in value_types():
        lines += _type(value_type)
    lines.append(_INCLUDE)
    contents = shared_contents()
    for doc, name in contents.values():
        lines += _contents(doc, name, contents)
    lines += _element(elements()[ROOT], ROOT, contents, "  ")
    return "\n".join([*lines, "</xs:schema>", ""])


def _type(value_type: ValueType) -> Iterator[str]:
    yield f'  <xs:simpleType name="{value_type.name}">'
    yield from _annotation([value_type.documentation], "    ")
    yield "    <xs:union>"
    if value_type.words:
        yield from _restriction([f'<xs:enumeration value="{word}"/>' for word in value_type.words])
    for pattern in (*value_type.patterns, VARIABLE):
        yield from _restriction([f'<xs:pattern value="{escape(pattern)}"/>'])
    yield from ("    </xs:union>", "  </xs:simpleType>")


def _restriction(facets: list[str]) -> Iterator[str]:
    yield "      <xs:simpleType>"
    yield '        <xs:restriction base="xs:token">'
    yield from (f"          {facet}" for facet in facets)
    yield from ("        </xs:restriction>", "      </xs:simpleType>")


def _element(doc: ElementDoc, name: str, contents: ElementContents, indent: str) -> Iterator[str]:
    """Declare an element under one of its names."""
    kind = contents[nested_elements(doc)][1] if is_container(doc) else doc.type_name
    yield f'{indent}<xs:element name="{name}" type="{kind}">'
    old = [f"An older name of {doc.name}."] if name != doc.name else []
    notes = [f"{label}: {text}" for label, text in facts(doc)]
    yield from _annotation([*old, doc.documentation, *notes, *examples(doc)], f"{indent}  ")
    yield f"{indent}</xs:element>"


def _contents(doc: ElementDoc, name: str, contents: ElementContents) -> Iterator[str]:
    """Declare the contents of an element, and of all others with the same contents."""
    inside = children(doc.path)
    mixed = ' mixed="true"' if doc.type_name else ""
    yield f'  <xs:complexType name="{name}"{mixed}>'
    yield '    <xs:choice minOccurs="0" maxOccurs="unbounded">'
    yield (
        '      <xs:element ref="Include"/>' if inside else '      <xs:any processContents="skip"/>'
    )
    for child in inside.values():
        for known in (child.name, *child.synonyms):
            yield from _element(child, known, contents, "      ")
    yield from ("    </xs:choice>", "  </xs:complexType>")


def _annotation(texts: list[str], indent: str) -> Iterator[str]:
    yield f"{indent}<xs:annotation>"
    for text in filter(None, texts):
        yield f"{indent}  <xs:documentation>{escape(text)}</xs:documentation>"
    yield f"{indent}</xs:annotation>"
