"""Warnings about what a configuration asks for and the program does not do yet."""

from collections.abc import Iterator

from config_schema.catalogue import Catalogue
from config_schema.compile.reader import Report
from config_schema.document import Node


def warn_of_unbuilt(root: Node, catalogue: Catalogue, report: Report) -> None:
    """Report each feature that is not available yet once, at its first use."""
    said: set[str] = set()
    for place, label, node in _places(root, "", root.written):
        feature = catalogue.unbuilt.get(place) or catalogue.unbuilt.get(f"{place}={node.text}")
        if feature is not None and feature not in said:
            said.add(feature)
            report.warning(node, label, f"not available yet, and ignored: {feature}")


def _places(node: Node, path: str, parent: str) -> Iterator[tuple[str, str, Node]]:
    for child in node.children:
        place = f"{path}/{child.tag}" if path else child.tag
        yield place, f"{parent}/{child.written}", child
        yield from _places(child, place, child.written)
