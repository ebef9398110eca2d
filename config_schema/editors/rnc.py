"""The language as RELAX NG in compact syntax, which Emacs reads."""

from collections.abc import Iterator
from typing import Final

from config_schema.editors.contents import ElementContents, is_container, shared_contents
from config_schema.editors.values import VARIABLE, ValueType, value_types
from config_schema.reference_page import nested_elements
from config_schema.schema import ROOT, ElementDoc, children, elements

_HEAD: Final = """# What may be written in a configuration of AMPS, for editors that complete it.
# Made from config_schema/amps_config.xsd; docs/editors.md says how it is used.

datatypes xsd = "http://www.w3.org/2001/XMLSchema-datatypes"

start = element.AMPSConfig
include.directive = element Include { attribute comment { text }?, text }
anything = element * { attribute * { text }*, (text | anything)* }
"""
_OR: Final = "\n   | "


def relax_ng() -> str:
    """Write the schema."""
    lines = [_HEAD, f"variable = {_pattern(VARIABLE)}", ""]
    for value_type in value_types():
        lines += [*_type(value_type), ""]
    contents = shared_contents()
    for doc, name in contents.values():
        lines += [f"{name} =", *_contents(doc, contents), ""]
    lines += [f"element.AMPSConfig = {_element(elements()[ROOT], contents)}", ""]
    return "\n".join(lines)


def _type(value_type: ValueType) -> Iterator[str]:
    if value_type.documentation:
        yield f"## {value_type.documentation}"
    choices = [f'"{word}"' for word in value_type.words]
    choices += [_pattern(pattern) for pattern in value_type.patterns]
    yield f"type.{value_type.name} = {' | '.join([*choices, 'variable'])}"


def _pattern(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\").replace('"', "\\x{22}")
    return f'xsd:token {{ pattern = "{escaped}" }}'


def _contents(doc: ElementDoc, contents: ElementContents) -> Iterator[str]:
    """Declare the contents of an element, and of all others with the same contents."""
    inside = children(doc.path)
    if not inside:
        yield "  anything*"
        return
    yield "  (include.directive"
    for child in inside.values():
        yield f"   |  ## {child.documentation}"
        yield f"      {_element(child, contents)}"
    if doc.others != "refused":
        known = [name for child in inside.values() for name in (child.name, *child.synonyms)]
        excepted = " | ".join(["Include", *known])
        yield f"   | element * - ({excepted}) {{ attribute * {{ text }}*, (text | anything)* }}"
    yield "   | text)*" if doc.type_name else "  )*"


def _element(doc: ElementDoc, contents: ElementContents) -> str:
    names = " | ".join((doc.name, *doc.synonyms))
    names = f"({names})" if doc.synonyms else names
    inside = contents[nested_elements(doc)][1] if is_container(doc) else f"type.{doc.type_name}"
    return f"element {names} {{ {inside} }}"
