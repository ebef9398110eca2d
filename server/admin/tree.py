"""A snapshot as a tree: resolves paths.

The tree has nodes, which follow from the description of all resources; a node is a resource, or
leads to some. Below a node with entries are these, by their ids, and below an entry, or a
resource that is one itself, its values. `TreeTarget` is any of these.

    /amps/instance/clients/12/bytes_in
          node             id field

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
"""Further names of nodes, from the Monitoring Guide."""


class PathNotFoundError(Exception):
    """A path leads nowhere.

    Attributes:
        existing: the parts of the path that exist.
        missing: the others; the first of them does not exist.
        suggestions: existing names that are similar to it.
    """

    def __init__(
        self, existing: Sequence[str], missing: Sequence[str], suggestions: Sequence[str]
    ) -> None:
        self.existing = tuple(existing)
        self.missing = tuple(missing)
        self.suggestions = tuple(suggestions)
        super().__init__()

    def __str__(self) -> str:
        """Return a sentence for people."""
        suggestion = f"; did you mean {' or '.join(self.suggestions)}?" if self.suggestions else ""
        return f"There is no {self.missing[0]!r} in {self.path or '/'}{suggestion}"

    @property
    def path(self) -> str:
        """The part of the path that exists, as in links."""
        return link(self.existing) if self.existing else ""


@dataclass(frozen=True)
class TreeNode:
    """A node of the tree.

    Attributes:
        path: below /amps; empty for that itself.
        resource: the resource there, None if it only leads to others.
        children: the nodes below it, by their names.
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


def _build_nodes(resources: Iterable[Resource]) -> dict[str, TreeNode]:
    """Return the nodes, by their paths."""
    nodes = {"": TreeNode("")}
    described = {resource.path: resource for resource in resources}
    for path in described:
        parts = path.split("/")
        for length in range(1, len(parts) + 1):
            child_path = "/".join(parts[:length])
            if child_path not in nodes:
                nodes[child_path] = TreeNode(child_path, described.get(child_path))
                parent = nodes["/".join(parts[: length - 1])]
                parent.children[parts[length - 1]] = nodes[child_path]
    return nodes


TREE_NODES: Final[Mapping[str, TreeNode]] = _build_nodes(RESOURCES)
"""All nodes, by their paths below /amps."""


@dataclass(frozen=True)
class TreeTarget:
    """The target of a path.

    Attributes:
        node: the node.
        id: of an entry there; None for the node itself.
        field: one value of the entry, or of the node if that is one itself; None for all.
    """

    node: TreeNode
    id: str | None = None
    field: ResourceField | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of its path, not encoded."""
        parts = [ROOT, *filter(None, self.node.path.split("/"))]
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
        snapshot: the snapshot.
    """

    def __init__(self, snapshot: StatisticsSnapshot) -> None:
        self.snapshot: Final = snapshot

    def entries(self, node: TreeNode) -> Mapping[str, tuple[StatisticValue, ...]]:
        """Return the entries of a node, by their ids."""
        return {} if node.resource is None else self.snapshot.entries.get(node.resource.path, {})

    def values(self, target: TreeTarget) -> tuple[StatisticValue, ...] | None:
        """Return the values of an entry, or of a node that is one itself; None for none."""
        entries = self.entries(target.node)
        if target.id is not None:
            return entries.get(target.id)
        return None if target.node.has_entries else next(iter(entries.values()), None)

    def value(self, target: TreeTarget) -> StatisticValue | None:
        """Return the value of a target that is one; None if it has gone."""
        values = self.values(target)
        if values is None or target.field is None or target.node.resource is None:
            return None
        return values[target.node.resource.fields.index(target.field)]

    def contains(self, target: TreeTarget) -> bool:
        """Return whether a target exists; nodes always do."""
        return target.id is None or target.id in self.entries(target.node)

    def find(self, names: Sequence[str], *, has_gone: bool = False) -> TreeTarget:
        """Follow a path.

        Args:
            names: its parts, decoded.
            has_gone: whether the path may lead to entries that are gone.

        Raises:
            PathNotFoundError: it leads nowhere.
        """
        first_name = names[0] if names else ""
        if first_name != ROOT:
            raise PathNotFoundError((), names or [""], near(first_name, [ROOT]))
        node = TREE_NODES[""]
        remaining = list(names[1:])
        while remaining and (child := self._child(node, remaining[0])) is not None:
            node = child
            del remaining[0]
        identity = None
        if remaining and node.has_entries:
            identity = remaining.pop(0)
            if not has_gone and identity not in self.entries(node):
                similar = near(identity, self.entries(node))
                raise PathNotFoundError(TreeTarget(node).names, [identity, *remaining], similar)
        target = TreeTarget(node, identity)
        return self._find_value(target, remaining) if remaining else target

    def _child(self, node: TreeNode, name: str) -> TreeNode | None:
        alias = _ALIASES.get(f"{node.path}/{name}", name)
        return node.children.get(alias)

    def _find_value(self, target: TreeTarget, remaining: Sequence[str]) -> TreeTarget:
        resource = target.node.resource
        fields = () if resource is None else resource.fields
        if len(remaining) == 1:
            for field in fields:
                if field.name == remaining[0]:
                    return TreeTarget(target.node, target.id, field)
        if remaining[0] in {field.name for field in fields}:
            raise PathNotFoundError((*target.names, remaining[0]), remaining[1:], ())
        names = [*target.node.children, *(field.name for field in fields)]
        raise PathNotFoundError(target.names, remaining, near(remaining[0], names))


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are similar to a name that does not exist."""
    compared = list(names)[:_MAX_COMPARED]
    return difflib.get_close_matches(name[:_MAX_NAME_LENGTH], compared, n=3, cutoff=0.5)


_MAX_COMPARED: Final = 1_000
_MAX_NAME_LENGTH: Final = 100
