"""The message types `composite-local` and `composite-global`: bodies made of parts.

    body = { part } payload
    part = length (4 bytes, big-endian) bytes

The configuration lists a type for each part; a body that ends early has empty parts. The bytes
after the last part are the unparsed payload, which is passed on without inspection (AMPS User
Guide, Composite Messages).

In `composite-local` the first step of a path is the number of a part: `/0/id`. In
`composite-global` a path is looked up in every part, and more than one value makes an array.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias, cast

from server.message_types.base import BodyError, Capabilities, MessageTypeError
from server.message_types.literal import LiteralType
from server.message_types.select_list import selection_of
from server.message_types.trees import read_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from server.message_types.base import Extractor, FieldValue, MessageType, Value
    from server.message_types.options import MessageTypeOptions
    from server.message_types.paths import Path
    from server.message_types.registry import Find
    from server.message_types.select_list import FieldSelection
    from server.message_types.trees import Tree

    _Parts: TypeAlias = tuple[list[bytes], bytes]
    """The parts of a body, and the payload."""

_LENGTH = struct.Struct(">I")


def _children(options: MessageTypeOptions, find: Find) -> list[MessageType]:
    names = options.texts("MessageType")
    if not names:
        raise MessageTypeError("MessageType", "a composite type needs at least one part")
    options.refuse_unknown()
    return [find(name) for name in names]


def _split(body: bytes, count: int) -> _Parts:
    """Split a body into its parts.

    Raises:
        BodyError: the length of a part exceeds the body.
    """
    parts, position = leading_parts(body, count)
    if len(parts) < count and position < len(body):
        raise BodyError(f"composite: part {len(parts)} is cut off")
    parts.extend([b""] * (count - len(parts)))
    return parts, body[position:]


def leading_parts(body: bytes, count: int) -> tuple[list[bytes], int]:
    """Return the parts, at most `count`, up to a truncated one, and the offset of their end."""
    parts: list[bytes] = []
    position = 0
    while len(parts) < count and position + _LENGTH.size <= len(body):
        start = position + _LENGTH.size
        end = start + _LENGTH.unpack_from(body, position)[0]
        if end > len(body):
            break
        parts.append(body[start:end])
        position = end
    return parts, position


def _join(parts: Iterable[bytes], payload: bytes) -> bytes:
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts]) + payload


def _select_part(part: bytes, child: MessageType, selection: FieldSelection) -> bytes:
    """Apply a select list to one part; keep or remove it as a whole if no field of it is listed."""
    if not part or not selection.children or not child.capabilities.select:
        return part if selection.include else b""
    return child.select(part, selection)


class CompositeGlobalType(LiteralType):
    """`composite-global`; its option `MessageType` lists the parts.

    Attributes:
        children: the types of the parts.
    """

    capabilities = Capabilities(delta=False, build=False, events=False)

    def __init__(self, name: str, options: MessageTypeOptions, find: Find) -> None:
        self.children = _children(options, find)
        self.name = name

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        part_paths = [path[:-1] if path and isinstance(path[-1], int) else path for path in paths]
        subscripts = [path[-1:] if path and isinstance(path[-1], int) else () for path in paths]
        extractors = [child.extractor(part_paths) for child in self.children]
        empty: tuple[Value, ...] = (None,) * len(paths)

        def extract(body: bytes) -> tuple[Value, ...]:
            parts, _ = leading_parts(body, len(extractors))
            part_values = [
                read(part) for read, part in zip(extractors, parts, strict=False) if part
            ]
            return (
                tuple(map(combine, zip(*part_values, strict=True), subscripts))
                if part_values
                else empty
            )

        def combine(part_values: Sequence[Value], subscript: Path) -> Value:
            values = [value for value in part_values if value is not None]
            value = values[0] if len(values) == 1 else _joined(values)
            return read_path(cast("Tree", value), subscript)

        return extract

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list to every part, see `MessageType.select`."""
        parts, payload = _split(body, len(self.children))
        selected = [
            _select_part(part, child, selection)
            for part, child in zip(parts, self.children, strict=True)
        ]
        return _join(selected, payload if selection.include else b"")


def _joined(values: Sequence[Value]) -> list[Value]:
    joined: list[Value] = []
    for value in values:
        joined.extend(value if isinstance(value, list) else [value])
    return joined


class CompositeLocalType:
    """`composite-local`; its option `MessageType` lists the parts.

    Attributes:
        children: the types of the parts.
    """

    capabilities = Capabilities(events=False)

    def __init__(self, name: str, options: MessageTypeOptions, find: Find) -> None:
        self.children = _children(options, find)
        self._part_numbers: dict[object, int] = {str(n): n for n in range(len(self.children))}
        self.name = name

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        slots: dict[int, list[int]] = {}
        for slot, path in enumerate(paths):
            part = self._part_of(path)
            if part is not None:
                slots.setdefault(part, []).append(slot)
        readers = [
            (part, self.children[part].extractor([paths[slot][1:] for slot in wanted]), wanted)
            for part, wanted in sorted(slots.items())
        ]
        count = max(slots, default=-1) + 1
        empty: list[Value] = [None] * len(paths)

        def extract(body: bytes) -> tuple[Value, ...]:
            values = empty.copy()
            parts, _ = leading_parts(body, count)
            for part, read, wanted in readers:
                if part < len(parts) and parts[part]:
                    for slot, value in zip(wanted, read(parts[part]), strict=True):
                        values[slot] = value
            return tuple(values)

        return extract

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`."""
        return self._set_fields([b""] * len(self.children), b"", fields)

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta part by part: an empty part or payload leaves the stored one unchanged."""
        parts, payload = self._split(stored)
        changes, new_payload = self._split(delta)
        merged = [
            child.merge(part, change, nulls=nulls) if part and change else change or part
            for child, part, change in zip(self.children, parts, changes, strict=True)
        ]
        return _join(merged, new_payload or payload)

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference by parts; an unchanged part is empty, and there is no payload."""
        before, _ = self._split(previous)
        after, _ = self._split(current)
        differences = [
            _differ_part(child, previous_part, current_part, self._paths_in_part(number, keep))
            for number, (child, previous_part, current_part) in enumerate(
                zip(self.children, before, after, strict=True)
            )
        ]
        if not any(changed for changed, _ in differences):
            return None
        return _join([part for _, part in differences], b"")

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`; `+/` and `-/` include the payload."""
        parts, payload = self._split(body)
        selected = []
        for number, (part, child) in enumerate(zip(parts, self.children, strict=True)):
            rule = selection.children.get(str(number))
            if rule is None:
                selected.append(part if selection.include else b"")
            else:
                selected.append(_select_part(part, child, rule))
        return _join(selected, payload if selection.include else b"")

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        parts, payload = self._split(body)
        return self._set_fields(parts, payload, fields)

    def _set_fields(
        self, parts: list[bytes], payload: bytes, fields: Sequence[FieldValue]
    ) -> bytes:
        by_part: dict[int, list[FieldValue]] = {}
        for path, value in fields:
            number = self._part_of(path)
            if number is None:
                raise BodyError(
                    f"{self.name}: no part {path[0] if path else ''!r} to set a field in"
                )
            by_part.setdefault(number, []).append((path[1:], value))
        for number, inner in by_part.items():
            child = self.children[number]
            parts[number] = (
                child.update(parts[number], inner) if parts[number] else child.build(inner)
            )
        return _join(parts, payload)

    def _split(self, body: bytes) -> _Parts:
        return _split(body, len(self.children))

    def _part_of(self, path: Path) -> int | None:
        """Return the part of a path; None if there is no such part, or the path names no field."""
        part, *field = path or (None,)
        return self._part_numbers.get(part) if field else None

    def _paths_in_part(self, number: int, paths: Sequence[Path]) -> list[Path]:
        return [path[1:] for path in paths if self._part_of(path) == number]


def _differ_part(
    child: MessageType, previous: bytes, current: bytes, keep: Sequence[Path]
) -> tuple[bool, bytes]:
    """Return whether a part has changed, and the bytes of it to send."""
    if not current or current == previous or not child.capabilities.delta:
        changed = bool(current) and current != previous
        return changed, current if changed else _keys_of(child, current, keep)
    if not previous:
        return True, current
    difference = child.differ(previous, current, keep)
    if difference is None:
        return False, _keys_of(child, current, keep)
    return True, difference


def _keys_of(child: MessageType, part: bytes, keep: Sequence[Path]) -> bytes:
    """Return the bytes to send of an unchanged part: its fields among those to keep."""
    if not part or not keep:
        return b""
    return _select_part(part, child, selection_of(keep))
