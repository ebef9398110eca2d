"""Reads paths from a document that has been parsed into dicts and lists.

Arrays are transparent: a name is looked up in every element, nested arrays count as one, and a path
through or to an array has as its value an array of all values there (AMPS User Guide, Compound
Types in AMPS; Working With Arrays). A subscript selects one of the elements of the arrays there,
which may be an array itself; a value that is no array is its own element 0. A sub-document has no
value of its own, and an array without values is NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import Value

Tree: TypeAlias = Union[  # noqa: UP007 - "X | Y" takes no forward reference
    bool, int, float, str, dict[str, "Tree"], list["Tree"], None
]

_SCALARS = frozenset({bool, int, float, str, type(None)})


def read_path(tree: Tree, path: Sequence[str | int]) -> Value:
    """Return the value of a path: a scalar, an array of scalars, or None."""
    node = tree
    for position, step in enumerate(path):
        if node.__class__ is not dict or step.__class__ is int:
            return None if node is None else _gather(node, path[position:])
        node = cast("dict[str | int, Tree]", node).get(step)
    if node.__class__ is dict:
        return None
    if isinstance(node, list):
        flat = _SCALARS.issuperset(map(type, node))
        return cast("list[Value]", node) or None if flat else _gather(node, ())
    return cast("Value", node)


def _gather(node: Tree, path: Sequence[str | int]) -> Value:
    """Read a path from a node that is no dict."""
    nodes = [node]
    plural = False
    for step in path:
        if isinstance(step, int):
            nodes = _elements(nodes)[step : step + 1]
            plural = False
        else:
            plural = plural or any(node.__class__ is list for node in nodes)
            nodes = [
                node[step] for node in flatten(nodes) if isinstance(node, dict) and step in node
            ]
    plural = plural or any(node.__class__ is list for node in nodes)
    values = [cast("Value", node) for node in flatten(nodes) if not isinstance(node, dict)]
    if not values:
        return None
    return values if plural else values[0]


def _elements(nodes: list[Tree]) -> list[Tree]:
    """Return the elements of arrays, and the nodes that are no arrays."""
    return [element for node in nodes for element in (node if isinstance(node, list) else (node,))]


def flatten(nodes: list[Tree]) -> list[Tree]:
    """Return the elements of an array, with nested arrays of any depth replaced by theirs."""
    if not any(node.__class__ is list for node in nodes):
        return nodes
    flat: list[Tree] = []
    rest = [iter(nodes)]
    while rest:
        for node in rest[-1]:
            if isinstance(node, list):
                rest.append(iter(node))
                break
            flat.append(node)
        else:
            rest.pop()
    return flat
