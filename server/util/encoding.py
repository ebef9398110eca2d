"""Conversion of texts to bytes and back: any bytes become a text, and the same bytes again."""

from __future__ import annotations


def text_to_bytes(text: str) -> bytes:
    r"""Return the bytes of a text; its surrogate escapes are bytes that are not UTF-8.

    Any text can be converted: JSON's `\ud800` stands for no byte, and is encoded like a letter.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def bytes_to_text(octets: bytes) -> str:
    """Return the text of any bytes; those that are not UTF-8 become surrogate escapes."""
    return octets.decode("utf-8", "surrogateescape")


class DescendingBytes:
    """Bytes that sort in descending order."""

    __slots__ = ("octets",)

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __lt__(self, other: DescendingBytes) -> bool:
        return other.octets < self.octets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DescendingBytes) and other.octets == self.octets

    def __hash__(self) -> int:
        return hash(self.octets)
