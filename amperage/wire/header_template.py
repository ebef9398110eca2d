"""Headers with a sequence number, and frames with headers that differ by that number at most.

Others differ by values that the publisher gives per message: correlation id, SOW key, lifetime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

SEQUENCE_KEY: Final = b',"s":'
_DIGITS: Final = b"0123456789"
MAX_SEQUENCE_DIGITS: Final = 18
"""Maximum digits of a number that `split_at_sequence` recognizes."""


def split_at_sequence(header: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a header at its sequence number, if it has one that is not its first key.

    A header with another number between the same two parts has the same meaning in all other
    respects, and is well-formed if this one is.

    Returns:
        The part before `SEQUENCE_KEY`, the number's digits, and the part after them. The digits are
        empty if there is no such number.
    """
    before, _, rest = header.rpartition(SEQUENCE_KEY)
    behind = rest.lstrip(_DIGITS)
    digits = rest[: len(rest) - len(behind)]
    if (
        digits < b"1" or len(digits) > MAX_SEQUENCE_DIGITS
    ):  # none, a leading zero, or too many to be sure
        return header, b"", b""
    return before, digits, behind


_TEXT: Final = rb"[ !#-\[\]-~]+"
_VALUE: Final = re.compile(
    rb',"(?:([xk])":"(%b)"|(s)":([1-9][0-9]{0,17})(?=[,}])|(e)":(0|[1-9][0-9]{0,8})(?=[,}]))'
    % _TEXT
)
"""A key with a value that varies per message. No JSON text contains unescaped quotes like these."""
_GROUPS: Final = 6
"""Groups of the expression: three keys, each with its value."""


class MessageMetadata(NamedTuple):
    """Values that a publisher gives for one message.

    Attributes:
        correlation_id: its correlation id.
        sow_key: the key of its record.
        expiration: its lifetime in seconds.
    """

    correlation_id: str | None
    sow_key: str | None
    expiration: int | None


HeaderOutline: TypeAlias = tuple[bytes, ...]
"""The parts of a header around its values, with the names of these between them."""


def split_at_values(header: bytes) -> tuple[HeaderOutline, bytes, MessageMetadata] | None:
    """Split a header at the values of its message, which are plain texts or numbers.

    A header with other such values between the same parts has the same meaning in all other
    respects, and is well-formed if this one is.

    Returns:
        The parts around the values, the digits of the sequence number (empty if there is none), and
        the other values; None if a key occurs twice.
    """
    parts = _VALUE.split(header)
    outline = [parts[0]]
    found: dict[bytes, bytes] = {}
    for index in range(1, len(parts), _GROUPS + 1):
        name, value = (part for part in parts[index : index + _GROUPS] if part is not None)
        if name in found:
            return None
        found[name] = value
        outline += (name, parts[index + _GROUPS])
    correlation_id, key, lifetime = found.get(b"x"), found.get(b"k"), found.get(b"e")
    metadata = MessageMetadata(
        None if correlation_id is None else correlation_id.decode(),
        None if key is None else key.decode(),
        None if lifetime is None else int(lifetime),
    )
    return tuple(outline), found.get(b"s", b""), metadata


HeaderShape: TypeAlias = bytes | tuple[bytes, bytes]
"""A header, or its parts around the sequence number, as split by `split_at_sequence`."""


class FrameBatch(NamedTuple):
    """Consecutive frames with known headers.

    Attributes:
        shapes: shapes of headers, see `HeaderShapes.shapes`.
        keys: the index of the shape of each header in `shapes`, or the one that all have.
        digits: the sequence number of each frame; none if no header has one.
        bodies: the body of each frame.
    """

    shapes: Sequence[HeaderShape]
    keys: int | Sequence[int]
    digits: Sequence[bytes]
    bodies: Sequence[bytes]

    def part(self, begin: int, most: int) -> FrameBatch:
        """Return at most `most` of the frames, from the index `begin` on."""
        if not begin and most >= len(self.bodies):
            return self
        part = slice(begin, begin + most)
        keys = self.keys if isinstance(self.keys, int) else self.keys[part]
        return FrameBatch(self.shapes, keys, self.digits[part], self.bodies[part])

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames one by one: header and body."""
        keys, digits, shapes = self.keys, self.digits, self.shapes
        for row, body in enumerate(self.bodies):
            shape = shapes[keys if isinstance(keys, int) else keys[row]]
            if isinstance(shape, bytes):
                yield shape, body
            else:
                left, right = shape
                yield left + SEQUENCE_KEY + digits[row] + right, body
