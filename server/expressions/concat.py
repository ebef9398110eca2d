"""Joins texts: the language's strings are byte sequences, Python's are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.util.encoding import from_octets, to_octets

LONGEST_TEXT: Final = 16 * 1024 * 1024
"""Maximum length of a function's result, in characters: short expressions can make long texts."""
_LONGEST_LETTER: Final = 4
"""Maximum number of bytes of a character."""


def joined(parts: Sequence[str], between: str = "") -> str | None:
    """Join texts; return None if the result would be too long.

    Args:
        parts: the texts.
        between: the separator.
    """
    if sum(map(len, parts)) + len(between) * len(parts) > LONGEST_TEXT:
        return None
    text = between.join(parts)
    # Bytes of two parts may form one character.
    return text if text.isascii() else from_octets(to_octets(text))


def joined_octets(parts: Sequence[bytes], between: str) -> str | None:
    """Join texts in bytes; return None if there are none, or the result would be too long."""
    size = sum(map(len, parts)) + len(between) * len(parts)
    if not parts or size > LONGEST_TEXT * _LONGEST_LETTER:
        return None
    text = from_octets(to_octets(between).join(parts))
    return None if len(text) > LONGEST_TEXT else text
