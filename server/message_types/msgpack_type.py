"""The message type `msgpack`, with two readers of the same semantics.

Nearly always the wanted fields are scalars, or arrays of them, in a well-formed map with text keys.
Then `msgspec` decodes just these fields and skips the rest, in C. It refuses all other input: a
damaged body, integer keys, subscripts inside a path, `bin` and `ext`, arrays of documents, text
that is not UTF-8. Then a reader in Python reads the readable part. Both read to the end, and of
equal keys in a map the last counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from server.message_types.base import BodyError, Capabilities, TypeWithoutOptions
from server.message_types.msgpack_items import (
    HEADS,
    INTEGERS,
    LAST_FLAT,
    MsgpackKind,
    array,
    decode,
    encode,
    encode_key,
    head,
    key,
    map_of,
    scalar,
    skip,
)
from server.message_types.path_tree import MAX_DEPTH, make_path_tree
from server.message_types.raw_trees import RawTreeType
from server.message_types.trees import read_path
from server.message_types.typed_fields import UntypedFieldsError, typed_fields
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from server.message_types.base import Extractor, Value
    from server.message_types.path_tree import PathTree
    from server.message_types.paths import Path
    from server.message_types.raw_trees import RawNode, RawTree
    from server.message_types.trees import Tree

_COMPARABLE = (*INTEGERS, MsgpackKind.FLOAT, MsgpackKind.STR)


class MsgpackType(TypeWithoutOptions, RawTreeType):
    """`msgpack`; it has no options. Leaves of its trees are whole items."""

    capabilities = Capabilities()

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        walk = _walker(paths)
        subscripts = [
            (slot, path[-1:]) for slot, path in enumerate(paths) if isinstance(path[-1], int)
        ]
        try:
            fields, values_of = typed_fields(
                [path[:-1] if isinstance(path[-1], int) else path for path in paths]
            )
        except UntypedFieldsError:
            return walk
        decode_fields = msgspec.msgpack.Decoder(fields).decode

        def extract(body: bytes) -> tuple[Value, ...]:
            try:
                values = values_of(decode_fields(body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return walk(body)
            if subscripts:
                elements = list(values)
                for slot, subscript in subscripts:
                    elements[slot] = read_path(cast("Tree", values[slot]), subscript)
                values = tuple(elements)
            if [] in values:
                return tuple(None if value == [] else value for value in values)
            return values

        return extract

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded (see `server.message_types.pretty`).

        Raises:
            BodyError: the body cannot be parsed.
        """
        return decode(body, 0)[0]

    def parse(self, body: bytes) -> RawTree:
        """See `RawTreeType.parse`."""
        kind, _, _ = head(body, 0)
        if kind != MsgpackKind.MAP:
            raise BodyError("MessagePack: the body is not a map")
        tree, after = _parse(body, 0, 0)
        if after != len(body) or not isinstance(tree, dict):
            raise BodyError(f"MessagePack: the body goes on behind the map, at offset {after}")
        return tree

    def render(self, tree: RawTree) -> bytes:
        """See `RawTreeType.render`."""
        return map_of([(encode_key(name), self._render(node)) for name, node in tree.items()])

    def encode_value(self, value: Value) -> bytes:
        """See `RawTreeType.encode_value`."""
        return encode(value)

    def is_null(self, leaf: bytes) -> bool:
        """See `RawTreeType.is_null`: empty text is NULL too (AMPS User Guide, AMPS Data Types)."""
        kind, _, size = head(leaf, 0)
        return kind == MsgpackKind.NIL or (kind in (MsgpackKind.STR, MsgpackKind.BIN) and not size)

    def are_equal(self, left: bytes, right: bytes) -> bool:
        """See `RawTreeType.are_equal`: numbers and text may differ in width."""
        values = []
        for leaf in (left, right):
            kind, start, size = head(leaf, 0)
            if kind not in _COMPARABLE:
                return False
            values.append(scalar(leaf, kind, start, size))
        return type(values[0]) is type(values[1]) and values[0] == values[1]

    def decode_array(self, leaf: bytes) -> list[RawNode] | None:
        """See `RawTreeType.decode_array`."""
        kind, position, count = head(leaf, 0)
        if kind != MsgpackKind.ARRAY:
            return None
        nodes = []
        for _ in range(count):
            node, position = _parse(leaf, position, 1)
            nodes.append(node)
        return nodes

    def encode_array(self, elements: Iterable[RawNode]) -> bytes:
        """See `RawTreeType.encode_array`."""
        return array([self._render(element) for element in elements])

    def _render(self, node: RawNode) -> bytes:
        return node if isinstance(node, bytes) else self.render(node)


def _parse(body: bytes, position: int, depth: int) -> tuple[RawNode, int]:
    kind, start, count = head(body, position)
    if kind != MsgpackKind.MAP:
        after = skip(body, position)
        return body[position:after], after
    if depth == MAX_DEPTH:
        raise BodyError(f"MessagePack: maps nest deeper than {MAX_DEPTH}")
    tree: RawTree = {}
    position = start
    for _ in range(count):
        name, after = key(body, position)
        if name is None:
            raise BodyError(f"MessagePack: the key at offset {position} is no text and no integer")
        tree[name], position = _parse(body, after, depth + 1)
    return tree, position


def _walker(paths: Sequence[Path]) -> Extractor:
    children = make_path_tree(paths).children
    empty: list[Value] = [None] * len(paths)

    def extract(body: bytes) -> tuple[Value, ...]:
        out = empty.copy()
        try:
            kind, start, count = head(body, 0)
            if kind == MsgpackKind.MAP:
                _read(body, start, count, children, out)
        except (BodyError, IndexError):
            pass  # damaged from here on: values read so far are kept, the rest is NULL
        return tuple(out)

    return extract


def _read(
    body: bytes, position: int, count: int, names: Mapping[bytes, PathTree], out: list[Value]
) -> int:
    """Read the requested fields of a map's `count` pairs; return the offset after them.

    The skipping of unwanted short keys and values, the most frequent ones, is inlined.
    """
    for _ in range(count):
        first = body[position]
        if 0xA0 <= first <= 0xBF:
            start = position + 1
            position = start + (first & 0x1F)
            tree = names.get(body[start:position])
        else:
            name, position = key(body, position)
            tree = None if name is None else names.get(text_to_bytes(name))
        if tree is not None:
            position = _read_values(body, position, tree, out)
            continue
        kind, width, size = HEADS[body[position]]
        if width or kind > LAST_FLAT:
            position = skip(body, position)
        else:
            position += 1 + size
    return position


def _read_values(body: bytes, position: int, tree: PathTree, out: list[Value]) -> int:
    for slot, _ in tree.paths:
        out[slot] = None  # of equal keys the last counts
    kind, start, count = head(body, position)
    if kind == MsgpackKind.MAP and not tree.has_index:
        return _read(body, start, count, tree.children, out)
    value, after = decode(body, position)
    tree.assign_values(value, out)
    return after
