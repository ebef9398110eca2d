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
    lines = ["# What the tree below /amps looks like in XML.", f"start = {ROOT}"]
    for place in TREE_NODES.values():
        lines += _place(place)
    return ("\n".join(lines) + "\n").encode()


def _place(place: TreeNode) -> Iterator[str]:
    fields = [] if place.resource is None else place.resource.fields
    values = [f"element {field.name} {{ text }}?" for field in fields]
    if place.path == INSTANCE:
        values.append(f"element {TIMESTAMP_FIELD} {{ text }}*")
    below = [f"{_pattern(child)}?" for child in place.children.values()]
    yield ""
    if place.resource is not None and place.has_entries:
        entry = f"{_pattern(place)}.entry"
        yield f"{_pattern(place)} = element {place.name} {{ {entry}* }}"
        yield f"{entry} = element {place.resource.entry} {{"
        yield ",\n".join(f"  {part}" for part in ["attribute id { text }", *values])
    else:
        yield f"{_pattern(place)} = element {place.name} {{"
        yield ",\n".join(f"  {part}" for part in [*values, *below])
    yield "}"


def _pattern(place: TreeNode) -> str:
    return ".".join([ROOT, *filter(None, place.path.split("/"))])
