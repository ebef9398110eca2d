"""A server with a transport for each legacy protocol, and fields by one set of names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.legacy import FixPeer, LegacyPeer, XmlPeer
from tests.support.server import RunningServer, free_port, running_server

_FIX_TAGS = {
    "Cmd": "20000",
    "CmdId": "20001",
    "ClntName": "20002",
    "UsrId": "20003",
    "TxmTm": "20004",
    "Tpc": "20005",
    "Fltr": "20006",
    "MsgTyp": "20007",
    "AckTyp": "20008",
    "SubId": "20009",
    "Version": "20011",
    "DatOnly": "20014",
    "Hrtbt": "20015",
    "TmIntvl": "20016",
    "Status": "20018",
    "QId": "20019",
    "SndOOF": "20020",
    "CorrelationId": "20035",
    "Seq": "20036",
    "BkMrk": "20037",
    "Opts": "20039",
    "MsgLen": "20058",
    "SubIds": "20061",
    "Reason": "20062",
}
"""Names of XML elements, by which tests call fields, and the FIX tags of the same fields."""

BODIES = {
    "fix": (b"37=1\x0154=1\x01", b"37=2\x0154=2\x01"),
    "nvfix": (b"id=1\x01side=1\x01", b"id=2\x01side=2\x01"),
    "xml": (b"<order><side>1</side></order>", b"<order><side>2</side></order>"),
    "soap": (b"<order><side>1</side></order>", b"<order><side>2</side></order>"),
    "fix-custom": (b"37=1|54=1|", b"37=2|54=2|"),
}
"""For each transport a body that matches its filter, and one that does not."""

FILTERS = {
    "fix": "/54 = '1'",
    "nvfix": "/side = '1'",
    "xml": "/order/side < 2",
    "soap": "/order/side < 2",
    "fix-custom": "/54 = '1'",
}
_MESSAGE_TYPES = {"soap": "xml"}
"""Where the message type has another name than the transport."""

_CUSTOM_TYPE = """
<MessageTypes><MessageType>
  <Name>fix-custom</Name><Module>fix</Module>
  <FieldSeparator>124</FieldSeparator><HeaderSeparator>33</HeaderSeparator>
</MessageType></MessageTypes>
<Protocols><Protocol><Name>my-fix</Name><Module>fix</Module></Protocol></Protocols>
"""


def _transport(name: str, protocol: str, message_type: str, port: int) -> str:
    """A Transport element."""
    return (
        f"<Transport><Name>{name}</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Protocol>{protocol}</Protocol><MessageType>{message_type}</MessageType></Transport>"
    )


@dataclass(frozen=True)
class Legacy:
    """A server, and a transport of it.

    Attributes:
        server: the server; its first transport speaks the amps protocol.
        name: the transport's name, which is a key of the tables above.
        connect: makes a connection.
        tags: what each field is called there.
    """

    server: RunningServer
    name: str
    connect: Callable[[], LegacyPeer]
    tags: dict[str, str]

    @property
    def message_type(self) -> str:
        """The transport's message type."""
        return _MESSAGE_TYPES.get(self.name, self.name)

    def fields(self, **fields: str) -> dict[str, str]:
        """Fields of a header, named as in the protocol."""
        return {self.tags[name]: value for name, value in fields.items()}

    def log_on(self, name: str = "old") -> LegacyPeer:
        """A connection, logged on."""
        peer = self.connect()
        answer = peer.ask(
            self.fields(Cmd="logon", CmdId="1", ClntName=name, AckTyp="processed", Version="3.0")
        )
        assert answer[self.tags["Status"]] == "success"
        return peer

    def subscribe(self, peer: LegacyPeer, topic: str, **fields: str) -> dict[str, str]:
        """Subscribe, and give the ack by the names used here."""
        asked = {"Cmd": "subscribe", "CmdId": "2", "SubId": "s1", "Tpc": topic} | fields
        return self.named(peer.ask(self.fields(**asked, AckTyp="processed")))

    def named(self, fields: dict[str, str]) -> dict[str, str]:
        """Fields by the names used here."""
        names = {tag: name for name, tag in self.tags.items()}
        return {names[tag]: value for tag, value in fields.items()}

    def receive(self, peer: LegacyPeer) -> tuple[dict[str, str], bytes]:
        """The next message, with fields by the names used here."""
        fields, body = peer.receive()
        return self.named(fields), body


@contextmanager
def legacy_transports(directory: Path) -> Iterator[dict[str, Legacy]]:
    """One server with a transport for each protocol, by name.

    Args:
        directory: where it runs and finds its configuration.
    """
    protocols = {name: name for name in FILTERS} | {"fix-custom": "my-fix"}
    ports = {name: free_port() for name in protocols}
    elements = "".join(
        _transport(name, protocol, _MESSAGE_TYPES.get(name, name), ports[name])
        for name, protocol in protocols.items()
    )
    xml_names = {name: name for name in _FIX_TAGS}
    with running_server(directory, transports=elements, elements=_CUSTOM_TYPE) as server:
        yield {
            "fix": Legacy(server, "fix", lambda: FixPeer(ports["fix"]), _FIX_TAGS),
            "nvfix": Legacy(server, "nvfix", lambda: FixPeer(ports["nvfix"]), _FIX_TAGS),
            "xml": Legacy(server, "xml", lambda: XmlPeer(ports["xml"]), xml_names),
            "soap": Legacy(server, "soap", lambda: XmlPeer(ports["soap"]), xml_names),
            "fix-custom": Legacy(
                server,
                "fix-custom",
                lambda: FixPeer(ports["fix-custom"], b"|", b"!"),
                _FIX_TAGS,
            ),
        }
