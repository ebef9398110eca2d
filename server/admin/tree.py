"""A snapshot as a tree: resolves paths.

The tree has places, which follow from the description of all resources; a place is a resource, or
leads to some. Below a place with entries are these, by their ids, and below an entry, or a
resource that is one itself, its values. `TreeTarget` is any of these.

    /amps/instance/clients/12/bytes_in
          place            id field

Source: AMPS Monitoring Guide, Resource Mapping.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from server.statistics.resources import RESOURCES
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import Resource, ResourceField, StatisticValue

ROOT: Final = "amps"

INSTANCE: Final = "instance"
TIMESTAMP_FIELD: Final = "timestamp"
"""A further value of the instance: the moments of samples."""

_ALIASES: Final = {"host/cpu": "cpus", "instance/message_type": "message_types"}
"""Names that the Monitoring Guide has for places, besides those that documents have."""


class PathNotFoundError(Exception):
    """A path leads nowhere.

    Attributes:
        existing: the parts of the path that exist.
        missing: the others; the first of them does not exist.
        suggestions: existing names that are similar to it.
    """

    def __init__(self, above: Sequence[str], rest: Sequence[str], near: Sequence[str]) -> None:
        self.existing = tuple(above)
        self.missing = tuple(rest)
        self.suggestions = tuple(near)
        super().__init__()

    def __str__(self) -> str:
        """Return a sentence for people."""
        found = f"; did you mean {' or '.join(self.suggestions)}?" if self.suggestions else ""
        return f"There is no {self.missing[0]!r} in {self.path or '/'}{found}"

    @property
    def path(self) -> str:
        """The part of the path that exists, as in links."""
        return link(self.existing) if self.existing else ""


@dataclass(frozen=True)
class TreeNode:
    """A place of the tree.

    Attributes:
        path: below /amps; empty for that itself.
        resource: the resource there, None if it only leads to others.
        children: the places below it, by their names.
    """

    path: str
    resource: Resource | None = field(repr=False, default=None)
    children: dict[str, TreeNode] = field(repr=False, default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2] or ROOT

    @property
    def has_entries(self) -> bool:
        """Whether there are entries with ids, of which there may be none."""
        return self.resource is not None and bool(self.resource.entry)

    @property
    def fields(self) -> tuple[ResourceField, ...]:
        """Its values, if it is one entry itself."""
        return () if self.resource is None or self.has_entries else self.resource.fields


def _plant(resources: Iterable[Resource]) -> dict[str, TreeNode]:
    """Return the places, by their paths."""
    places = {"": TreeNode("")}
    described = {resource.path: resource for resource in resources}
    for path in described:
        parts = path.split("/")
        for length in range(1, len(parts) + 1):
            place = "/".join(parts[:length])
            if place not in places:
                places[place] = TreeNode(place, described.get(place))
                above = places["/".join(parts[: length - 1])]
                above.children[parts[length - 1]] = places[place]
    return places


TREE_NODES: Final[Mapping[str, TreeNode]] = _plant(RESOURCES)
"""All places, by their paths below /amps."""


@dataclass(frozen=True)
class TreeTarget:
    """The target of a path.

    Attributes:
        place: the place.
        id: of an entry there; None for the place itself.
        field: one value of the entry, or of the place if that is one itself; None for all.
    """

    place: TreeNode
    id: str | None = None
    field: ResourceField | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of its path, not encoded."""
        parts = [ROOT, *filter(None, self.place.path.split("/"))]
        parts += [self.id] if self.id is not None else []
        return (*parts, self.field.name) if self.field is not None else tuple(parts)

    @property
    def path(self) -> str:
        """Its path, as in links."""
        return link(self.names)


def link(names: Iterable[str]) -> str:
    """Return the path of some parts, percent-encoded."""
    return "/" + "/".join(quote(name, safe="!", errors="replace") for name in names)


class SnapshotTree:
    """A snapshot, as a tree.

    Args:
        snapshot: the snapshot.

    Attributes:
        snapshot: see above.
    """

    def __init__(self, snapshot: StatisticsSnapshot) -> None:
        self.snapshot: Final = snapshot

    def entries(self, place: TreeNode) -> Mapping[str, tuple[StatisticValue, ...]]:
        """Return the entries of a place, by their ids."""
        return {} if place.resource is None else self.snapshot.entries.get(place.resource.path, {})

    def values(self, node: TreeTarget) -> tuple[StatisticValue, ...] | None:
        """Return the values of an entry, or of a place that is one itself; None for none."""
        entries = self.entries(node.place)
        if node.id is not None:
            return entries.get(node.id)
        return None if node.place.has_entries else next(iter(entries.values()), None)

    def value(self, node: TreeTarget) -> StatisticValue | None:
        """Return the value of a node that is one; None if it has gone."""
        values = self.values(node)
        if values is None or node.field is None or node.place.resource is None:
            return None
        return values[node.place.resource.fields.index(node.field)]

    def contains(self, node: TreeTarget) -> bool:
        """Return whether a node exists; places always do."""
        return node.id is None or node.id in self.entries(node.place)

    def find(self, names: Sequence[str], *, has_gone: bool = False) -> TreeTarget:
        """Follow a path.

        Args:
            names: its parts, decoded.
            has_gone: whether the path may lead to entries that are gone.

        Raises:
            PathNotFoundError: it leads nowhere.
        """
        head = names[0] if names else ""
        if head != ROOT:
            raise PathNotFoundError((), names or [""], near(head, [ROOT]))
        place = TREE_NODES[""]
        rest = list(names[1:])
        while rest and (below := self._child(place, rest[0])) is not None:
            place = below
            del rest[0]
        identity = None
        if rest and place.has_entries:
            identity = rest.pop(0)
            if not has_gone and identity not in self.entries(place):
                close = near(identity, self.entries(place))
                raise PathNotFoundError(TreeTarget(place).names, [identity, *rest], close)
        node = TreeTarget(place, identity)
        return self._find_value(node, rest) if rest else node

    def _child(self, place: TreeNode, name: str) -> TreeNode | None:
        alias = _ALIASES.get(f"{place.path}/{name}", name)
        return place.children.get(alias)

    def _find_value(self, node: TreeTarget, rest: Sequence[str]) -> TreeTarget:
        resource = node.place.resource
        fields = () if resource is None else resource.fields
        if len(rest) == 1:
            for one in fields:
                if one.name == rest[0]:
                    return TreeTarget(node.place, node.id, one)
        if rest[0] in {one.name for one in fields}:
            raise PathNotFoundError((*node.names, rest[0]), rest[1:], ())
        names = [*node.place.children, *(one.name for one in fields)]
        raise PathNotFoundError(node.names, rest, near(rest[0], names))


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return those of some names that are similar to one that does not exist."""
    known = list(names)[:_MAX_COMPARED]
    return difflib.get_close_matches(name[:_LONGEST], known, n=3, cutoff=0.5)


_MAX_COMPARED: Final = 1_000
_LONGEST: Final = 100
