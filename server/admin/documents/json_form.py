"""JSON: all values are strings, and a part of the tree is nested as in the whole tree.

Source: AMPS User Guide, JSON Document Output.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from server.admin.documents.values import named_texts, text_of, texts_of
from server.admin.tree import ROOT, SnapshotTree, TreeNode, TreeTarget

TreeContent: TypeAlias = "str | list[TreeContent] | dict[str, TreeContent]"


def render(tree: SnapshotTree, node: TreeTarget, is_shown: Callable[[TreeNode], bool]) -> bytes:
    """Return a node with all below it as JSON.

    Args:
        tree: the tree of the node.
        node: the node.
        is_shown: returns whether the visitor may see a place.
    """
    found = nested(node, content(tree, node, is_shown))
    try:
        return msgspec.json.encode(found)
    except UnicodeEncodeError:  # as with file names that are not text
        return json.dumps(found).encode()


def nested(node: TreeTarget, inner: TreeContent) -> TreeContent:
    """Nest content at its place in the tree."""
    if node.field is not None:
        inner = {node.field.name: inner}
    if node.id is not None:
        inner = [{"id": node.id, **inner}] if isinstance(inner, dict) else [inner]
    for name in reversed([ROOT, *filter(None, node.place.path.split("/"))]):
        inner = {name: inner}
    return inner


def content(
    tree: SnapshotTree, node: TreeTarget, is_shown: Callable[[TreeNode], bool]
) -> TreeContent:
    """Return the content of a node, as texts, lists and dictionaries."""
    place = node.place
    if node.field is not None:
        return text_of(node.field, tree.value(node))
    if place.has_entries and node.id is None:
        return _entries(tree, place)
    found: dict[str, TreeContent] = dict(named_texts(tree, node))
    if node.id is None:
        for name, below in place.children.items():
            if is_shown(below):
                found[name] = content(tree, TreeTarget(below), is_shown)
    return found


def _entries(tree: SnapshotTree, place: TreeNode) -> list[TreeContent]:
    resource = place.resource
    if resource is None:
        return []
    texts = texts_of(resource)
    names = ["id", *(field.name for field in resource.fields)]
    return [
        dict(zip(names, [identity, *texts(values)], strict=True))
        for identity, values in tree.entries(place).items()
    ]
