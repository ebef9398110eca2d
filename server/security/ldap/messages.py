"""The messages of LDAP that a logon needs, as bytes.

Filters are made of elements, never of text: a user's name is a value in them, whatever characters
it has.

Source: RFC 4511 (and RFC 1777, whose messages are the same), RFC 4514.
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
    Reader,
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

MOST_MESSAGE_BYTES: Final = 1 << 20
"""No answer to what is asked here is nearly as large."""

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
class Message:
    """A message of the directory.

    Attributes:
        number: that of the request which it answers.
        tag: which message it is.
        content: its content.
    """

    number: int
    tag: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """How a request has ended.

    Attributes:
        code: zero for success.
        said: what the directory says to it.
    """

    code: int
    said: str

    def __str__(self) -> str:
        """As the log has it."""
        name = _NAMES.get(self.code, "an error")
        said = "".join(char if char.isprintable() else " " for char in self.said[:200]).strip()
        return f"{name} ({self.code})" + (f", {said!r}" if said else "")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a search has found.

    Attributes:
        name: its distinguished name.
        values: the values of the attributes that were asked for.
    """

    name: str
    values: tuple[str, ...]


def bind(message: int, version: int, name: str, password: str) -> bytes:
    """Log on to the directory."""
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
    message: int, base: str, attributes: Collection[str], value: str, most: int, seconds: int
) -> bytes:
    """Search for entries one of whose attributes has a value.

    Args:
        message: the number of the message.
        base: the distinguished name of the entry below which to search.
        attributes: the attributes, whose values are asked for as well.
        value: the value.
        most: how many entries are of interest.
        seconds: how long the directory may search.
    """
    wanted = value.encode()
    equal = [
        element(_EQUAL, element(OCTETS, name.encode()), element(OCTETS, wanted))
        for name in attributes
    ]
    return _request(
        message,
        element(
            _SEARCH,
            element(OCTETS, base.encode()),
            number(_SUBTREE, ENUMERATED),
            number(0, ENUMERATED),
            number(most),
            number(seconds),
            boolean(False),
            element(_OR, *equal),
            element(SEQUENCE, *(element(OCTETS, name.encode()) for name in attributes)),
        ),
    )


def start_tls(message: int) -> bytes:
    """Ask for TLS on a connection (RFC 4511, section 4.14)."""
    return _request(message, element(_EXTENDED, element(0x80, _START_TLS_NAME)))


def unbind(message: int) -> bytes:
    """Say that no more comes."""
    return _request(message, element(_UNBIND))


def _request(message: int, operation: bytes) -> bytes:
    return element(SEQUENCE, number(message), operation)


def size_of_message(octets: bytes) -> int | None:
    """The size of the message that bytes begin with, of which 6 tell; None if too few have come.

    Raises:
        BerError: they begin with none, or it is too large.
    """
    if octets and octets[0] != SEQUENCE:
        raise BerError(f"tag {octets[0]:#04x} where a message was expected")
    size = size_of(octets)
    if size is not None and size > MOST_MESSAGE_BYTES:
        raise BerError(f"a message of {size} bytes")
    return size


def read_message(octets: bytes) -> Message:
    """Read a message that has come as a whole.

    Raises:
        BerError: it is none.
    """
    reader = Reader(octets).enter(SEQUENCE)
    answered = reader.number()
    tag = reader.tag
    if tag is None:
        raise BerError("a message without content")
    return Message(answered, tag, reader.take(tag))


def read_result(message: Message) -> Result:
    """Read how a request has ended.

    Raises:
        BerError: the message does not say.
    """
    reader = Reader(message.content)
    code = reader.number(ENUMERATED)
    reader.take(OCTETS)  # the part of the name that was found
    return Result(code, reader.text())


def read_entry(message: Message) -> Entry:
    """Read an entry.

    Raises:
        BerError: the message has none.
    """
    reader = Reader(message.content)
    name = reader.text()
    attributes = reader.enter(SEQUENCE)
    values = []
    while attributes.has_more:
        attribute = attributes.enter(SEQUENCE)
        attribute.take(OCTETS)  # its name
        found = attribute.enter(SET)
        while found.has_more:
            values.append(found.text())
    return Entry(name, tuple(values))
