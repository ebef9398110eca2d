"""Texts put together: the language's strings are byte sequences, Python's are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.base.octets import from_octets, to_octets

LONGEST_TEXT: Final = 16 * 1024 * 1024
"""How many characters a function's result may have: short expressions can make very long ones."""
_LONGEST_LETTER: Final = 4
"""Bytes of a character at most."""


def joined(parts: Sequence[str], between: str = "") -> str | None:
    """Texts put together, None if that would be too long.

    Args:
        parts: the texts.
        between: what comes between any two of them.
    """
    if sum(map(len, parts)) + len(between) * len(parts) > LONGEST_TEXT:
        return None
    text = between.join(parts)
    # Bytes that came from two parts may make one letter.
    return text if text.isascii() else from_octets(to_octets(text))


def joined_octets(parts: Sequence[bytes], between: str) -> str | None:
    """The same for texts in bytes; None of nothing, too."""
    size = sum(map(len, parts)) + len(between) * len(parts)
    if not parts or size > LONGEST_TEXT * _LONGEST_LETTER:
        return None
    text = from_octets(to_octets(between).join(parts))
    return None if len(text) > LONGEST_TEXT else text
