"""Parses texts that are numbers, in the same way for literals and for values of messages.

Separate from `semantics` because the lexer needs it too.
"""

from __future__ import annotations

from typing import Final

MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**64 - 1
"""Integers are signed 64-bit, and unsigned 64-bit above that (AMPS User Guide, AMPS Data Types)."""

_CHARACTERS: Final = "0123456789+-.eE"
"""The characters of numerals: a text of these that Python reads as a number is a numeral."""

_MAX_INTEGER_DIGITS: Final = 400
"""Number of digits beyond which an integer exceeds a double's range, too."""


def bounded(value: int) -> int | float:
    """Return an integer, as a double if it exceeds 64 bits."""
    if MIN_INTEGER <= value <= MAX_INTEGER:
        return value
    return double(value)


def double(value: float) -> float:
    """Return a number as a double; integers beyond a double's range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def numeral(text: str) -> int | float | None:
    """Return the number that a text represents, or None if it is no number.

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
    if "." in text or "e" in text or "E" in text or len(text) > _MAX_INTEGER_DIGITS:
        return number
    return bounded(int(text))
