"""Texts as bytes and back: any bytes become a text, and the same bytes again."""

from __future__ import annotations


def to_octets(text: str) -> bytes:
    r"""The bytes of a text; those that are not UTF-8 travel as surrogate escapes.

    Any text has some: JSON's `\ud800` stands for no byte, and is encoded as if it were a letter.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def from_octets(octets: bytes) -> str:
    """The text of some bytes, whatever they are."""
    return octets.decode("utf-8", "surrogateescape")


class Descending:
    """Bytes that sort the other way round."""

    __slots__ = ("octets",)

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __lt__(self, other: Descending) -> bool:
        return other.octets < self.octets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and other.octets == self.octets

    def __hash__(self) -> int:
        return hash(self.octets)
