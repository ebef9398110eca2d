"""The message type `bson`: binary JSON; only the requested fields are decoded.

Of equal names in a document the first counts: reading stops as soon as all fields are found. The
readable part of a damaged body is read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from server.message_types.base import BodyError, Capabilities, TypeWithoutOptions
from server.message_types.bson_elements import (
    LENGTH,
    SCALARS,
    SIZES,
    UNSIZED,
    BsonKind,
    decode,
    document,
    document_bounds,
    elements,
    encode,
    unsized,
)
from server.message_types.path_tree import MAX_DEPTH, make_path_tree
from server.message_types.raw_trees import RawTreeType
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from server.message_types.base import Extractor, Value
    from server.message_types.path_tree import PathTree
    from server.message_types.paths import Path
    from server.message_types.raw_trees import RawNode, RawTree
    from server.message_types.trees import Tree

_DOCUMENT = int(BsonKind.DOCUMENT)
_ARRAY = int(BsonKind.ARRAY)
"""Plain integers: a comparison with a member of an enumeration is slow in the hot loop."""
_NULLS = (bytes([BsonKind.NULL]), b"%c%b" % encode(""))
"""An empty string is NULL too (AMPS User Guide, AMPS Data Types)."""
_WHOLE_NUMBERS = (BsonKind.INT32, BsonKind.INT64)


class BsonType(TypeWithoutOptions, RawTreeType):
    """`bson`; it has no options.

    Leaves of its trees are the kind's byte and the value's bytes.
    """

    capabilities = Capabilities()

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        children = make_path_tree(paths).children
        empty: list[Value] = [None] * len(paths)

        def extract(body: bytes) -> tuple[Value, ...]:
            out: list[Value] = empty.copy()
            try:
                end = LENGTH.unpack_from(body)[0] - 1
                _read(body, 4, min(end, len(body)), children, out)
            except (struct.error, IndexError, BodyError):
                pass  # damaged from here on: values read so far are kept, the rest is NULL
            return tuple(out)

        return extract

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded (see `server.message_types.pretty`).

        Raises:
            BodyError: the body cannot be parsed.
        """
        try:
            return decode(body, BsonKind.DOCUMENT, 0, len(body))
        except struct.error as error:
            raise BodyError(f"BSON: {error}") from None

    def parse(self, body: bytes) -> RawTree:
        """See `RawTreeType.parse`."""
        return _parse(body, 0, len(body), 0)

    def render(self, tree: RawTree) -> bytes:
        """See `RawTreeType.render`."""
        return document(
            (text_to_bytes(name), *_split(self._render(node))) for name, node in tree.items()
        )

    def encode_value(self, value: Value) -> bytes:
        """See `RawTreeType.encode_value`."""
        return b"%c%b" % encode(value)

    def is_null(self, leaf: bytes) -> bool:
        """See `RawTreeType.is_null`."""
        return leaf in _NULLS

    def are_equal(self, left: bytes, right: bytes) -> bool:
        """See `RawTreeType.are_equal`: integers may differ in width."""
        if left[0] not in _WHOLE_NUMBERS or right[0] not in _WHOLE_NUMBERS:
            return left == right
        return SCALARS[left[0]](left, 1, len(left)) == SCALARS[right[0]](right, 1, len(right))

    def decode_array(self, leaf: bytes) -> list[RawNode] | None:
        """See `RawTreeType.decode_array`."""
        if leaf[0] != BsonKind.ARRAY:
            return None
        begin, end = document_bounds(leaf, 1, len(leaf))
        return [
            _node(leaf, kind, start, after, 1)
            for kind, _, start, after in elements(leaf, begin, end)
        ]

    def encode_array(self, elements: Iterable[RawNode]) -> bytes:
        """See `RawTreeType.encode_array`."""
        return b"%c%b" % (
            BsonKind.ARRAY,
            document(
                (str(index).encode(), *_split(self._render(element)))
                for index, element in enumerate(elements)
            ),
        )

    def _render(self, node: RawNode) -> bytes:
        if isinstance(node, bytes):
            return node
        return b"%c%b" % (BsonKind.DOCUMENT, self.render(node))


def _split(leaf: bytes) -> tuple[int, bytes]:
    return leaf[0], leaf[1:]


def _parse(body: bytes, start: int, after: int, depth: int) -> RawTree:
    if depth == MAX_DEPTH:
        raise BodyError(f"BSON: documents nest deeper than {MAX_DEPTH}")
    begin, end = document_bounds(body, start, after)
    tree: RawTree = {}
    for kind, name, value, value_end in elements(body, begin, end):
        tree.setdefault(bytes_to_text(name), _node(body, kind, value, value_end, depth + 1))
    return tree


def _node(body: bytes, kind: int, start: int, after: int, depth: int) -> RawNode:
    if kind == BsonKind.DOCUMENT:
        return _parse(body, start, after, depth)
    return b"%c%b" % (kind, body[start:after])


def _read(
    body: bytes, position: int, end: int, names: Mapping[bytes, PathTree], out: list[Value]
) -> None:
    """Read the wanted fields of one document; stop when all are found or the body is malformed.

    This is the hot loop of the type: everything except the wanted values is inlined.
    """
    find = body.find
    length = LENGTH.unpack_from
    missing = set(names)
    while position < end:
        size = SIZES[body[position]]
        name_end = find(b"\0", position + 1)
        if name_end < 0:
            return
        value = name_end + 1
        if size >= 0:
            after = value + size
        elif size != UNSIZED:
            after = value + length(body, value)[0] - 1 - size
        else:
            after = value + unsized(body, body[position], value, end)
        if after > end:
            return
        name = body[position + 1 : name_end]
        if name in missing:
            _read_values(body, body[position], value, after, names[name], out)
            missing.discard(name)
            if not missing:
                return
        position = after


def _read_values(
    body: bytes, kind: int, start: int, after: int, tree: PathTree, out: list[Value]
) -> None:
    if kind == _DOCUMENT:
        if tree.children:
            _read(body, start + 4, after - 1, tree.children, out)
        if tree.has_index:
            tree.assign_values(decode(body, kind, start, after), out)
    elif kind == _ARRAY:
        tree.assign_values(decode(body, kind, start, after), out)
    elif tree.only_slot is not None:
        out[tree.only_slot] = SCALARS[kind](body, start, after)
    else:
        tree.assign_values(SCALARS[kind](body, start, after), out)
