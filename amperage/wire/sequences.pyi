"""Sequence numbers of messages in a row; the theory of it is in sequences.pyx."""

from collections.abc import Sequence

def numbers_of(digits: Sequence[bytes]) -> Sequence[int]:
    """Read numbers.

    Args:
        digits: those of each number.

    Returns:
        The numbers: a range if each is one more than that before it, empty if there are none.

    Raises:
        ValueError: something else stands in the place of digits.
    """
