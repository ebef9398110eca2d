"""The message type `json`: extractors from `json_read`; bodies are rebuilt from members as text.

A rebuilt body keeps the digits of numbers, the escapes of strings and the order of members; only
the white space between the members of an object is removed.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
import simdjson

from amperage.wire.header import is_plain_text
from server.message_types import json_flat
from server.message_types.base import BodyError, Capabilities
from server.message_types.bulk import RawColumn
from server.message_types.json_read import (
    KEPT_BUFFERS,
    first_wins_reader,
    first_wins_tests,
    last_wins_extractor,
)
from server.message_types.json_scan import split_members
from server.message_types.json_select import MemberSelector
from server.message_types.path_tree import MAX_DEPTH
from server.message_types.raw_trees import RawTreeType
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from server.message_types.base import Extractor, FieldValue, Value
    from server.message_types.bulk import (
        BulkDecider,
        BulkExtractor,
        BulkSelector,
        ColumnReader,
        LiteralTest,
    )
    from server.message_types.options import MessageTypeOptions
    from server.message_types.paths import Path
    from server.message_types.raw_trees import RawNode, RawTree
    from server.message_types.registry import Find
    from server.message_types.select_list import FieldSelection

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

_Decoded = TypeVar("_Decoded")

_PARSER = simdjson.Parser()
_BRACE = ord("{")
_NULLS = (b"null", b'""')
"""An empty string is NULL too (AMPS User Guide, AMPS Data Types)."""


class JsonType(RawTreeType):
    """`json`, with the option `EarlyTerminationOptimization`. Leaves are JSON texts."""

    capabilities = Capabilities()

    def __init__(self, name: str, options: MessageTypeOptions, _find: Find) -> None:
        self._first_wins = options.boolean("EarlyTerminationOptimization", default=True)
        options.refuse_unknown()
        self.name = name

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        return first_wins_reader(paths).read if self._first_wins else last_wins_extractor(paths)

    def bulk_extractor(self, paths: Sequence[Path]) -> BulkExtractor:
        """Compile a reader of `paths` in many bodies, see `BulkMessageType.bulk_extractor`."""
        if self._first_wins:
            return first_wins_reader(paths).read_all
        extract = last_wins_extractor(paths)
        return lambda bodies: list(zip(*map(extract, bodies), strict=True))

    def bulk_decider(self, filters: Sequence[Sequence[LiteralTest]]) -> BulkDecider | None:
        """Make a decider for filters, see `BulkMessageType.bulk_decider`."""
        return first_wins_tests(filters).decide if self._first_wins else None

    def column_reader(self, paths: Sequence[Path]) -> ColumnReader | None:
        """Compile a reader of `paths` into columns, see `BulkMessageType.column_reader`."""
        if not self._first_wins:
            return None
        read_columns = first_wins_reader(paths).read_columns
        return lambda joined, count: [RawColumn(*parts) for parts in read_columns(joined, count)]

    def bulk_selector(self, selection: FieldSelection) -> BulkSelector:
        """Compile a selector, see `BulkMessageType.bulk_selector`."""
        names_members = not selection.include and all(
            rule.include and not rule.children and is_plain_text(name)
            for name, rule in selection.children.items()
        )
        if self._first_wins and names_members:
            return MemberSelector([name.encode() for name in selection.children]).select_all
        return lambda bodies: [None] * len(bodies)

    def parse(self, body: bytes) -> RawTree:
        """See `RawTreeType.parse`."""
        return self._parse(body, 0)

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`; encode flat ones in one call."""
        if all(len(path) == 1 for path, _ in fields):
            try:
                return msgspec.json.encode({path[0]: value for path, value in fields})
            except UnicodeEncodeError:  # bytes that were no UTF-8
                pass
        return super().build(fields)

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        if all(len(path) == 1 for path, _ in fields):
            updated = json_flat.merge(body, self.build(fields), nulls=True)
            if updated is not None:
                return updated
        return super().update(body, fields)

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`."""
        merged = json_flat.merge(stored, delta, nulls)
        return super().merge(stored, delta, nulls=nulls) if merged is None else merged

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`."""
        kept_names = _plain_names(tuple(keep))
        if kept_names is not None:
            difference = json_flat.differ(previous, current, kept_names)
            if difference is not None:
                return difference or None
        return super().differ(previous, current, keep)

    def render(self, tree: RawTree) -> bytes:
        """See `RawTreeType.render`."""
        members = [
            _label(name) + (node if isinstance(node, bytes) else self.render(node))
            for name, node in tree.items()
        ]
        return b"{%b}" % b",".join(members)

    def encode_value(self, value: Value) -> bytes:
        """See `RawTreeType.encode_value`."""
        if isinstance(value, str):
            return _quote(value)
        if isinstance(value, list):
            return b"[%b]" % b",".join([self.encode_value(element) for element in value])
        return msgspec.json.encode(value)  # NaN and infinities become null

    def is_null(self, leaf: bytes) -> bool:
        """See `RawTreeType.is_null`."""
        return leaf in _NULLS

    def are_equal(self, left: bytes, right: bytes) -> bool:
        """See `RawTreeType.are_equal`: numbers are equal only if their texts are."""
        return left == right

    def decode_array(self, leaf: bytes) -> list[RawNode] | None:
        """See `RawTreeType.decode_array`."""
        if not leaf.startswith(b"["):
            return None
        texts = [bytes(raw) for raw in _decoded(_decode_elements, leaf)]
        return [self._parse(text, 1) if text[0] == _BRACE else text for text in texts]

    def encode_array(self, elements: Iterable[RawNode]) -> bytes:
        """See `RawTreeType.encode_array`."""
        return b"[%b]" % b",".join([self._render(element) for element in elements])

    def _parse(self, text: bytes, depth: int) -> RawTree:
        if depth == MAX_DEPTH:
            raise BodyError(f"JSON: objects nest deeper than {MAX_DEPTH}")
        tree: RawTree = {}
        for name, raw in self._members(text).items():
            value = bytes(raw)
            tree[name] = self._parse(value, depth + 1) if value[0] == _BRACE else value
        return tree

    def _members(self, text: bytes) -> Mapping[str, bytes | msgspec.Raw]:
        """Split an object into its members, as tolerantly as extractors read it."""
        members: Mapping[str, bytes | msgspec.Raw] | None
        try:
            members = _decode_members(text)
        except (ValueError, RecursionError) as error:
            members = split_members(text, first_wins=self._first_wins)
            if members is None:
                raise BodyError(f"JSON: {error}") from None
            return members
        if self._first_wins and _count_members(text) != len(members):
            return split_members(text, first_wins=True) or members
        return members

    def _render(self, node: RawNode) -> bytes:
        return node if isinstance(node, bytes) else self.render(node)


@lru_cache(maxsize=1024)
def _plain_names(paths: tuple[Path, ...]) -> tuple[bytes, ...] | None:
    """Return the names of members that JSON does not escape; None if a path is another one."""
    names = [path[0] for path in paths if len(path) == 1]
    plain = tuple(name.encode() for name in names if isinstance(name, str) and is_plain_text(name))
    return plain if len(plain) == len(paths) else None


def _decoded(decode: Callable[[bytes], _Decoded], text: bytes) -> _Decoded:
    try:
        return decode(text)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"JSON: {error}") from None


def _count_members(text: bytes) -> int | None:
    """Count an object's members, including equal names; None if simdjson refuses the object."""
    parser = _PARSER if len(text) <= KEPT_BUFFERS else simdjson.Parser()
    try:
        return len(cast("simdjson.Object", parser.parse(text)))
    except (ValueError, RuntimeError):
        return None


def _quote(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:  # bytes that were no UTF-8
        return text_to_bytes(json.dumps(text, ensure_ascii=False))


@lru_cache(maxsize=8192)
def _label(name: str) -> bytes:
    return _quote(name) + b":"
