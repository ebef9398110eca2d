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


def render(tree: SnapshotTree, target: TreeTarget, is_shown: Callable[[TreeNode], bool]) -> bytes:
    """Return a target with all below it as JSON.

    Args:
        tree: the tree of the target.
        target: the part of the tree to return.
        is_shown: returns whether the requester may see a node.
    """
    document = nested(target, content(tree, target, is_shown))
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # as with file names that are not text
        return json.dumps(document).encode()


def nested(target: TreeTarget, inner: TreeContent) -> TreeContent:
    """Nest content at its place in the tree."""
    if target.field is not None:
        inner = {target.field.name: inner}
    if target.id is not None:
        inner = [{"id": target.id, **inner}] if isinstance(inner, dict) else [inner]
    for name in reversed([ROOT, *filter(None, target.node.path.split("/"))]):
        inner = {name: inner}
    return inner


def content(
    tree: SnapshotTree, target: TreeTarget, is_shown: Callable[[TreeNode], bool]
) -> TreeContent:
    """Return the content of a target, as texts, lists and dictionaries."""
    node = target.node
    if target.field is not None:
        return text_of(target.field, tree.value(target))
    if node.has_entries and target.id is None:
        return _entries(tree, node)
    texts: dict[str, TreeContent] = dict(named_texts(tree, target))
    if target.id is None:
        for name, child in node.children.items():
            if is_shown(child):
                texts[name] = content(tree, TreeTarget(child), is_shown)
    return texts


def _entries(tree: SnapshotTree, node: TreeNode) -> list[TreeContent]:
    resource = node.resource
    if resource is None:
        return []
    texts = texts_of(resource)
    names = ["id", *(field.name for field in resource.fields)]
    return [
        dict(zip(names, [identity, *texts(values)], strict=True))
        for identity, values in tree.entries(node).items()
    ]
