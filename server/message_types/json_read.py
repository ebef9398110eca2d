"""Extractors for JSON.

With the early termination optimization the first of equal keys counts, without it the last (AMPS
User Guide, Configuring Message Types: EarlyTerminationOptimization). Each has its parser:

first   `json_fields`, compiled, stops when it has found all of them. pysimdjson reads values within
        arrays; it, too, finds the first of equal keys.
last    msgspec decodes a Struct type made for exactly the wanted fields; a later key overwrites.

Both refuse some bodies that still have readable fields: mainly malformed ones, or sub-documents
where a value is expected. `json_scan` reads those, more slowly, with the same semantics.

An extractor owns a parser with its buffers: use one per thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import msgspec
import simdjson

from server.message_types.json_fields import FieldReader
from server.message_types.json_scan import read_scalar, read_text, scan
from server.message_types.json_tests import FilterTests
from server.message_types.path_tree import MAX_DEPTH
from server.message_types.trees import read_path
from server.message_types.typed_fields import UntypedFieldsError, typed_fields
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.message_types.base import Extractor, Value
    from server.message_types.bulk import LiteralTest
    from server.message_types.json_scan import MemberNames
    from server.message_types.paths import Path
    from server.message_types.trees import Tree

    _Rest: TypeAlias = tuple[int, Path]
    # A path's slot, and the remaining steps of the path.

_PLAIN = frozenset({bool, float, str, type(None)})
"""Types of values that need no conversion after msgspec, see `_bounded` for the others."""

_REFUSED = (ValueError, RuntimeError)
"""Errors of the parsers: ValueError for bad JSON and bad UTF-8 (msgspec's errors are ValueErrors),
RuntimeError for limits (also RecursionError)."""

KEPT_BUFFERS = 1 << 20
"""Longest body, in bytes, for which a parser is reused: its buffers never shrink."""

_MAX_SCANNED = 1 << 20
"""Bytes that are read of a body that is an array, or that is truncated in a wanted one: a scan
takes a microsecond per element, in which the server serves no other client."""

_MIN_INTEGER = -(2**63)
_MAX_INTEGER = 2**64 - 1


def scanning_extractor(paths: Sequence[Path], *, first_wins: bool) -> Extractor:
    """Make an extractor that reads any body, even a malformed one, in Python only."""
    names: MemberNames = {}
    for path in paths:
        level = names
        for step in path:
            if isinstance(step, str):
                level = level.setdefault(step, {})

    def extract(body: bytes) -> tuple[Value, ...]:
        tree = scan(body, names, first_wins=first_wins)
        return tuple([read_path(tree, path) for path in paths])

    return extract


def last_wins_extractor(paths: Sequence[Path]) -> Extractor:
    """Make an extractor for which the last of equal keys counts."""
    scanning = scanning_extractor(paths, first_wins=False)

    def read_any(body: bytes) -> tuple[Value, ...]:
        try:
            tree = msgspec.json.decode(body)
        except _REFUSED:
            return scanning(body)
        return tuple([_bounded(read_path(tree, path)) for path in paths])

    try:
        fields, values_of = typed_fields(paths)
    except UntypedFieldsError:
        return read_any
    decode = msgspec.json.Decoder(fields).decode

    def extract(body: bytes) -> tuple[Value, ...]:
        try:
            values = values_of(decode(body))
        except _REFUSED:
            return read_any(body)
        return tuple([value if value.__class__ in _PLAIN else _bounded(value) for value in values])

    return extract


def _bounded(value: Value) -> Value:
    """Convert an integer of more than 64 bits to a double, and an empty array to NULL."""
    if isinstance(value, list):
        return [_bounded(element) for element in value] or None
    if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    return value


def first_wins_reader(paths: Sequence[Path]) -> FieldReader:
    """Make a reader for which the first of equal keys counts."""
    members = _path_nodes(list(enumerate(paths)), 1)
    read_part = _part_reader(paths)
    scan_all = scanning_extractor(paths, first_wins=True)

    def scanning(body: bytes) -> tuple[Value, ...]:
        return scan_all(body[:_MAX_SCANNED])

    return FieldReader(
        members, len(paths), read_text, read_scalar, read_part, scanning, text_to_bytes
    )


def first_wins_tests(filters: Sequence[Sequence[LiteralTest]]) -> FilterTests:
    """Make a decider of filters for which the first of equal keys counts."""
    paths = list(dict.fromkeys(test.path for tests in filters for test in tests))
    placed = [
        [SlotTest(paths.index(test.path), test.operator, test.literals) for test in tests]
        for tests in filters
    ]
    return FilterTests(_path_nodes(list(enumerate(paths)), 1), len(paths), placed)


class SlotTest(NamedTuple):
    """A test of the value of a slot.

    Attributes:
        slot: the slot.
        operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, or `IN` or `NOT IN` for one or none of the
            literals.
        literals: numbers of a magnitude below 2^53, or texts, not empty, in ASCII.
    """

    slot: int
    operator: str
    literals: Sequence[float | str]


@dataclass(frozen=True)
class JsonPathNode:
    """A node of a tree of paths: a member of an object that paths lead to or through.

    Attributes:
        name: its name, encoded.
        slot: the slot of the path that ends here, -1 if none does.
        below: the slot and the remaining steps of every path through this member.
        members: the nodes of the members of its value, if it is an object.
        by_parts: True if `part` of `FieldReader` always reads its value.
    """

    name: bytes
    slot: int
    below: Sequence[_Rest]
    members: Sequence[JsonPathNode]
    by_parts: bool


def _path_nodes(paths: Sequence[_Rest], depth: int) -> Sequence[JsonPathNode]:
    """Return the nodes of the members of an object, from the remaining steps of the paths."""
    if depth > MAX_DEPTH:
        return ()
    by_name: dict[str, list[_Rest]] = {}
    for slot, path in paths:
        if path:
            by_name.setdefault(cast("str", path[0]), []).append((slot, path[1:]))
    return [_path_node(text_to_bytes(name), below, depth) for name, below in by_name.items()]


def _path_node(name: bytes, below: Sequence[_Rest], depth: int) -> JsonPathNode:
    ends = [slot for slot, rest in below if not rest]
    by_parts = len(ends) > 1 or any(rest and isinstance(rest[0], int) for _, rest in below)
    members = () if by_parts else _path_nodes(below, depth + 1)
    return JsonPathNode(name, ends[0] if ends else -1, below, members, by_parts)


def _part_reader(
    paths: Sequence[Path],
) -> Callable[[bytes, Sequence[_Rest]], Sequence[Value] | None]:
    """Make a reader of parts of a body; it returns None for a part that simdjson refuses."""
    parse = simdjson.Parser().parse

    def read_part(text: bytes, below: Sequence[_Rest]) -> Sequence[Value] | None:
        try:
            node = parse(text) if len(text) <= KEPT_BUFFERS else simdjson.Parser().parse(text)
            return [_value_below(node, rest, len(paths[slot]) - len(rest)) for slot, rest in below]
        except _REFUSED:
            return None

    return read_part


def _value_below(node: object, path: Path, depth: int) -> Value:
    names = [step for step in path if isinstance(step, str)]
    return read_path(_prune(node, names, depth), path)


def _prune(node: object, names: Sequence[str], depth: int) -> Tree:
    """Convert the nodes on the path `names`, from a node at a depth, into dicts and lists."""
    if isinstance(node, simdjson.Array):
        if depth >= MAX_DEPTH:
            return []
        return [_prune(element, names, depth + 1) for element in node]
    if isinstance(node, simdjson.Object):
        if not names or depth >= MAX_DEPTH:
            return {}
        try:
            member = node[names[0]]
        except KeyError:
            return {}
        return {names[0]: _prune(member, names[1:], depth + 1)}
    return cast("Tree", node)
