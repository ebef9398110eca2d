"""Texts that are numbers: one reading for literals and for values of messages.

Kept apart from `semantics` because the lexer needs it too.
"""

from __future__ import annotations

from typing import Final

LEAST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**64 - 1
"""Integers are signed 64-bit, and unsigned 64-bit above that (AMPS User Guide, AMPS Data Types)."""

_CHARACTERS: Final = "0123456789+-.eE"
"""All that numerals are made of: whatever Python reads as a number out of these is a numeral."""

_LONGEST_INTEGER: Final = 400
"""Digits beyond which an integer is no double either."""


def bounded(value: int) -> int | float:
    """An integer, as a double when 64 bits cannot hold it."""
    if LEAST_INTEGER <= value <= LARGEST_INTEGER:
        return value
    return double(value)


def double(value: float) -> float:
    """A number as a double; integers beyond a double's range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def numeral(text: str) -> int | float | None:
    """The number that a text stands for, or None when it stands for none.

    The formats are those of number literals, with a sign (AMPS User Guide, Type Promotion for
    Numeric Types); white space, hexadecimal, `nan` and `inf` are not numbers.
    """
    if text.isdigit() and text.isascii() and len(text) < 19:
        return int(text)
    if text.strip(_CHARACTERS):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if "." in text or "e" in text or "E" in text or len(text) > _LONGEST_INTEGER:
        return number
    return bounded(int(text))
