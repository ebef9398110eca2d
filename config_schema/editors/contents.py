"""The contents of elements: contents that occur in several places are declared once."""

from collections.abc import Mapping

from config_schema.reference_page import nested_elements
from config_schema.schema import ROOT, ElementDoc, children, elements

ElementContents = Mapping[tuple[ElementDoc, ...], tuple[ElementDoc, str]]
"""For each content, the first element that has it, and the name it is declared under."""


def is_container(doc: ElementDoc) -> bool:
    """Return true if an element has others inside, known ones or any."""
    return bool(children(doc.path)) or not doc.type_name


def shared_contents() -> ElementContents:
    """List the contents of all containers, each once, named after the first place that has it."""
    contents: dict[tuple[ElementDoc, ...], tuple[ElementDoc, str]] = {}
    for doc in elements().values():
        if is_container(doc):
            name = doc.path.removeprefix(f"{ROOT}/").replace("/", ".")
            contents.setdefault(nested_elements(doc), (doc, f"in.{name}"))
    return contents
