"""The protocol websocket, spoken by an independent library."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.transports import connection
from tests.support.raw import SILENCE_SECONDS
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import Authority, WebsocketClient, transport


@dataclass(frozen=True)
class WebServer:
    """A server with websocket transports, and their ports by name."""

    server: RunningServer
    ports: dict[str, int]
    authority: Authority

    def url(self, name: str = "any", path: str = "/amps/json") -> str:
        """The address of a transport."""
        return f"ws://127.0.0.1:{self.ports[name]}{path}"

    def open(
        self, name: str = "any", path: str = "/amps/json", **arguments: Any
    ) -> WebsocketClient:
        """Connect to a transport."""
        return WebsocketClient(self.url(name, path), **arguments)


PROTOCOLS = r"""
<Protocols>
  <Protocol>
    <Name>websocket-basic</Name>
    <Module>websocket</Module>
    <WWWAuthenticate>Basic realm="the realm"</WWWAuthenticate>
    <HTTPHeader>X-From-Protocol: yes</HTTPHeader>
  </Protocol>
  <Protocol>
    <Name>websocket-negotiate</Name>
    <Module>websocket</Module>
    <WWWAuthenticate>Negotiate</WWWAuthenticate>
  </Protocol>
  <Protocol>
    <Name>websocket-portal</Name>
    <Module>websocket</Module>
    <AccessControlAllowOrigin>https?://portal\.example\.com(:\d+)?</AccessControlAllowOrigin>
    <AccessControlAllowOrigin>localhost</AccessControlAllowOrigin>
    <AccessControlAllowOrigin>^(a+)+$</AccessControlAllowOrigin>
  </Protocol>
  <Protocol>
    <Name>websocket-everywhere</Name>
    <Module>websocket</Module>
    <AccessControlAllowOrigin>portal</AccessControlAllowOrigin>
    <AccessControlAllowOrigin>*</AccessControlAllowOrigin>
  </Protocol>
</Protocols>
"""

NOBODY = "<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>"
SPOOFING = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options>
    <AllowSpoofing>true</AllowSpoofing>
    <RequireUsername>true</RequireUsername>
  </Options>
</Authentication>
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """One server with all kinds of websocket transports."""
    directory = tmp_path_factory.mktemp("web")
    authority = Authority(directory, "web")
    certificate, key = authority.issue("localhost")
    variants = {
        "any": ("tcp", "websocket", ""),
        "json-only": ("tcp", "websocket", "<MessageType>json</MessageType>"),
        "plain": ("tcp", "websocket", "<PerMessageDeflate>disabled</PerMessageDeflate>"),
        "headers": (
            "tcp",
            "websocket-basic",
            "<HTTPHeader>X-One: 1</HTTPHeader><HTTPHeader>X-One: 2</HTTPHeader>" + SPOOFING,
        ),
        "negotiate": ("tcp", "websocket-negotiate", SPOOFING),
        "nobody": ("tcp", "websocket-basic", NOBODY),
        "named": ("tcp", "websocket", SPOOFING),
        "portal": ("tcp", "websocket-portal", ""),
        "everywhere": ("tcp", "websocket-everywhere", ""),
        "secure": (
            "tcps",
            "websocket",
            f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>",
        ),
    }
    ports = {name: free_port() for name in variants}
    transports = "".join(
        transport(
            name,
            kind,
            f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr><Protocol>{protocol}</Protocol>{more}",
        )
        for name, (kind, protocol, more) in variants.items()
    )
    with running_server(directory, transports=transports, elements=PROTOCOLS) as server:
        yield WebServer(server, ports, authority)


def basic(credentials: bytes) -> dict[str, str]:
    """The header of HTTP basic authentication."""
    return {"Authorization": "Basic " + base64.b64encode(credentials).decode()}


@pytest.mark.parametrize("name", ["any", "plain", "json-only"])
def test_messages_pass_both_ways(web: WebServer, name: str) -> None:
    """One websocket message is one header and body, with and without compression."""
    topic = f"both-{name}"
    with web.open(name) as client, web.server.log_on() as stream:
        assert client.subscribe(topic)["status"] == "success"
        stream.subscribe(topic, "1")
        for body in (b'{"id":1}', b"", b'"\xc3\xbc}{"', b"x" * 70_000, b"x" * 5_000_000):
            client.send({"c": "publish", "t": topic}, body)
            assert stream.receive()[1] == body
            header, received = client.receive()
            assert (header["t"], header["l"], received) == (topic, len(body), body)


def test_a_burst_arrives_in_order(web: WebServer) -> None:
    """Many messages of one turn leave as many websocket messages."""
    with web.open() as client, web.server.log_on() as stream:
        client.subscribe("burst")
        for number in range(2_000):
            stream.publish("burst", b"%d" % number)
        assert [client.receive()[1] for _ in range(2_000)] == [b"%d" % n for n in range(2_000)]


def test_compression_is_negotiated(web: WebServer) -> None:
    """permessage-deflate is agreed to unless the transport disables it or the client lacks it."""
    with web.open() as compressed, web.open("plain") as plain:
        assert [one.name for one in compressed.connection.protocol.extensions] == [
            "permessage-deflate"
        ]
        assert plain.connection.protocol.extensions == []
    with web.open(compression=None) as client:
        assert client.subscribe("uncompressed")["status"] == "success"


@pytest.mark.parametrize(
    ("message_type", "body", "expected"),
    [
        ("json", b"{}", str),
        ("nvfix", b"a=1\x01", str),
        ("xml", b"<a/>", str),
        ("json", b"\xff", bytes),  # not UTF-8, which text messages must be
        ("binary", b"abc", bytes),
        ("bson", b"\x05\x00\x00\x00\x00", bytes),
    ],
)
def test_text_types_are_text_messages(
    web: WebServer, message_type: str, body: bytes, expected: type
) -> None:
    """The message type decides between text and binary messages."""
    with web.open(path=f"/amps/{message_type}") as client:
        client.subscribe("kinds")
        client.send({"c": "publish", "t": "kinds"}, body, text=False)
        assert isinstance(client.receive_raw(), expected)


def test_fragments_and_pings_between_them(web: WebServer) -> None:
    """A command may come in pieces; pings between them are answered."""
    with web.open() as client:
        client.subscribe("fragments")
        client.connection.send([b'{"c":"publish","t":"fra', b"", b'gments"}', b"body"], text=True)
        assert client.receive()[1] == b"body"
        assert client.connection.ping().wait(WAIT_SECONDS)


def test_the_handshake_is_a_logon(web: WebServer) -> None:
    """Commands may follow at once; a logon may still come first and gives the client its name."""
    with web.open() as client:
        assert client.subscribe("at-once")["status"] == "success"
    with web.open() as client:
        ack = client.ask({"c": "logon", "cid": "1", "client_name": "web", "a": "processed"})
        assert (ack["status"], ack["client_name"]) == ("success", "web")
        ack = client.ask({"c": "logon", "cid": "2", "client_name": "web", "a": "processed"})
        assert ack["status"] == "failure"


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("any", "/amps/csv", "There is no message type 'csv' here"),
        ("any", "/other/json", "a path that ends with /amps/ and a message type"),
        ("json-only", "/amps/xml", "This transport speaks json only"),
        ("any", "/amps/j%0d%0aX:%201", "There is no message type 'j\\r\\nX: 1' here"),
    ],
)
def test_a_wrong_path_is_refused(web: WebServer, name: str, path: str, said: str) -> None:
    """The response says what was expected, and the log that it was refused."""
    with pytest.raises(InvalidStatus) as raised, web.open(name, path):
        pass
    response = raised.value.response
    assert response.status_code == 404
    assert said in (response.body or b"").decode()
    assert web.server.logs(f"Transport[{name}] refused a websocket handshake")


@pytest.mark.parametrize("path", ["/amps/json", "/some/where/amps/json", "/amps/json?a=b", "/"])
def test_paths_before_the_protocol_do_not_matter(web: WebServer, path: str) -> None:
    """Proxies may leave their own path in front; without any, the logon names the type."""
    with web.open(path=path) as client:
        ack = client.ask({"c": "logon", "cid": "1", "mt": "json", "a": "processed"})
        assert ack["status"] == "success"


@pytest.mark.parametrize(
    ("name", "origin", "admitted"),
    [
        ("portal", None, True),
        ("portal", "https://portal.example.com", True),
        ("portal", "http://portal.example.com:8080", True),
        ("portal", "https://localhost", True),
        ("portal", "http://localhost:3000", True),
        ("portal", "https://portal.example.com.evil.org", False),
        ("portal", "https://evil.org/portal.example.com", False),
        ("portal", "https://portal-example.com", False),
        ("portal", "https://localhost.evil.org", False),
        ("portal", "null", False),
        ("portal", "https://" + "a" * 400 + "!", False),
        ("portal", "https://" + "localhost" * 200, False),
        ("everywhere", "https://evil.org", True),
        ("any", None, True),
        ("any", "http://localhost:3000", True),
        ("any", "http://127.0.0.1", True),
        ("any", "http://[::1]:8085", True),
        ("any", "https://evil.org", False),
        ("any", "http://localhost.evil.org", False),
        ("any", "null", False),
    ],
)
def test_pages_of_other_origins_are_refused(
    web: WebServer, name: str, origin: str | None, admitted: bool
) -> None:
    """AccessControlAllowOrigin names the pages that may connect; other programs may anyway."""
    headers = {} if origin is None else {"Origin": origin}
    if admitted:
        with web.open(name, additional_headers=headers) as client:
            assert client.subscribe("origins")["status"] == "success"
        return
    with pytest.raises(InvalidStatus) as raised, web.open(name, additional_headers=headers):
        pass
    assert raised.value.response.status_code == 403
    assert origin is not None
    assert web.server.logs(f"Pages of {origin[:200]!r} may not connect")


def test_a_logon_cannot_contradict_the_path(web: WebServer) -> None:
    """The path has fixed the message type."""
    with web.open(path="/amps/json") as client:
        ack = client.ask({"c": "logon", "cid": "1", "mt": "xml", "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "invalid message type")


def test_headers_are_returned(web: WebServer) -> None:
    """Every HTTPHeader of the transport and of its protocol is in the response."""
    with web.open("headers", additional_headers=basic(b"ann:secret")) as client:
        response = client.connection.response
        assert response is not None
        assert response.headers.get_all("X-One") == ["1", "2"]
        assert response.headers["X-From-Protocol"] == "yes"


@pytest.mark.parametrize(
    ("name", "headers", "challenge"),
    [
        ("headers", {}, 'Basic realm="the realm"'),
        ("headers", {"Authorization": "Basic no-base64!"}, 'Basic realm="the realm"'),
        ("headers", {"Authorization": "Digest x"}, 'Basic realm="the realm"'),
        ("headers", basic(b"no colon"), 'Basic realm="the realm"'),
        ("headers", basic(b"not utf-8 \xff:secret"), 'Basic realm="the realm"'),
        ("nobody", basic(b"ann:secret"), 'Basic realm="the realm"'),
        ("negotiate", {}, "Negotiate"),
    ],
)
def test_credentials_are_demanded(
    web: WebServer, name: str, headers: dict[str, str], challenge: str
) -> None:
    """Without credentials that are accepted the answer is 401, with the challenge configured."""
    with (
        pytest.raises(InvalidStatus) as raised,
        web.open(name, additional_headers=headers),
    ):
        pass
    assert raised.value.response.status_code == 401
    assert raised.value.response.headers["WWW-Authenticate"] == challenge


@pytest.mark.parametrize("name", ["headers", "named"])
def test_credentials_of_the_handshake_are_the_logons(web: WebServer, name: str) -> None:
    """The user who authenticated in the handshake is the one who is logged on."""
    user = f"ann-{name}"
    with web.open(name, additional_headers=basic(user.encode() + b":secret")) as client:
        ack = client.ask({"c": "logon", "cid": "1", "client_name": user, "a": "processed"})
        assert ack["status"] == "success"
    assert web.server.logs(f"client authid           = '{user}'")


def test_without_a_challenge_a_logon_may_bring_the_credentials(web: WebServer) -> None:
    """Where nothing is demanded in the handshake, the authentication module decides later."""
    with web.open("named") as client:
        ack = client.ask({"c": "logon", "cid": "1", "user_id": "bob", "a": "processed"})
        assert ack["status"] == "success"
    with web.open("named") as client:
        ack = client.ask({"c": "logon", "cid": "1", "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")


def test_over_tls(web: WebServer) -> None:
    """A tcps transport speaks websocket too (wss)."""
    url = f"wss://localhost:{web.ports['secure']}/amps/json"
    with WebsocketClient(url, ssl=web.authority.client_context()) as client:
        assert client.subscribe("wss")["status"] == "success"


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ("no header", 1002, "a message without a header: it begins with the byte 0x6e"),
        ("[]}", 1002, "a message without a header: it begins with the byte 0x5b"),
        ("{]}", 1002, "the header cannot be read"),
        ('{"\u00fc' + "\u00fc" * 200 + '":]}', 1002, "the header cannot be read"),
        ('{"c":"unheard-of"}', 1002, "unknown command"),
    ],
)
def test_a_bad_message_ends_the_connection(
    web: WebServer, message: str, code: int, said: str
) -> None:
    """What is no command closes the connection, which tells why, and costs nobody else anything."""
    with web.open() as client, web.open() as other:
        client.connection.send(message)
        with pytest.raises(ConnectionClosed) as raised:
            client.receive()
        assert other.subscribe("others")["status"] == "success"
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == code
    assert raised.value.rcvd.reason.startswith(said)
    assert web.server.logs(said)


def test_a_compression_bomb_is_refused(web: WebServer) -> None:
    """A message that grows beyond the largest frame closes the connection with code 1009."""
    with web.open() as client:
        assert client.subscribe("others")["status"] == "success"
        client.send({"c": "publish", "t": "bomb"}, b"\x00" * (201 * 1024 * 1024))
        with pytest.raises(ConnectionClosed) as raised:
            client.receive()
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == 1009


UPGRADE = (
    b"GET /amps/json HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /amps/json HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (UPGRADE.replace(b"13", b"12") + b"\r\n", b"HTTP/1.1 400 "),
        (b"GET /" + b"x" * 66_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 414 "),
        (UPGRADE + b"X: " + b"x" * 66_000 + b"\r\n\r\n", b"HTTP/1.1 431 "),
        (UPGRADE + b"X: x\r\n" * 200 + b"\r\n", b"HTTP/1.1 431 "),
        (b"\x00\x00\x00\x02{}\r\n\r\n", b""),
        (b"\x16\x03\x01\x00\xf4\n\n", b""),
        (UPGRADE + b"\r\n\x81\x80\x00\x00\x00\x00", b""),
    ],
)
def test_other_handshakes_are_refused(web: WebServer, sent: bytes, answer: bytes) -> None:
    """What is no websocket handshake gets an HTTP error where it can be understood, and an end."""
    with socket.create_connection(("127.0.0.1", web.ports["any"]), WAIT_SECONDS) as peer:
        peer.sendall(sent)
        received = b""
        while chunk := peer.recv(65536):
            received += chunk
    assert received.startswith(answer)
    assert b"101" not in received.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'\x00\x00\x00\x0d{"c":"logon"}', "it is a frame, as clients send that connect with tcp"),
        (b"\x16\x03\x01\x00\xf4", "it is a TLS handshake, and this transport has no TLS"),
        (b'{"c":"logon"}', "it is no HTTP request"),
    ],
)
def test_who_does_not_speak_http_is_recognized(web: WebServer, sent: bytes, said: str) -> None:
    """The connection ends at once, and the log says what its peer seems to speak."""
    with socket.create_connection(("127.0.0.1", web.ports["any"]), WAIT_SECONDS) as peer:
        peer.sendall(sent)
        assert peer.recv(65536) == b""
    assert web.server.logs(f": {said}")


def test_an_unfinished_handshake_waits(web: WebServer) -> None:
    """A handshake may come byte by byte."""
    with socket.create_connection(("127.0.0.1", web.ports["any"]), WAIT_SECONDS) as peer:
        request = UPGRADE + b"\r\n"
        for byte in request[:-1]:
            peer.sendall(bytes((byte,)))
        peer.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        peer.settimeout(WAIT_SECONDS)
        peer.sendall(request[-1:])
        assert peer.recv(65536).startswith(b"HTTP/1.1 101 ")


def impatient() -> None:
    """Have the server wait for handshakes a moment only."""
    connection.HANDSHAKE_TIMEOUT_S = 0.1  # type: ignore[misc]  # ten seconds are long for a test


@pytest.mark.parametrize("beginning", [b"", b"GET /amps/json HTTP/1.1\r\n"])
def test_a_handshake_that_does_not_end_is_logged(tmp_path: Path, beginning: bytes) -> None:
    """The connection is closed, and the log says where it came from."""
    port = free_port()
    web = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>websocket</Protocol>"
    )
    with (
        running_server(tmp_path, transports=web, prepare=impatient) as server,
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as peer,
    ):
        peer.sendall(beginning)
        assert peer.recv(65536) == b""
        address = f"127.0.0.1:{peer.getsockname()[1]}"
        assert server.logs(f"Transport[web] refused a websocket handshake from {address}")


def test_clients_are_told_that_the_server_stops(tmp_path: Path) -> None:
    """A server that stops closes websocket connections properly."""
    port = free_port()
    web = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>websocket</Protocol>"
    )
    with (
        running_server(tmp_path, transports=web) as server,
        WebsocketClient(f"ws://127.0.0.1:{port}/amps/json") as client,
    ):
        client.subscribe("last")
        assert server.stop() == 0
        with pytest.raises(ConnectionClosed) as raised:
            client.receive()
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == 1000
