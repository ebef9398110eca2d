"""XML: nested as the tree, with an attribute for the ids of entries.

Source: AMPS User Guide, XML Document Output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from server.admin.documents.values import named_texts, text_of, texts_of
from server.admin.tree import ROOT, SnapshotTree, TreeNode, TreeTarget

_PLAIN: Final = re.compile(r"[\w .:/+-]*", re.ASCII)
_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;", "\r": "&#13;"}
)
_INDENT: Final = "    "


def render(tree: SnapshotTree, node: TreeTarget, is_shown: Callable[[TreeNode], bool]) -> bytes:
    """Return a node with all below it as XML.

    Args:
        tree: the tree of the node.
        node: the node.
        is_shown: returns whether the visitor may see a place.
    """
    around = list(_around(node))
    opening = [f"{_INDENT * level}<{tag}>" for level, (tag, _) in enumerate(around)]
    closing = [f"{_INDENT * level}</{name}>" for level, (_, name) in enumerate(around)]
    inner = _content(tree, node, is_shown, _INDENT * len(around))
    return ("\n".join([*opening, *inner, *reversed(closing)]) + "\n").encode()


def before_values(node: TreeTarget) -> str:
    """Return the text before the values of a leaf over time, each of which is a line."""
    opening = [f"<{tag}>" for tag, _ in _around(node)]
    return "\n".join([*opening, f"<{_name_of(node)}>"]) + "\n"


def after_values(node: TreeTarget) -> str:
    """Return the text after them."""
    closing = [f"</{name}>" for _, name in _around(node)]
    return "\n".join([f"</{_name_of(node)}>", *reversed(closing)]) + "\n"


def _around(node: TreeTarget) -> Iterator[tuple[str, str]]:
    """Yield the elements around a node's own: the opening tag and the name of each."""
    names = [ROOT, *filter(None, node.place.path.split("/"))]
    is_place = node.id is None and node.field is None
    for name in names[:-1] if is_place else names:
        yield name, name
    if node.id is not None and node.field is not None and node.place.resource is not None:
        entry = node.place.resource.entry
        yield f"{entry} id='{attribute(node.id)}'", entry


def _name_of(node: TreeTarget) -> str:
    return node.place.name if node.field is None else node.field.name


def _content(
    tree: SnapshotTree, node: TreeTarget, is_shown: Callable[[TreeNode], bool], indent: str
) -> Iterator[str]:
    place, deeper = node.place, indent + _INDENT
    if node.field is not None:
        text = escape(text_of(node.field, tree.value(node)))
        yield f"{indent}<{node.field.name}>{text}</{node.field.name}>"
    elif node.id is not None:
        yield from _entries(tree, place, [node.id], indent)
    else:
        yield f"{indent}<{place.name}>"
        if place.has_entries:
            yield from _entries(tree, place, tree.entries(place), deeper)
        for name, text in named_texts(tree, node):
            yield f"{deeper}<{name}>{escape(text)}</{name}>"
        for below in place.children.values():
            if is_shown(below):
                yield from _content(tree, TreeTarget(below), is_shown, deeper)
        yield f"{indent}</{place.name}>"


def _entries(
    tree: SnapshotTree, place: TreeNode, identities: Iterable[str], indent: str
) -> Iterator[str]:
    resource = place.resource
    if resource is None:
        return
    texts = texts_of(resource)
    names = [field.name for field in resource.fields]
    lines = "\n".join(f"{indent}{_INDENT}<{name}>%s</{name}>" for name in names)
    whole = f"{indent}<{resource.entry} id='%s'>\n{lines}\n{indent}</{resource.entry}>"
    for identity in identities:
        values = map(escape, texts(tree.entries(place)[identity]))
        yield whole % (attribute(identity), *values)


def escape(text: str) -> str:
    """Escape a text for XML; characters that XML does not allow become replacement characters."""
    if _PLAIN.fullmatch(text):
        return text
    return _UNFIT.sub("\ufffd", text).translate(_ESCAPES)


def attribute(text: str) -> str:
    """Escape a text for an attribute, in which line ends would become blanks."""
    return escape(text).replace("\n", "&#10;").replace("\t", "&#9;")
