"""Headers with a sequence number, and frames with headers that differ by that number at most."""

from __future__ import annotations

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
