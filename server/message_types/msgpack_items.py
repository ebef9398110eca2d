"""The items of MessagePack (msgpack.org): heads, decoding and encoding.

An item is a head (one byte, then perhaps a length) and its payload: bytes, or for arrays and maps
the count of items that follow. The first byte determines the format, so heads are a table of 256.

Values follow the reference (AMPS User Guide, MessagePack Messages): `bin` is text of its bytes, and
so is `ext` (without its type byte).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec.msgpack

from server.message_types.base import BodyError
from server.message_types.path_tree import MAX_DEPTH
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.message_types.base import Value
    from server.message_types.trees import Tree

    Head: TypeAlias = tuple["MsgpackKind", int, int]


class MsgpackKind(IntEnum):
    """Families of items."""

    NIL = 0
    FALSE = 1
    TRUE = 2
    POSITIVE = 3
    NEGATIVE = 4
    UNSIGNED = 5
    SIGNED = 6
    FLOAT = 7
    STR = 8
    BIN = 9
    EXT = 10
    ARRAY = 11
    MAP = 12
    UNUSED = 13


LAST_FLAT = MsgpackKind.EXT
"""Kinds up to this one hold no other items."""


def _item_heads() -> Iterator[Head]:
    """Yield for every first byte: kind, number of length bytes that follow, and the length if there
    are none (otherwise the number to add to the length: 1 for an ext's type byte)."""
    yield from ((MsgpackKind.POSITIVE, 0, 0) for _ in range(0x80))
    yield from ((MsgpackKind.MAP, 0, count) for count in range(16))
    yield from ((MsgpackKind.ARRAY, 0, count) for count in range(16))
    yield from ((MsgpackKind.STR, 0, size) for size in range(32))
    yield from (
        (MsgpackKind.NIL, 0, 0),
        (MsgpackKind.UNUSED, 0, 0),
        (MsgpackKind.FALSE, 0, 0),
        (MsgpackKind.TRUE, 0, 0),
    )
    yield from ((MsgpackKind.BIN, width, 0) for width in (1, 2, 4))
    yield from ((MsgpackKind.EXT, width, 1) for width in (1, 2, 4))
    yield from ((MsgpackKind.FLOAT, 0, size) for size in (4, 8))
    yield from ((MsgpackKind.UNSIGNED, 0, size) for size in (1, 2, 4, 8))
    yield from ((MsgpackKind.SIGNED, 0, size) for size in (1, 2, 4, 8))
    yield from ((MsgpackKind.EXT, 0, 1 + size) for size in (1, 2, 4, 8, 16))
    yield from ((MsgpackKind.STR, width, 0) for width in (1, 2, 4))
    yield from ((MsgpackKind.ARRAY, width, 0) for width in (2, 4))
    yield from ((MsgpackKind.MAP, width, 0) for width in (2, 4))
    yield from ((MsgpackKind.NEGATIVE, 0, 0) for _ in range(32))


HEADS: tuple[Head, ...] = tuple(_item_heads())


def head(body: bytes, position: int) -> Head:
    """Read the head of the item at an offset.

    Returns:
        Kind, offset of the payload, and its size in bytes; the number of items for an array, of
        pairs for a map.

    Raises:
        BodyError: the body ends before the payload does, or the first byte is the unused one.
    """
    if position >= len(body):
        raise BodyError("MessagePack: the body ends where an item is expected")
    kind, width, size = HEADS[body[position]]
    start = position + 1
    if width:
        size += int.from_bytes(body[start : start + width], "big")
        start += width
    if start + size > len(body) or kind == MsgpackKind.UNUSED:  # an item takes at least one byte
        raise BodyError(f"MessagePack: the item at offset {position} is malformed or cut short")
    return kind, start, size


def skip(body: bytes, position: int) -> int:
    """Return the offset after an item of any kind.

    Raises:
        BodyError: the item is malformed.
    """
    items = 1
    while items:
        kind, position, size = head(body, position)
        items -= 1
        if kind == MsgpackKind.ARRAY:
            items += size
        elif kind == MsgpackKind.MAP:
            items += 2 * size
        else:
            position += size
    return position


def decode(body: bytes, position: int, depth: int = 0) -> tuple[Tree, int]:
    """Decode the item at an offset, with all items in it.

    Of equal keys in a map the last counts; entries whose keys are neither text nor integers are
    ignored.

    Returns:
        The value, and the offset after the item.

    Raises:
        BodyError: the item is malformed or nests too deep.
    """
    kind, start, size = head(body, position)
    if kind not in (MsgpackKind.ARRAY, MsgpackKind.MAP):
        return scalar(body, kind, start, size), start + size
    if depth == MAX_DEPTH:
        raise BodyError(f"MessagePack: arrays and maps nest deeper than {MAX_DEPTH}")
    position = start
    if kind == MsgpackKind.ARRAY:
        elements: list[Tree] = []
        for _ in range(size):
            element, position = decode(body, position, depth + 1)
            elements.append(element)
        return elements, position
    fields: dict[str, Tree] = {}
    for _ in range(size):
        name, position = key(body, position)
        value, position = decode(body, position, depth + 1)
        if name is not None:
            fields[name] = value
    return fields, position


def key(body: bytes, position: int) -> tuple[str | None, int]:
    """Read a map's key, and return it with the offset after it.

    Returns:
        Text unchanged, an integer as its decimal text, None for any other key.

    Raises:
        BodyError: the key is malformed.
    """
    kind, start, size = head(body, position)
    if kind == MsgpackKind.STR:
        return bytes_to_text(body[start : start + size]), start + size
    if kind in INTEGERS:
        return IntegerName(scalar(body, kind, start, size)), start + size
    return None, skip(body, position)


INTEGERS = (MsgpackKind.POSITIVE, MsgpackKind.NEGATIVE, MsgpackKind.UNSIGNED, MsgpackKind.SIGNED)


class IntegerName(str):
    """A key that is an integer in the body: in paths its decimal text, written as an integer."""

    __slots__ = ()


_FLOATS = {4: struct.Struct(">f"), 8: struct.Struct(">d")}


def scalar(
    body: bytes, kind: MsgpackKind, start: int, size: int
) -> None | bool | int | float | str:  # noqa: RUF036 - None is the first of the values, as in Value
    """Return the value of an item that is neither array nor map, from the result of `head`."""
    payload = body[start : start + size]
    match kind:
        case MsgpackKind.STR | MsgpackKind.BIN:
            return bytes_to_text(payload)
        case MsgpackKind.EXT:
            return bytes_to_text(payload[1:])
        case MsgpackKind.POSITIVE:
            return body[start - 1]
        case MsgpackKind.NEGATIVE:
            return body[start - 1] - 256
        case MsgpackKind.UNSIGNED:
            return int.from_bytes(payload, "big")
        case MsgpackKind.SIGNED:
            return int.from_bytes(payload, "big", signed=True)
        case MsgpackKind.FLOAT:
            number: float = _FLOATS[size].unpack(payload)[0]
            return number
        case MsgpackKind.FALSE | MsgpackKind.TRUE:
            return kind == MsgpackKind.TRUE
    return None


def encode(value: Value) -> bytes:
    """Encode a value in the shortest form. Text that is not UTF-8 becomes `bin`, which decodes to
    the same text; an integer beyond 64 bits becomes a float."""
    if isinstance(value, str):
        try:
            return msgspec.msgpack.encode(value)
        except UnicodeEncodeError:
            return msgspec.msgpack.encode(text_to_bytes(value))
    if isinstance(value, list):
        return array([encode(element) for element in value])
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.encode(float("inf" if value > 0 else "-inf"))
    return msgspec.msgpack.encode(value)


def encode_key(name: str) -> bytes:
    """Encode a map's key."""
    return msgspec.msgpack.encode(int(name)) if isinstance(name, IntegerName) else encode(name)


def array(items: list[bytes]) -> bytes:
    """Join encoded items to an array."""
    return _count(len(items), 0x90, 0xDC) + b"".join(items)


def map_of(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Join encoded keys and values to a map."""
    return _count(len(pairs), 0x80, 0xDE) + b"".join(part for pair in pairs for part in pair)


def _count(count: int, short: int, wide: int) -> bytes:
    if count < 16:
        return bytes([short | count])
    if count < 2**16:
        return bytes([wide]) + count.to_bytes(2, "big")
    return bytes([wide + 1]) + count.to_bytes(4, "big")
