"""The fields that a reader of nested binary documents must read; it skips all others.

The paths of an extractor become a tree of encoded names. A reader traverses a document in step with
that tree: a name that is not in it is skipped by its length, undecoded. Only values below an array
or a subscript are decoded and then read with `read_path`, so that arrays have the same semantics in
every message type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from server.message_types.trees import Tree, read_path
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import Value
    from server.message_types.paths import Path

MAX_DEPTH = 100
"""Maximum nesting depth of documents and arrays; MongoDB's own limit for BSON. A deeper value is
NULL to an extractor and an error where a body has to be rebuilt."""


class PathTree:
    """The paths to read at one step of a document, and below it.

    Attributes:
        only_slot: the slot if there is one path only and it ends here; otherwise None.
        paths: slot and remaining steps of every path through this step.
        children: encoded name -> the paths to read in that field, for a value that is a document.
        has_index: a path continues with a subscript.
    """

    __slots__ = ("children", "has_index", "only_slot", "paths")

    def __init__(self, paths: Sequence[tuple[int, Path]]) -> None:
        self.paths = tuple(paths)
        self.only_slot = paths[0][0] if len(paths) == 1 and not paths[0][1] else None
        self.has_index = any(steps and isinstance(steps[0], int) for _, steps in paths)
        below: dict[bytes, list[tuple[int, Path]]] = {}
        for slot, steps in paths:
            if steps and isinstance(steps[0], str):
                below.setdefault(text_to_bytes(steps[0]), []).append((slot, steps[1:]))
        self.children = {name: PathTree(rest) for name, rest in below.items()}

    def assign_values(self, value: Tree, out: list[Value]) -> None:
        """Write the values of all paths into their slots, from a decoded value."""
        for slot, steps in self.paths:
            out[slot] = read_path(value, steps) if steps else _own_value(value)


def make_path_tree(paths: Sequence[Path]) -> PathTree:
    """Build the tree for `paths`; the value of path n goes to slot n.

    Paths with more than `MAX_DEPTH` steps are deeper than documents are read, and stay NULL.
    """
    return PathTree([(slot, path) for slot, path in enumerate(paths) if len(path) <= MAX_DEPTH])


def _own_value(value: Tree) -> Value:
    if isinstance(value, dict | list):
        return read_path(value, ())
    return cast("Value", value)
