"""Headers with a sequence number, and frames with headers that differ by that number at most.

Others differ by what their publisher says of each message: a correlation id, a SOW key, a lifetime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

SEQUENCE_KEY: Final = b',"s":'
_DIGITS: Final = b"0123456789"
MOST_DIGITS: Final = 18
"""Of a number that `split_at_sequence` knows."""


def split_at_sequence(header: bytes) -> tuple[bytes, bytes, bytes]:
    """Divide a header at its sequence number, if it has one that is not its first key.

    A header with another number between the same two parts means the same in all other respects,
    and is well-formed if this one is.

    Returns:
        What stands before `SEQUENCE_KEY`, the number's digits, and what stands behind them. There
        are no digits if there is no such number.
    """
    before, _, rest = header.rpartition(SEQUENCE_KEY)
    behind = rest.lstrip(_DIGITS)
    digits = rest[: len(rest) - len(behind)]
    if digits < b"1" or len(digits) > MOST_DIGITS:  # none, a leading zero, or too many to be sure
        return header, b"", b""
    return before, digits, behind


_TEXT: Final = rb"[ !#-\[\]-~]+"
_VALUE: Final = re.compile(
    rb',"(?:([xk])":"(%b)"|(s)":([1-9][0-9]{0,17})(?=[,}])|(e)":(0|[1-9][0-9]{0,8})(?=[,}]))'
    % _TEXT
)
"""A key with a value that could be another one. No text of JSON has quotes like these in it."""
_GROUPS: Final = 6
"""Of the expression: three times a key and its value."""


class Marks(NamedTuple):
    """What a publisher says of one message.

    Attributes:
        correlation_id: its mark.
        sow_key: the key of its record.
        expiration: how many seconds it lives.
    """

    correlation_id: str | None
    sow_key: str | None
    expiration: int | None


Outline: TypeAlias = tuple[bytes, ...]
"""What of a header stands around its values, with the names of these between."""


def split_at_values(header: bytes) -> tuple[Outline, bytes, Marks] | None:
    """Divide a header at the values of its messages, which are plain texts or numbers.

    A header with other such values between the same parts means the same in all other respects, and
    is well-formed if this one is.

    Returns:
        What stands around the values, the digits of the sequence number (none if there is none),
        and the others; None if a value is there twice.
    """
    parts = _VALUE.split(header)
    outline = [parts[0]]
    found: dict[bytes, bytes] = {}
    for place in range(1, len(parts), _GROUPS + 1):
        name, value = (one for one in parts[place : place + _GROUPS] if one is not None)
        if name in found:
            return None
        found[name] = value
        outline += (name, parts[place + _GROUPS])
    mark, key, lifetime = found.get(b"x"), found.get(b"k"), found.get(b"e")
    marks = Marks(
        None if mark is None else mark.decode(),
        None if key is None else key.decode(),
        None if lifetime is None else int(lifetime),
    )
    return tuple(outline), found.get(b"s", b""), marks


Shape: TypeAlias = bytes | tuple[bytes, bytes]
"""A header, or what stands around its number, as `split_at_sequence` divides headers."""


class FrameRun(NamedTuple):
    """Frames in a row with headers that are equal, or differ by their sequence numbers.

    Attributes:
        shape: that of the headers.
        digits: of each frame, its number; none if the headers are equal.
        bodies: of each frame, its body.
    """

    shape: Shape
    digits: Sequence[bytes]
    bodies: Sequence[bytes]

    def part(self, begin: int, most: int) -> FrameRun:
        """Some of the frames, beginning with one and not more than so many."""
        part = slice(begin, begin + most)
        return FrameRun(self.shape, self.digits[part], self.bodies[part])

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """The frames one by one: header and body."""
        shape = self.shape
        if isinstance(shape, bytes):
            for body in self.bodies:
                yield shape, body
        else:
            left, right = shape
            for digits, body in zip(self.digits, self.bodies, strict=True):
                yield left + SEQUENCE_KEY + digits + right, body
