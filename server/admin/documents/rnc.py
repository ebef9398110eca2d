"""The schema of XML documents, in the compact syntax of RELAX NG.

Everything is optional, since a document may be of any part of the tree; the order is fixed.

Source: AMPS User Guide, RNC Document Output.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from server.admin.tree import INSTANCE, ROOT, TIMESTAMP_FIELD, TREE_NODES, TreeNode


@cache
def render() -> bytes:
    """Return the schema."""
    lines = ["# The form of the tree below /amps in XML.", f"start = {ROOT}"]
    for node in TREE_NODES.values():
        lines += _node_lines(node)
    return ("\n".join(lines) + "\n").encode()


def _node_lines(node: TreeNode) -> Iterator[str]:
    fields = [] if node.resource is None else node.resource.fields
    values = [f"element {field.name} {{ text }}?" for field in fields]
    if node.path == INSTANCE:
        values.append(f"element {TIMESTAMP_FIELD} {{ text }}*")
    children = [f"{_pattern(child)}?" for child in node.children.values()]
    yield ""
    if node.resource is not None and node.has_entries:
        entry = f"{_pattern(node)}.entry"
        yield f"{_pattern(node)} = element {node.name} {{ {entry}* }}"
        yield f"{entry} = element {node.resource.entry} {{"
        yield ",\n".join(f"  {part}" for part in ["attribute id { text }", *values])
    else:
        yield f"{_pattern(node)} = element {node.name} {{"
        yield ",\n".join(f"  {part}" for part in [*values, *children])
    yield "}"


def _pattern(node: TreeNode) -> str:
    return ".".join([ROOT, *filter(None, node.path.split("/"))])
