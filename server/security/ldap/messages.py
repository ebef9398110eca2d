"""Encodes and decodes the LDAP messages of a logon.

Filters are built from elements, never from text: a user's name is a value in them, with any
characters.

Source: RFC 4511 (and RFC 1777, with the same messages), RFC 4514.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from server.security.ldap.ber import (
    ENUMERATED,
    OCTETS,
    SEQUENCE,
    SET,
    BerError,
    BerReader,
    boolean,
    element,
    number,
    size_of,
)

BIND_RESPONSE: Final = 0x61
SEARCH_ENTRY: Final = 0x64
SEARCH_DONE: Final = 0x65
SEARCH_REFERENCE: Final = 0x73
EXTENDED_RESPONSE: Final = 0x78

SUCCESS: Final = 0
PROTOCOL_ERROR: Final = 2
PARTIAL_RESULTS: Final = 9

MAX_LDAP_MESSAGE_SIZE: Final = 1 << 20
"""Size limit of a message; the expected answers are far smaller."""

_BIND: Final = 0x60
_UNBIND: Final = 0x42
_SEARCH: Final = 0x63
_EXTENDED: Final = 0x77
_START_TLS_NAME: Final = b"1.3.6.1.4.1.1466.20037"
_SUBTREE: Final = 2
_OR: Final = 0xA1
_EQUAL: Final = 0xA3

_NAMES: Final = {
    1: "operationsError",
    2: "protocolError",
    3: "timeLimitExceeded",
    4: "sizeLimitExceeded",
    7: "authMethodNotSupported",
    8: "strongerAuthRequired",
    10: "referral",
    11: "adminLimitExceeded",
    13: "confidentialityRequired",
    32: "noSuchObject",
    34: "invalidDNSyntax",
    48: "inappropriateAuthentication",
    49: "invalidCredentials",
    50: "insufficientAccessRights",
    51: "busy",
    52: "unavailable",
    53: "unwillingToPerform",
    80: "other",
}


@dataclass(frozen=True, slots=True)
class LdapMessage:
    """A message of the directory.

    Attributes:
        number: the number of the request that it answers.
        tag: the kind of the message.
        content: its content.
    """

    number: int
    tag: int
    content: bytes


@dataclass(frozen=True, slots=True)
class LdapResult:
    """The result of a request.

    Attributes:
        code: zero for success.
        diagnostic: the diagnostic text of the directory.
    """

    code: int
    diagnostic: str

    def __str__(self) -> str:
        """Return the text for the log."""
        name = _NAMES.get(self.code, "an error")
        shown = "".join(
            char if char.isprintable() else " " for char in self.diagnostic[:200]
        ).strip()
        return f"{name} ({self.code})" + (f", {shown!r}" if shown else "")


@dataclass(frozen=True, slots=True)
class LdapEntry:
    """An entry that a search has found.

    Attributes:
        name: its distinguished name.
        values: the values of the requested attributes.
    """

    name: str
    values: tuple[str, ...]


def bind(message: int, version: int, name: str, password: str) -> bytes:
    """Encode a request to log on to the directory."""
    return _request(
        message,
        element(
            _BIND,
            number(version),
            element(OCTETS, name.encode()),
            element(0x80, password.encode()),
        ),
    )


def search(
    message: int, base: str, attributes: Collection[str], value: str, max_entries: int, seconds: int
) -> bytes:
    """Encode a search for entries with a value in one of several attributes.

    Args:
        message: the number of the message.
        base: the distinguished name of the entry below which to search.
        attributes: the attributes; their values are requested as well.
        value: the value.
        max_entries: the maximum number of entries.
        seconds: time limit of the search.
    """
    encoded = value.encode()
    equal = [
        element(_EQUAL, element(OCTETS, name.encode()), element(OCTETS, encoded))
        for name in attributes
    ]
    return _request(
        message,
        element(
            _SEARCH,
            element(OCTETS, base.encode()),
            number(_SUBTREE, ENUMERATED),
            number(0, ENUMERATED),
            number(max_entries),
            number(seconds),
            boolean(False),
            element(_OR, *equal),
            element(SEQUENCE, *(element(OCTETS, name.encode()) for name in attributes)),
        ),
    )


def start_tls(message: int) -> bytes:
    """Encode a request for TLS on a connection (RFC 4511, section 4.14)."""
    return _request(message, element(_EXTENDED, element(0x80, _START_TLS_NAME)))


def unbind(message: int) -> bytes:
    """Encode the end of a session."""
    return _request(message, element(_UNBIND))


def _request(message: int, operation: bytes) -> bytes:
    return element(SEQUENCE, number(message), operation)


def size_of_message(octets: bytes) -> int | None:
    """Return the size of a message from its first 6 bytes; None if too few have come.

    Raises:
        BerError: they begin no message, or it is too large.
    """
    if octets and octets[0] != SEQUENCE:
        raise BerError(f"tag {octets[0]:#04x} where a message was expected")
    size = size_of(octets)
    if size is not None and size > MAX_LDAP_MESSAGE_SIZE:
        raise BerError(f"a message of {size} bytes")
    return size


def read_message(octets: bytes) -> LdapMessage:
    """Parse a complete message.

    Raises:
        BerError: it is malformed.
    """
    reader = BerReader(octets).read_nested(SEQUENCE)
    answered = reader.read_number()
    tag = reader.tag
    if tag is None:
        raise BerError("a message without content")
    return LdapMessage(answered, tag, reader.read_bytes(tag))


def read_result(message: LdapMessage) -> LdapResult:
    """Parse the result of a request.

    Raises:
        BerError: the message has none.
    """
    reader = BerReader(message.content)
    code = reader.read_number(ENUMERATED)
    reader.read_bytes(OCTETS)  # the matched part of the name
    return LdapResult(code, reader.read_text())


def read_entry(message: LdapMessage) -> LdapEntry:
    """Parse an entry.

    Raises:
        BerError: the message has none.
    """
    reader = BerReader(message.content)
    name = reader.read_text()
    attributes = reader.read_nested(SEQUENCE)
    values = []
    while attributes.has_more:
        attribute = attributes.read_nested(SEQUENCE)
        attribute.read_bytes(OCTETS)  # its name
        attribute_values = attribute.read_nested(SET)
        while attribute_values.has_more:
            values.append(attribute_values.read_text())
    return LdapEntry(name, tuple(values))
