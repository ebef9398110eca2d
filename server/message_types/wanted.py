"""Which fields a reader of nested binary documents has to stop at, and which it may skip.

The paths that an extractor was made for become a tree of encoded names. A reader walks a document
in step with that tree: a name that is not in it is skipped by its length, undecoded. Only what lies
below an array or behind a subscript is decoded and then read with `read_path`, so that arrays mean
the same in every message type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from server.base.octets import to_octets
from server.message_types.trees import Tree, read_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import Value
    from server.message_types.paths import Path

MAX_DEPTH = 100
"""Documents and arrays inside each other that are read; MongoDB's own limit for BSON. What lies
deeper is NULL to an extractor and an error where a body has to be rebuilt."""


class Wanted:
    """What is wanted of the value at one step of a document, and below it.

    Attributes:
        single: the slot of the one path that ends here, None when it is not that simple.
        paths: slot and remaining steps of every path that comes by.
        names: encoded name -> what is wanted of that field, for a value that is a document.
        indexed: whether a path goes on with a subscript.
    """

    __slots__ = ("indexed", "names", "paths", "single")

    def __init__(self, paths: Sequence[tuple[int, Path]]) -> None:
        self.paths = tuple(paths)
        self.single = paths[0][0] if len(paths) == 1 and not paths[0][1] else None
        self.indexed = any(steps and isinstance(steps[0], int) for _, steps in paths)
        below: dict[bytes, list[tuple[int, Path]]] = {}
        for slot, steps in paths:
            if steps and isinstance(steps[0], str):
                below.setdefault(to_octets(steps[0]), []).append((slot, steps[1:]))
        self.names = {name: Wanted(rest) for name, rest in below.items()}

    def take(self, value: Tree, out: list[Value]) -> None:
        """Put the values of all paths into their slots, from a value that is decoded."""
        for slot, steps in self.paths:
            out[slot] = read_path(value, steps) if steps else _own_value(value)


def want(paths: Sequence[Path]) -> Wanted:
    """Plan the reading of `paths`; the value of path n goes to slot n.

    Paths with more than `MAX_DEPTH` steps lead deeper than any document is read and get nothing.
    """
    return Wanted([(slot, path) for slot, path in enumerate(paths) if len(path) <= MAX_DEPTH])


def _own_value(value: Tree) -> Value:
    if isinstance(value, dict | list):
        return read_path(value, ())
    return cast("Value", value)
