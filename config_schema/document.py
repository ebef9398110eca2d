"""A configuration file as a tree: Include and ${VARIABLE} expanded, every node with its place."""

from collections.abc import Mapping
from dataclasses import dataclass

from config_schema.problems import Location, Problems


@dataclass(frozen=True, slots=True)
class Node:
    """One element of the configuration, after Include and ${VARIABLE} have been expanded.

    Attributes:
        tag: the name of the element.
        text: its own text without the blanks around it; "" if it has none.
        attributes: its attributes by name.
        children: its elements in file order; comments are not among them.
        location: where it was written, in whichever file that was.
    """

    tag: str
    text: str
    attributes: Mapping[str, str]
    children: tuple["Node", ...]
    location: Location

    def find(self, tag: str) -> "Node | None":
        """Return the first child called `tag`, or None."""
        return next((child for child in self.children if child.tag == tag), None)

    def all(self, tag: str) -> "list[Node]":
        """Return every child called `tag`, in file order."""
        return [child for child in self.children if child.tag == tag]

    def value(self, tag: str, default: str | None = None) -> str | None:
        """Return the text of the first child called `tag`; `default` if there is none."""
        child = self.find(tag)
        return default if child is None else child.text


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration that has been read.

    Attributes:
        root: its outermost element.
        path: the file it was read from, as given.
        expanded: the whole text with Include and ${VARIABLE} replaced; it loads to the same tree.
    """

    root: Node
    path: str
    expanded: str


def load(
    path: str, *, defines: Mapping[str, str], environ: Mapping[str, str], problems: Problems
) -> Document | None:
    """Read a configuration file and everything it includes."""
    raise NotImplementedError
