"""The message type `bflat`: flat messages of tags and typed values.

The reference's section is AMPS User Guide, BFlat Messages.
Tags have no structure, so a path of several steps is the tag with a slash between them: `/a/b`
names the tag `a/b`. Of equal tags the first counts, and reading stops as soon as all tags are
found. Unchanged values keep their bytes; new values are written in the most compact form of BFlat.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias, cast

from server.message_types.base import BodyError, Capabilities, TypeWithoutOptions
from server.message_types.bflat_fields import (
    WIDTHS,
    BFlatCode,
    decode,
    encode,
    fields,
    pair,
    unsigned,
    value_end,
)
from server.message_types.trees import read_path
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from server.message_types.base import Extractor, FieldValue, Value
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection
    from server.message_types.trees import Tree

    Encoded: TypeAlias = tuple[int, bytes]
    Message: TypeAlias = dict[bytes, Encoded]
    Places: TypeAlias = tuple[tuple[int, Path], ...]

_NULLS = ((BFlatCode.NULL, b""), (BFlatCode.STRING, b"\0"), (BFlatCode.BINARY, b"\0"))
"""Empty text is NULL too (AMPS User Guide, AMPS Data Types)."""
_INTEGERS = (BFlatCode.INT8, BFlatCode.INT16, BFlatCode.INT32, BFlatCode.INT64, BFlatCode.LEB128)

_STRING = int(BFlatCode.STRING)
"""A plain integer: a comparison with a member of an enumeration is slow in the hot loop."""


class BFlatType(TypeWithoutOptions):
    """`bflat`; it has no options."""

    capabilities = Capabilities()

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        slots = _slots_by_tag(paths)
        empty: list[Value] = [None] * len(paths)

        def extract(body: bytes) -> tuple[Value, ...]:
            out = empty.copy()
            try:  # noqa: SIM105 - contextlib.suppress costs a tenth of the whole read
                _read(body, slots, out)
            except (BodyError, IndexError, struct.error):
                pass  # damaged from here on: values read so far are kept, the rest is NULL
            return tuple(out)

        return extract

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded (see `server.message_types.pretty`).

        Raises:
            BodyError: the body cannot be parsed.
        """
        result: dict[str, Tree] = {}
        for tag, code, start, end in fields(body):
            result.setdefault(bytes_to_text(tag), cast("Tree", decode(body, code, start, end)))
        return result

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`."""
        return _render({_tag(path): encode(value) for path, value in fields})

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`."""
        message = _parse(stored)
        for tag, value in _parse(delta).items():
            if nulls or value not in _NULLS:
                message[tag] = value
        return _render(message)

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`."""
        before = _parse(previous)
        kept_tags = {_tag(path) for path in keep}
        difference = {
            tag: value
            for tag, value in _parse(current).items()
            if tag in kept_tags or not _are_equal(before.get(tag), value)
        }
        return _render(difference) if difference.keys() - kept_tags else None

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`."""
        return _render(
            {
                tag: value
                for tag, value in _parse(body).items()
                if selection.includes(tuple(bytes_to_text(tag).split("/")))
            }
        )

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        message = _parse(body)
        message.update((_tag(path), encode(value)) for path, value in fields)
        return _render(message)


def _tag(path: Path) -> bytes:
    return text_to_bytes("/".join(step for step in path if isinstance(step, str)))


def _slots_by_tag(paths: Sequence[Path]) -> dict[bytes, Places]:
    """Return tag -> the slots of its values, each with the subscripts to apply."""
    by_tag: dict[bytes, Places] = {}
    for slot, path in enumerate(paths):
        names = [step for step in path if isinstance(step, str)]
        if list(path[: len(names)]) == names:  # there are no names below an array
            tag = _tag(path)
            by_tag[tag] = (*by_tag.get(tag, ()), (slot, path[len(names) :]))
    return by_tag


def _parse(body: bytes) -> Message:
    message: Message = {}
    for tag, code, start, end in fields(body):
        message.setdefault(tag, (code, body[start:end]))
    return message


def _render(message: Message) -> bytes:
    return b"".join([pair(tag, *value) for tag, value in message.items()])


def _are_equal(left: Encoded | None, right: Encoded) -> bool:
    """Return whether two values are equal; integers may differ in width."""
    if left == right:
        return True
    if left is None or left[0] not in _INTEGERS or right[0] not in _INTEGERS:
        return False
    value = decode(left[1], left[0], 0, len(left[1]))
    return value is not None and value == decode(right[1], right[0], 0, len(right[1]))


def _read(body: bytes, slots: Mapping[bytes, Places], out: list[Value]) -> None:
    """Read the wanted tags; stop when all are found or the body is malformed.

    This is the hot loop of the type: the skipping of short tags and short values is inlined.
    """
    position = 0
    end = len(body)
    missing = set(slots)
    while position < end and missing:
        first = body[position]
        tag_start = position + 1
        start = tag_start + (first & 7)
        if start == tag_start:
            size, tag_start = unsigned(body, tag_start)
            start = tag_start + size
        code = first >> 3
        width = WIDTHS[code]
        if width >= 0:
            position = start + width
        elif code == _STRING and body[start] < 0x80:
            position = start + 1 + body[start]
        else:
            position = value_end(body, code, start)
        tag = body[tag_start:start]
        if tag in missing:
            if position > end:
                return
            missing.discard(tag)
            _add_value(decode(body, code, start, position), slots[tag], out)


def _add_value(value: Value, slots: Places, out: list[Value]) -> None:
    for slot, subscripts in slots:
        out[slot] = read_path(cast("Tree", value), subscripts) if subscripts else value
