"""The configuration schema: amps_config.xsd, loaded once, and its annotations as typed values.

The schema is the only definition of the language. The validator takes names, synonyms and values
from here, and the reference page and the man page are generated from here.

Paths name elements from the root, `AMPSConfig/SOW/Topic/Key`, always in canonical names: a synonym
never occurs in a path.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal
from xml.etree.ElementTree import Element

from xmlschema import XMLSchema11
from xmlschema.validators import (
    XsdAnyElement,
    XsdComplexType,
    XsdComponent,
    XsdElement,
    XsdGroup,
    XsdSimpleType,
    XsdUnion,
)

ROOT: Final = "AMPSConfig"

_NAMESPACE: Final = "{urn:amperage:config}"
_ASSERTION: Final = ".//{http://www.w3.org/2001/XMLSchema}assertion"
_NO_EFFECT: Final = "none:"
_CHOICES: Final = re.compile(r"\(((?:\s*'[^']*'\s*,?)+)\)\s*$")
"""The list of literals that ends the assertion of an enumerated type."""

UnlistedChildren = Literal["refused", "tolerated", "any"]
"""The treatment of children that the schema does not list: they are errors, they are accepted with
a warning (AMPS documents the place incompletely), or a module checks them.
"""

_OTHERS: Final[Mapping[str, UnlistedChildren]] = {"lax": "tolerated", "skip": "any"}


@dataclass(frozen=True, slots=True)
class ElementDoc:
    """The schema's documentation of one element.

    Attributes:
        path: canonical path from the root.
        documentation: the function of the element.
        required: true if its parent must contain it.
        repeatable: true if its parent may contain more than one.
        type_name: the simple type of its text; "" where it contains elements only.
        expected: the accepted values of that type, in words ("a size in bytes: ..."); "" if no
            text.
        values: the choices of an enumerated type; their case does not matter.
        default: the value that applies when it is absent, in words.
        synonyms: other names it may be written under.
        effect: the reason why it has no effect here; None for an element that has an effect.
        modules: for the option of a module, the modules that take it.
        examples: values, or fragments of a configuration that begin with the element's own tag.
        since: the AMPS version that introduced it.
        others: the treatment of children that are not listed.
    """

    path: str
    documentation: str
    required: bool
    repeatable: bool
    type_name: str
    expected: str
    values: tuple[str, ...]
    default: str | None
    synonyms: tuple[str, ...]
    effect: str | None
    modules: tuple[str, ...]
    examples: tuple[str, ...]
    since: str | None
    others: UnlistedChildren

    @property
    def name(self) -> str:
        """The tag."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> str:
        """The path of the element that contains it; "" for the root."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Section:
    """Prose of the reference that belongs to no element: Markdown under a title."""

    title: str
    text: str


@cache
def load_schema() -> XMLSchema11:
    """Build the schema; later calls return the same one.

    A schema that is not checked against that of schemas is built in half the time: 0.3 s less of
    each start. Tests check it.
    """
    text = files(__package__).joinpath("amps_config.xsd").read_text(encoding="utf-8")
    return XMLSchema11(text, validation="skip")


@cache
def elements() -> Mapping[str, ElementDoc]:
    """Return all elements by path, parents before children, in the order of the schema."""
    root = load_schema().elements[ROOT]
    return MappingProxyType({doc.path: doc for doc in _walk(root, ROOT)})


@cache
def children(parent_path: str) -> Mapping[str, ElementDoc]:
    """Return the elements that `parent_path` may contain, by name; empty for an unknown path."""
    return MappingProxyType(
        {doc.name: doc for doc in elements().values() if doc.parent == parent_path}
    )


@cache
def synonyms(parent_path: str) -> Mapping[str, str]:
    """Return the other names of the elements inside `parent_path`, each with its canonical name."""
    return MappingProxyType(
        {synonym: doc.name for doc in children(parent_path).values() for synonym in doc.synonyms}
    )


def effect(path: str) -> str | None:
    """Return why an element is accepted but has no effect; None if it has an effect."""
    doc = elements().get(path)
    return doc.effect if doc else None


@cache
def sections() -> tuple[Section, ...]:
    """Return the prose at the head of the schema, in its order."""
    return tuple(
        Section(title, (note.text or "").strip("\n").rstrip())
        for annotation in load_schema().annotations
        for note in annotation.documentation
        if (title := note.get(f"{_NAMESPACE}title"))
    )


def _walk(element: XsdElement, path: str) -> Iterator[ElementDoc]:
    yield _describe(element, path)
    for child in _particles(element):
        if isinstance(child, XsdElement):
            yield from _walk(child, f"{path}/{child.local_name}")


def _particles(element: XsdElement) -> Iterator[XsdElement | XsdAnyElement]:
    if isinstance(element.type, XsdComplexType) and isinstance(element.type.content, XsdGroup):
        yield from element.type.content.iter_elements()


def _describe(element: XsdElement, path: str) -> ElementDoc:
    text_type = element.type if isinstance(element.type, XsdSimpleType) else None
    notes = _notes(element)
    return ElementDoc(
        path=path,
        documentation=_documentation(element),
        required=element.min_occurs > 0,
        repeatable=element.max_occurs is None or element.max_occurs > 1,
        type_name=_type_name(element),
        expected=_expected(element),
        values=_choices(text_type) if text_type else (),
        default=_only(notes, "default"),
        synonyms=tuple(notes.get("synonym", ())),
        effect=_reason(_only(notes, "effect")),
        modules=tuple((_only(notes, "modules") or "").split()),
        examples=tuple(notes.get("example", ())),
        since=_only(notes, "since"),
        others=_others(element),
    )


def _documentation(component: XsdComponent) -> str:
    annotation = component.annotation
    texts = annotation.documentation if annotation else []
    return " ".join(" ".join((note.text or "").split()) for note in texts)


def _notes(element: XsdElement) -> Mapping[str, list[str]]:
    """Return the amps:* annotations by local name; examples keep their line breaks."""
    notes: dict[str, list[str]] = {}
    for note in _appinfo(element):
        name = note.tag.removeprefix(_NAMESPACE)
        text = note.text or ""
        notes.setdefault(name, []).append(text if name == "example" else " ".join(text.split()))
    return notes


def _appinfo(element: XsdElement) -> Iterator[Element]:
    if element.annotation:
        for appinfo in element.annotation.appinfo:
            yield from appinfo


def _only(notes: Mapping[str, list[str]], name: str) -> str | None:
    note = notes.get(name)
    return note[0] if note else None


def _reason(annotation: str | None) -> str | None:
    return annotation.removeprefix(_NO_EFFECT).strip() if annotation else None


def _type_name(element: XsdElement) -> str:
    if isinstance(element.type, XsdComplexType):
        return "text" if element.type.mixed else ""
    return element.type.local_name or ""


def _expected(element: XsdElement) -> str:
    if isinstance(element.type, XsdComplexType):
        return _type_name(element)
    words = _documentation(element.type)
    choices = () if isinstance(element.type, XsdUnion) else _choices(element.type)
    return f"{words}: {', '.join(choices)}" if choices else words


def _choices(text_type: XsdSimpleType) -> tuple[str, ...]:
    if isinstance(text_type, XsdUnion):
        return tuple(value for member in text_type.member_types for value in _choices(member))
    assertion = text_type.elem.find(_ASSERTION)
    choices = None if assertion is None else _CHOICES.search(assertion.get("test", ""))
    return tuple(re.findall(r"'([^']*)'", choices[1])) if choices else ()


def _others(element: XsdElement) -> UnlistedChildren:
    for particle in _particles(element):
        if isinstance(particle, XsdAnyElement):
            return _OTHERS[particle.process_contents]
    return "refused"
