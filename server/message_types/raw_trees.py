"""Rebuilds nested bodies without decoding their values.

A body becomes a tree: a document is a dict of its names in order, every other value is a leaf, the
value's own bytes. Merge, difference, selection and update only move leaves, so that a number keeps
its width and a date stays a date. A message type adds the conversions: bytes to tree, tree to
bytes, and the interpretation of its leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias, Union

from server.message_types.base import BodyError
from server.message_types.path_tree import MAX_DEPTH
from server.message_types.paths import format_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from server.message_types.base import FieldValue, Value
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection

RawTree: TypeAlias = dict[str, "RawNode"]
RawNode: TypeAlias = Union[RawTree, bytes]  # noqa: UP007 - "X | Y" takes no forward reference
RetainedFields: TypeAlias = dict[str, "RetainedFields"]
"""Names of fields that a difference always has; an empty dict stands for all fields below."""


class RawTreeType(ABC):
    """The rebuilding half of a message type whose bodies are nested documents."""

    @abstractmethod
    def parse(self, body: bytes) -> RawTree:
        """Parse a body into a tree.

        Raises:
            BodyError: the body cannot be parsed, or nests deeper than `MAX_DEPTH`.
        """

    @abstractmethod
    def render(self, tree: RawTree) -> bytes:
        """Encode a tree as a body; the reverse of `parse`."""

    @abstractmethod
    def encode_value(self, value: Value) -> bytes:
        """Encode a value."""

    @abstractmethod
    def is_null(self, leaf: bytes) -> bool:
        """Return whether a leaf is the format's null."""

    @abstractmethod
    def are_equal(self, left: bytes, right: bytes) -> bool:
        """Return whether two leaves have the same value, perhaps in different widths."""

    @abstractmethod
    def decode_array(self, leaf: bytes) -> list[RawNode] | None:
        """Return the elements of an array; None if the leaf is no array.

        Raises:
            BodyError: the array cannot be parsed.
        """

    @abstractmethod
    def encode_array(self, elements: Iterable[RawNode]) -> bytes:
        """Encode an array; the reverse of `decode_array`."""

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`."""
        tree: RawTree = {}
        for path, value in fields:
            self._set(tree, path, value)
        return self.render(tree)

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        tree = self.parse(body)
        for path, value in fields:
            self._set(tree, path, value)
        return self.render(tree)

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`."""
        tree = self.parse(stored)
        self._merge(tree, self.parse(delta), nulls=nulls)
        return self.render(tree)

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`."""
        changed, tree = self._differ(
            self.parse(previous), self.parse(current), retained_field_tree(keep)
        )
        return self.render(tree) if changed else None

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`."""
        return self.render(self._select(self.parse(body), selection, 0))

    def _set(self, tree: RawTree, path: Path, value: Value) -> None:
        *above, last = [step for step in path if isinstance(step, str)]
        if len(above) >= MAX_DEPTH:
            raise BodyError(f"{format_path(path)} has more than {MAX_DEPTH} steps")
        for name in above:
            inner = tree.get(name)
            if not isinstance(inner, dict):
                inner = tree[name] = {}
            tree = inner
        tree[last] = self.encode_value(value)

    def _merge(self, tree: RawTree, delta: RawTree, *, nulls: bool) -> None:
        for name, node in delta.items():
            if isinstance(node, bytes):
                if nulls or not self.is_null(node):
                    tree[name] = node
                continue
            inner = tree.get(name)
            if not isinstance(inner, dict):
                inner = tree[name] = {}
            self._merge(inner, node, nulls=nulls)

    def _differ(
        self, previous: RawTree, current: RawTree, kept: RetainedFields
    ) -> tuple[bool, RawTree]:
        difference: RawTree = {}
        changed = False
        for name, node in current.items():
            before = previous.get(name)
            if isinstance(node, dict) and isinstance(before, dict) and kept.get(name) != {}:
                inner_changed, inner = self._differ(before, node, kept.get(name, {}))
                changed = changed or inner_changed
                if inner:
                    difference[name] = inner
            elif kept.get(name) == {}:
                difference[name] = node
            elif not self._equal(before, node):
                changed = True
                difference[name] = node
        return changed, difference

    def _equal(self, left: RawNode | None, right: RawNode) -> bool:
        if left == right:
            return True
        return isinstance(left, bytes) and isinstance(right, bytes) and self.are_equal(left, right)

    def _select(self, tree: RawTree, selection: FieldSelection, depth: int) -> RawTree:
        selected: RawTree = {}
        for name, node in tree.items():
            rule = selection.children.get(name)
            if rule is None:
                if selection.include:
                    selected[name] = node
                continue
            part = self._select_node(node, rule, depth + 1)
            if part is not None:
                selected[name] = part
        return selected

    def _select_node(self, node: RawNode, rule: FieldSelection, depth: int) -> RawNode | None:
        """Return the part of a field or element that a rule includes; None if there is none."""
        if depth > MAX_DEPTH:
            raise BodyError(f"documents and arrays nest deeper than {MAX_DEPTH}")
        if isinstance(node, dict):
            part = self._select(node, rule, depth)
            return part if part or rule.include else None
        elements = self.decode_array(node) if rule.children else None
        if elements is None:
            return node if rule.include else None
        parts = [self._select_node(element, rule, depth + 1) for element in elements]
        left = [part for part in parts if part is not None]
        return self.encode_array(left) if left or rule.include else None


def retained_field_tree(paths: Sequence[Path]) -> RetainedFields:
    """Arrange the paths that a difference keeps as a tree of names."""
    kept: RetainedFields = {}
    for path in sorted(paths, key=len, reverse=True):
        level = kept
        for step in path:
            if isinstance(step, str):
                level = level.setdefault(step, {})
        level.clear()
    return kept
