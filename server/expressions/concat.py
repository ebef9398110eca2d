"""Joins texts: the language's strings are byte sequences, Python's are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.util.encoding import bytes_to_text, text_to_bytes

MAX_TEXT_LENGTH: Final = 16 * 1024 * 1024
"""Maximum length of a function's result, in characters: short expressions can make long texts."""
_MAX_LETTER_LENGTH: Final = 4
"""Maximum number of bytes of a character."""


def joined(parts: Sequence[str], between: str = "") -> str | None:
    """Join texts; return None if the result would be too long.

    Args:
        parts: the texts.
        between: the separator.
    """
    if sum(map(len, parts)) + len(between) * len(parts) > MAX_TEXT_LENGTH:
        return None
    text = between.join(parts)
    # Bytes of two parts may form one character.
    return text if text.isascii() else bytes_to_text(text_to_bytes(text))


def join_text_bytes(parts: Sequence[bytes], between: str) -> str | None:
    """Join texts in bytes; return None if there are none, or the result would be too long."""
    size = sum(map(len, parts)) + len(between) * len(parts)
    if not parts or size > MAX_TEXT_LENGTH * _MAX_LETTER_LENGTH:
        return None
    text = bytes_to_text(text_to_bytes(between).join(parts))
    return None if len(text) > MAX_TEXT_LENGTH else text
