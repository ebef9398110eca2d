"""Exact values of decimals in BSON, which the server reads as doubles."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.message_types.base import BodyError
from server.message_types.bson_elements import (
    BsonKind,
    decimal128,
    decode,
    document_bounds,
    elements,
)


def with_decimals(
    extract: Callable[[bytes], Sequence[Any]], decimals: Mapping[int, tuple[str, ...]]
) -> Callable[[bytes], Sequence[Any]]:
    """Include exact decimals in the values that are read from a body.

    Args:
        extract: reads the values.
        decimals: the paths of possible decimals, by their indexes.
    """

    def exact(body: bytes) -> Sequence[Any]:
        values = list(extract(body))
        for slot, path in decimals.items():
            if _has_floats(values[slot]):
                try:
                    values[slot] = _value_at(body, path)
                except (BodyError, LookupError, struct.error):
                    continue  # another type of value: it stays as it was read
        return values

    return exact


def _has_floats(value: object) -> bool:
    return any(map(_has_floats, value)) if isinstance(value, list) else isinstance(value, float)


def _value_at(body: bytes, path: Sequence[str]) -> Any:
    """Return the first value at a path.

    Raises:
        LookupError: there is none.
        BodyError, struct.error: the body is malformed.
    """
    kind, start, after = int(BsonKind.DOCUMENT), 0, len(body)
    for name in path:
        if kind != BsonKind.DOCUMENT:
            raise LookupError(name)
        wanted = name.encode()
        inside = elements(body, *document_bounds(body, start, after))
        found = [(inner, value, end) for inner, key, value, end in inside if key == wanted]
        kind, start, after = found[0]
    return _exact(body, kind, start, after)


def _exact(body: bytes, kind: int, start: int, after: int) -> Any:
    if kind == BsonKind.ARRAY:
        inside = elements(body, *document_bounds(body, start, after))
        return [_exact(body, inner, value, end) for inner, _, value, end in inside]
    return decimal128(body, start) if kind == BsonKind.DECIMAL else decode(body, kind, start, after)
