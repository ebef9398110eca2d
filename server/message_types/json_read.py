"""Extractors for JSON.

With the early termination optimization the first of equal keys counts, without it the last (AMPS
User Guide, Configuring Message Types: EarlyTerminationOptimization). Each has its parser:

first   pysimdjson indexes a body at the speed of reading it, and a look-up by key finds the first
        occurrence. A key that is missing costs an exception, after which the body is read again by
        asking msgspec first, which passes over a body without building anything, whether a key is
        there at all. A path that was missing a few times is *doubtful* from then on and always
        asked about.
last    msgspec decodes a Struct type made for exactly the wanted fields; a later key overwrites.

Both refuse some bodies that still hold readable fields: broken ones above all, also numbers of
more than 64 bits, text that is not UTF-8, or sub-documents where a value is expected. `json_scan`
reads those, more slowly, with the same meaning.

An extractor keeps a parser with its buffers: use one per thread.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
import simdjson

from server.message_types.json_scan import scan
from server.message_types.trees import read_path
from server.message_types.typed_fields import NotTypedError, presence, typed_fields
from server.message_types.wanted import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.message_types.base import Extractor, Path, Value
    from server.message_types.json_scan import Names
    from server.message_types.trees import Tree

    _Reader: TypeAlias = Callable[[bytes], tuple[Value, ...]]

SCALARS = frozenset({bool, int, float, str, type(None)})
"""Types of what simdjson gives for anything but objects and arrays."""

_PLAIN = frozenset({bool, float, str, type(None)})
"""Types of values that msgspec reads as they should be, see `_bounded` for the others."""

REFUSED = (ValueError, TypeError, KeyError, RuntimeError)
"""What the parsers raise: ValueError for bad JSON and bad UTF-8 (msgspec's errors are ValueErrors),
RuntimeError for limits (also RecursionError), TypeError for a step into something that is no
object, KeyError for a missing key."""

_MISSES = 16
"""Bodies without an expected path after which the path becomes doubtful."""

KEPT_BUFFERS = 1 << 20
"""Longest body, in bytes, for which a parser is used again: its buffers stay as they are."""

_LEAST_INTEGER = -(2**63)
_GREATEST_INTEGER = 2**64 - 1


def scanning_extractor(paths: Sequence[Path], *, first_wins: bool) -> Extractor:
    """Make an extractor that reads any body, however odd, in Python alone."""
    names: Names = {}
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
        except REFUSED:
            return scanning(body)
        return tuple([_bounded(read_path(tree, path)) for path in paths])

    try:
        fields, values_of = typed_fields(paths)
    except NotTypedError:
        return read_any
    decode = msgspec.json.Decoder(fields).decode

    def extract(body: bytes) -> tuple[Value, ...]:
        try:
            values = values_of(decode(body))
        except REFUSED:
            return read_any(body)
        return tuple([value if value.__class__ in _PLAIN else _bounded(value) for value in values])

    return extract


def _bounded(value: Value) -> Value:
    """Make a double of an integer of more than 64 bits, and NULL of an empty array."""
    if isinstance(value, list):
        return [_bounded(element) for element in value] or None
    if isinstance(value, int) and not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    return value


def first_wins_extractor(paths: Sequence[Path]) -> Extractor:
    """Make an extractor for which the first of equal keys counts."""
    scanning = scanning_extractor(paths, first_wins=True)
    indirect = frozenset(slot for slot, path in enumerate(paths) if not is_direct(path))
    misses = [0] * len(paths)
    try:
        read = _compile(paths, indirect)
        read_any = _compile(paths, frozenset(range(len(paths))))
    except NotTypedError:
        return scanning

    def extract(body: bytes) -> tuple[Value, ...]:
        try:
            return read(body)
        except REFUSED:
            return reread(body)

    def reread(body: bytes) -> tuple[Value, ...]:
        nonlocal indirect, read
        try:
            values = read_any(body)
        except REFUSED:
            values = scanning(body)
        for slot, value in enumerate(values):
            if (value is None or value.__class__ is list) and misses[slot] < _MISSES:
                misses[slot] += 1  # missing, or perhaps reached through an array
        doubtful = indirect | {slot for slot, count in enumerate(misses) if count == _MISSES}
        if doubtful != indirect:
            indirect = doubtful
            read = _compile(paths, doubtful)
        return values

    return extract


def is_direct(path: Path) -> bool:
    """Whether a path leads through members of objects alone."""
    return len(path) <= MAX_DEPTH and all(isinstance(step, str) for step in path)


def _compile(paths: Sequence[Path], doubtful: frozenset[int]) -> _Reader:
    """Generate a reader of first occurrences; it raises one of `REFUSED` where it cannot read.

    For /id, /order/px and a doubtful /note it is:

        def read(body):
            document = parse(body) if len(body) <= kept else Parser().parse(body)
            there = decode(body)
            v0 = document["id"]
            v1 = document["order"]["px"]
            v2 = None if there.field_0 is UNSET else value_below(document["note"], ())
            return (v0 if v0.__class__ in scalars else value_of(v0), ..., v2)

    Raises:
        NotTypedError: a name that msgspec cannot look for.
    """
    names = list(dict.fromkeys(str(paths[slot][0]) for slot in sorted(doubtful)))
    scope: dict[str, Any] = {
        "Parser": simdjson.Parser,
        "UNSET": msgspec.UNSET,
        "decode": msgspec.json.Decoder(presence(names)).decode,
        "kept": KEPT_BUFFERS,
        "parse": simdjson.Parser().parse,
        "scalars": SCALARS,
        "value_below": _value_below,
        "value_of": _value_of,
    }
    lines = ["document = parse(body) if len(body) <= kept else Parser().parse(body)"]
    if names:
        lines.append("there = decode(body)")
    for slot, path in enumerate(paths):
        first, *rest = path
        if slot in doubtful:
            attribute = f"there.field_{names.index(str(first))}"
            read = f"value_below(document[{first!r}], {tuple(rest)!r})"
            lines.append(f"v{slot} = None if {attribute} is UNSET else {read}")
        else:
            lines.append(f"v{slot} = document" + "".join(f"[{step!r}]" for step in path))
    values = [
        f"v{slot}"
        if slot in doubtful
        else f"v{slot} if v{slot}.__class__ in scalars else value_of(v{slot})"
        for slot in range(len(paths))
    ]
    lines.append(f"return ({''.join(value + ', ' for value in values)})")
    exec("def read(body):\n " + "\n ".join(lines), scope)  # noqa: S102 - names only as literals
    return cast("_Reader", scope["read"])


def _value_of(node: simdjson.Object | simdjson.Array) -> Value:
    return read_path(node.as_list(), ()) if isinstance(node, simdjson.Array) else None


def _value_below(node: object, path: Path) -> Value:
    names = [step for step in path if isinstance(step, str)]
    return read_path(_prune(node, names, 1), path)


def _prune(node: object, names: Sequence[str], depth: int) -> Tree:
    """Turn what `names` lead to, from a node at a depth of the document, into dicts and lists."""
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
