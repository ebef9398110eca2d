"""The Basic Encoding Rules, as far as LDAP uses them: tag, length of definite form, content.

Source: RFC 4511, section 5.1; X.690.
"""

from __future__ import annotations

from typing import Final

INTEGER: Final = 0x02
OCTETS: Final = 0x04
ENUMERATED: Final = 0x0A
SEQUENCE: Final = 0x30
SET: Final = 0x31

_MAX_LENGTH_OCTETS: Final = 4
_MAX_NUMBER_OCTETS: Final = 4  # RFC 4511 numbers go up to 2 ** 31 - 1


class BerError(ValueError):
    """Malformed or unexpected bytes. The text has the problem."""


def element(tag: int, *parts: bytes) -> bytes:
    """Encode an element of a tag below 31, with its parts as content."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def number(value: int, tag: int = INTEGER) -> bytes:
    """Encode a number that is not negative."""
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def boolean(value: bool) -> bytes:
    """Encode a truth value."""
    return element(0x01, b"\xff" if value else b"\x00")


def size_of(octets: bytes) -> int | None:
    """Return the size of the element at the start of the bytes; None if more bytes are needed.

    Raises:
        BerError: it is not valid in LDAP.
    """
    if octets and octets[0] & 0x1F == 0x1F:
        raise BerError("a tag of more than one byte")
    if len(octets) < 2:
        return None
    first = octets[1]
    if first < 0x80:
        return 2 + first
    count = first & 0x7F
    if not 0 < count <= _MAX_LENGTH_OCTETS:
        raise BerError("a length of another form than LDAP has")
    if len(octets) < 2 + count:
        return None
    return 2 + count + int.from_bytes(octets[2 : 2 + count], "big")


class BerReader:
    """Reads the elements in the content of another one, in turn.

    Args:
        content: the content.
    """

    def __init__(self, content: bytes) -> None:
        self._unread = content

    @property
    def has_more(self) -> bool:
        """True if there are further elements."""
        return bool(self._unread)

    @property
    def tag(self) -> int | None:
        """The tag of the next element; None at the end."""
        return self._unread[0] if self._unread else None

    def read_bytes(self, tag: int) -> bytes:
        """Return the content of the next element, and advance.

        Raises:
            BerError: it has another tag, or is longer than the rest of the content.
        """
        if self.tag != tag:
            actual = "nothing" if self.tag is None else f"tag {self.tag:#04x}"
            raise BerError(f"{actual} where tag {tag:#04x} was expected")
        size = size_of(self._unread)
        if size is None or size > len(self._unread):
            raise BerError("an element that ends behind what contains it")
        start = 2 if self._unread[1] < 0x80 else 2 + (self._unread[1] & 0x7F)
        content, self._unread = self._unread[start:size], self._unread[size:]
        return content

    def read_nested(self, tag: int) -> BerReader:
        """Return a reader for the content of the next element, and advance.

        Raises:
            BerError: as `read_bytes` does.
        """
        return BerReader(self.read_bytes(tag))

    def read_number(self, tag: int = INTEGER) -> int:
        """Return the next element, a number, and advance.

        Raises:
            BerError: as `read_bytes` does, or the number is longer than LDAP allows.
        """
        content = self.read_bytes(tag)
        if not 0 < len(content) <= _MAX_NUMBER_OCTETS:
            raise BerError(f"a number of {len(content)} bytes")
        return int.from_bytes(content, "big", signed=True)

    def read_text(self) -> str:
        """Return the next element, a text, and advance; bytes that are not UTF-8 are replaced.

        Raises:
            BerError: as `read_bytes` does.
        """
        return self.read_bytes(OCTETS).decode(errors="replace")
