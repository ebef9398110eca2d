"""Texts as bytes and back: the language's strings are byte sequences, Python's are not."""

from __future__ import annotations


def to_octets(text: str) -> bytes:
    """The bytes of a text; those that are not UTF-8 travel as surrogate escapes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte, as some JSON bodies have them
        return text.encode("utf-8", "surrogatepass")


def from_octets(octets: bytes) -> str:
    """The text of some bytes, whatever they are."""
    return octets.decode("utf-8", "surrogateescape")


def joined(text: str) -> str:
    """A text put together from texts: bytes that came from two of them may make one letter."""
    return text if text.isascii() else from_octets(to_octets(text))
