"""Peers that speak the legacy protocols with bytes of their own making.

They share no code with the product. The FIX peer is written down from the table of tags in the
reference, the XML peer from the envelopes shown there; what they receive is read with lxml.
"""

from __future__ import annotations

import struct
from xml.sax.saxutils import escape

from lxml import etree

from tests.support.raw import Connection
from tests.support.waiting import WAIT_SECONDS

Message = tuple[dict[str, str], bytes]
"""The fields of a header, by their tags or the names of their elements, and the body."""

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def with_length(content: bytes) -> bytes:
    """Content as it goes on the wire."""
    return struct.pack(">I", len(content)) + content


class LegacyPeer(Connection):
    """A connection of a legacy protocol."""

    def format(self, fields: dict[str, str], body: bytes = b"") -> bytes:
        """A message of the protocol, without its length."""
        raise NotImplementedError

    def read(self, content: bytes) -> Message:
        """Take a message apart."""
        raise NotImplementedError

    def send(self, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a command."""
        self.send_content(self.format(fields, body))

    def send_content(self, content: bytes) -> None:
        """Send anything with its length before it."""
        self.socket.sendall(with_length(content))

    def receive_content(self, wait: float = WAIT_SECONDS) -> bytes:
        """The next message as it comes, without its length."""
        self.socket.settimeout(wait)
        return self.take(struct.unpack(">I", self.take(4))[0])

    def receive(self) -> Message:
        """The next message."""
        return self.read(self.receive_content())

    def ask(self, fields: dict[str, str], body: bytes = b"") -> dict[str, str]:
        """Send a command, and give the header of the answer, which has no body."""
        self.send(fields, body)
        header, body = self.receive()
        assert body == b""
        return header

    def pass_over(self, wait: float = WAIT_SECONDS) -> None:
        """See `Connection.pass_over`."""
        self.receive_content(wait)


class FixPeer(LegacyPeer):
    """A peer of the protocols fix and nvfix."""

    def __init__(self, port: int, field_end: bytes = b"\x01", header_end: bytes = b"\x02") -> None:
        super().__init__(port)
        self._field_end = field_end
        self._header_end = header_end

    def format(self, fields: dict[str, str], body: bytes = b"") -> bytes:
        """Fields, each with its end, then the end of the header, then the body."""
        parts = [f"{tag}={value}".encode() + self._field_end for tag, value in fields.items()]
        return b"".join(parts) + self._header_end + body

    def read(self, content: bytes) -> Message:
        """Take a message apart."""
        header, found, body = content.partition(self._header_end)
        assert found
        assert header.endswith(self._field_end)
        parts = header.decode().split(self._field_end.decode())[:-1]
        return dict(part.split("=", 1) for part in parts), body


class XmlPeer(LegacyPeer):
    """A peer of the protocols xml and soap; its envelopes are indented, as the reference's are."""

    def format(self, fields: dict[str, str], body: bytes = b"") -> bytes:
        """An envelope."""
        lines = [f"    <{name}>{escape(value)}</{name}>" for name, value in fields.items()]
        return (
            b'<?xml version="1.0" encoding="iso-8859-1"?>\n<SOAP-ENV:Envelope>\n'
            b"  <SOAP-ENV:Header>\n%s\n  </SOAP-ENV:Header>\n"
            b"  <SOAP-ENV:Body>%s</SOAP-ENV:Body>\n</SOAP-ENV:Envelope>\n"
        ) % ("\n".join(lines).encode("ascii", "xmlcharrefreplace"), body)

    def read(self, content: bytes) -> Message:
        """Take an envelope apart; its prefix may be declared or not."""
        declared = f'xmlns:SOAP-ENV="{SOAP}"'.encode()
        if declared not in content:
            content = content.replace(
                b"<SOAP-ENV:Envelope>", b"<SOAP-ENV:Envelope " + declared + b">"
            )
        envelope = etree.fromstring(content)
        header, body = envelope
        assert [element.tag for element in (envelope, header, body)] == [
            f"{{{SOAP}}}{name}" for name in ("Envelope", "Header", "Body")
        ]
        start = content.index(b"<SOAP-ENV:Body>") + len(b"<SOAP-ENV:Body>")
        fields = {str(element.tag): element.text or "" for element in header}
        return fields, content[start : content.rindex(b"</SOAP-ENV:Body>")]
