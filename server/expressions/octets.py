"""Texts as bytes and back: the language's strings are byte sequences, Python's are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


def to_octets(text: str) -> bytes:
    """The bytes of a text; those that are not UTF-8 travel as surrogate escapes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte, as some JSON bodies have them
        return text.encode("utf-8", "surrogatepass")


def from_octets(octets: bytes) -> str:
    """The text of some bytes, whatever they are."""
    return octets.decode("utf-8", "surrogateescape")


LONGEST_TEXT: Final = 16 * 1024 * 1024
"""How many characters a function's result may have: short expressions can make very long ones."""


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
