"""Envelopes of the protocols xml and soap: a SOAP header with one element per field, and a body.

Only the header is parsed. A body is the content of the Body element, byte for byte: it is parsed by
its message type, only if one of its fields is needed. So the reader stops at the start tag of the
body, and searches its end from the back of the message.

Prefixes of names are ignored, declared or not: the envelopes in the reference do not declare theirs
(AMPS User Guide, Out-of-Focus Messages and Event Topics).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Final, Self
from xml.parsers import expat  # document types, and with them entities, are refused below

from amperage.wire.framing import FrameError
from amperage.wire.legacy.dialect import DecodedMessage
from amperage.wire.legacy.fields import FIELDS, FIELDS_BY_KEY

_KEYS: Final = {field.element: field.key for field in FIELDS}
_ELEMENTS: Final = {key: field.element for key, field in FIELDS_BY_KEY.items()}

_DECLARATION: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+<\?xml\s[^<>]{0,200}?"
    rb"(?:encoding\s*=\s*[\"'](?P<encoding>[^\"'<>]{1,40})[\"'][^<>]{0,200})?\?>"
)
_TAG: Final = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*+>")
_CLOSING: Final = re.compile(rb"</(?:[^<>\s:]+:)?Body\s*>\s*</(?:[^<>\s:]+:)?Envelope\s*>\s*")
_ENCODINGS: Final = {b"utf-8": "utf-8", b"us-ascii": "us-ascii", b"iso-8859-1": "iso-8859-1"}
_FIRST_PIECE: Final = 1024
_FIELD_DEPTH: Final = 3  # Envelope, Header and the field itself
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_NAMESPACE: Final = ' xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"'
_HEAD: Final = (
    '<?xml version="1.0" encoding="utf-8"?>'
    "<SOAP-ENV:Envelope{namespace}><SOAP-ENV:Header>{fields}</SOAP-ENV:Header><SOAP-ENV:Body>"
)


@dataclass(frozen=True, slots=True)
class EnvelopeDialect:
    """Messages of the protocols xml and soap.

    Attributes:
        namespaces: whether encoded envelopes declare the namespace of SOAP.
    """

    namespaces: bool

    def read(self, message: bytes) -> DecodedMessage:
        """Decode the header of a message, see `Dialect.read`."""
        header = _Header(_encoding(message))
        try:
            for piece in _pieces(message):
                header.parse(piece)
            header.parse(b"", is_last=True)
        except _BodyReachedError as reached:
            tag = _TAG.match(message, reached.index)
            assert tag is not None  # noqa: S101 - the parser has just read it
            return DecodedMessage(header.fields, tag.end())
        except expat.ExpatError as error:
            raise FrameError(f"the envelope cannot be read: {error}") from None
        return DecodedMessage(header.fields, None)

    def body(self, message: bytes, body_start: int) -> bytes:
        """Return the body of a message, in UTF-8 for any encoding of the envelope."""
        if message[body_start - 2 : body_start] == b"/>":
            return b""
        last_tag = message.rfind(b"</", body_start)
        end = message.rfind(b"</", body_start, max(last_tag, body_start))
        if end < 0 or _CLOSING.fullmatch(message, end) is None:
            raise FrameError("the envelope does not end after its body")
        body = message[body_start:end]
        return body if body.isascii() else _in_utf8(body, _encoding(message))

    def embed(self, body: bytes) -> bytes:
        """Return a body without its XML declaration: that must be at the start of a message."""
        declaration = _DECLARATION.match(body)
        if declaration is None:
            return body
        declared = (declaration["encoding"] or b"utf-8").lower()
        return _in_utf8(body[declaration.end() :], _ENCODINGS.get(declared, "utf-8"))

    def write(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Return the beginning of an envelope, up to its body."""
        elements = [
            f"<{_ELEMENTS[key]}>{_text(value)}</{_ELEMENTS[key]}>"
            for key, value in fields
            if key in _ELEMENTS
        ]
        namespace = _NAMESPACE if self.namespaces else ""
        return _HEAD.format(namespace=namespace, fields="".join(elements)).encode()

    @property
    def tail(self) -> bytes:
        """The end of an envelope."""
        return b"</SOAP-ENV:Body></SOAP-ENV:Envelope>"

    def with_namespaces(self, *, declared: bool) -> Self:
        """Return the dialect with or without the declaration of the SOAP namespace."""
        return replace(self, namespaces=declared)


class _BodyReachedError(Exception):
    """Raised when the header is complete, and the body begins.

    Attributes:
        index: the offset of the body's start tag, in bytes from the start of the message.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _Header:
    """Collects the fields of an envelope's header.

    Args:
        encoding: the encoding of the envelope.
    """

    def __init__(self, encoding: str) -> None:
        self.fields: dict[str, str] = {}
        self._depth = 0
        self._text: list[str] = []
        self._parser = parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.StartElementHandler = self._on_start_element
        parser.EndElementHandler = self._on_end_element
        parser.CharacterDataHandler = self._append_text
        parser.StartDoctypeDeclHandler = _refuse_doctype

    def parse(self, piece: bytes, *, is_last: bool = False) -> None:
        """Parse the next piece of an envelope.

        Raises:
            _BodyReachedError: the header is complete.
            FrameError: it is not an envelope.
            expat.ExpatError: it is not XML.
        """
        self._parser.Parse(piece, is_last)

    def _on_start_element(self, name: str, _attributes: dict[str, str]) -> None:
        name = _local(name)
        if self._depth == 0 and name != "Envelope":
            raise FrameError("the outermost element is no Envelope")
        if self._depth == 1 and name == "Body":
            raise _BodyReachedError(self._parser.CurrentByteIndex)
        if self._depth == 1 and name != "Header":
            raise FrameError("the envelope has something else than a Header or a Body in it")
        self._depth += 1

    def _on_end_element(self, name: str) -> None:
        if self._depth == _FIELD_DEPTH:
            key = _KEYS.get(_local(name))
            value = "".join(self._text).strip()
            if key is not None and value:
                self.fields[key] = value
            self._text.clear()
        self._depth -= 1

    def _append_text(self, text: str) -> None:
        if self._depth == _FIELD_DEPTH:
            self._text.append(text)


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _pieces(message: bytes) -> Iterator[bytes]:
    """Yield a message in pieces of growing size.

    A piece is always parsed to its end, so the first ones should not be much longer than a header;
    with pieces of constant size, a long token would be scanned again and again.
    """
    start, size = 0, _FIRST_PIECE
    while start < len(message):
        yield message[start : start + size]
        start += size
        size *= 2


def _text(value: str) -> str:
    """Return a text escaped for XML; characters that XML cannot express become U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", value), quote=False)


def _refuse_doctype(*_declaration: object) -> None:
    raise FrameError("document type declarations are not accepted")


def _encoding(message: bytes) -> str:
    """Return the encoding of an envelope.

    Raises:
        FrameError: it is not supported.
    """
    declaration = _DECLARATION.match(message)
    declared = (declaration["encoding"] if declaration else None) or b"utf-8"
    if b"\x00" in message[:2] or message[:2] in (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE):
        declared = b"utf-16"  # refused here: the parser would detect it, and count in other bytes
    encoding = _ENCODINGS.get(declared.lower())
    if encoding is None:
        expected = ", ".join(name.upper() for name in _ENCODINGS.values())
        raise FrameError(f"an envelope in {declared.decode('latin-1')}, expected one of {expected}")
    return encoding


def _in_utf8(body: bytes, encoding: str) -> bytes:
    return body.decode(encoding).encode() if encoding == "iso-8859-1" else body
