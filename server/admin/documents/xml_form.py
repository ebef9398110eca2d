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
_INVALID_CHARACTERS: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;", "\r": "&#13;"}
)
_INDENT: Final = "    "


def render(tree: SnapshotTree, target: TreeTarget, is_shown: Callable[[TreeNode], bool]) -> bytes:
    """Return a target with all below it as XML.

    Args:
        tree: the tree of the target.
        target: the part of the tree to return.
        is_shown: returns whether the requester may see a node.
    """
    ancestors = list(_ancestors(target))
    opening = [f"{_INDENT * level}<{tag}>" for level, (tag, _) in enumerate(ancestors)]
    closing = [f"{_INDENT * level}</{name}>" for level, (_, name) in enumerate(ancestors)]
    inner = _content(tree, target, is_shown, _INDENT * len(ancestors))
    return ("\n".join([*opening, *inner, *reversed(closing)]) + "\n").encode()


def before_values(target: TreeTarget) -> str:
    """Return the text before the values of a leaf over time, each of which is a line."""
    opening = [f"<{tag}>" for tag, _ in _ancestors(target)]
    return "\n".join([*opening, f"<{_name_of(target)}>"]) + "\n"


def after_values(target: TreeTarget) -> str:
    """Return the text after them."""
    closing = [f"</{name}>" for _, name in _ancestors(target)]
    return "\n".join([f"</{_name_of(target)}>", *reversed(closing)]) + "\n"


def _ancestors(target: TreeTarget) -> Iterator[tuple[str, str]]:
    """Yield the elements around a target's own: the opening tag and the name of each."""
    names = [ROOT, *filter(None, target.node.path.split("/"))]
    is_place = target.id is None and target.field is None
    for name in names[:-1] if is_place else names:
        yield name, name
    if target.id is not None and target.field is not None and target.node.resource is not None:
        entry = target.node.resource.entry
        yield f"{entry} id='{attribute(target.id)}'", entry


def _name_of(target: TreeTarget) -> str:
    return target.node.name if target.field is None else target.field.name


def _content(
    tree: SnapshotTree, target: TreeTarget, is_shown: Callable[[TreeNode], bool], indent: str
) -> Iterator[str]:
    node, inner_indent = target.node, indent + _INDENT
    if target.field is not None:
        text = escape(text_of(target.field, tree.value(target)))
        yield f"{indent}<{target.field.name}>{text}</{target.field.name}>"
    elif target.id is not None:
        yield from _entries(tree, node, [target.id], indent)
    else:
        yield f"{indent}<{node.name}>"
        if node.has_entries:
            yield from _entries(tree, node, tree.entries(node), inner_indent)
        for name, text in named_texts(tree, target):
            yield f"{inner_indent}<{name}>{escape(text)}</{name}>"
        for child in node.children.values():
            if is_shown(child):
                yield from _content(tree, TreeTarget(child), is_shown, inner_indent)
        yield f"{indent}</{node.name}>"


def _entries(
    tree: SnapshotTree, node: TreeNode, identities: Iterable[str], indent: str
) -> Iterator[str]:
    resource = node.resource
    if resource is None:
        return
    texts = texts_of(resource)
    names = [field.name for field in resource.fields]
    lines = "\n".join(f"{indent}{_INDENT}<{name}>%s</{name}>" for name in names)
    template = f"{indent}<{resource.entry} id='%s'>\n{lines}\n{indent}</{resource.entry}>"
    for identity in identities:
        values = map(escape, texts(tree.entries(node)[identity]))
        yield template % (attribute(identity), *values)


def escape(text: str) -> str:
    """Escape a text for XML; characters that XML does not allow become replacement characters."""
    if _PLAIN.fullmatch(text):
        return text
    return _INVALID_CHARACTERS.sub("\ufffd", text).translate(_ESCAPES)


def attribute(text: str) -> str:
    """Escape a text for an attribute, in which line ends would become blanks."""
    return escape(text).replace("\n", "&#10;").replace("\t", "&#9;")
