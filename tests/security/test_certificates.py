"""Certificates of clients: who is let in, as whom, and what the log says of the others."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from server.security.certificates import channel_binding_of, ends_of
from tests.admin.support import ask
from tests.security.certificates import DAY, Authority
from tests.support.raw import RawPeer
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    amp_server,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import comes_true
from tests.transports.support import WebsocketClient, connect_tls, transport

BY_CERTIFICATE = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><UserFromCertificate>true</UserFromCertificate>{more}</Options>
</Authentication>
"""


@dataclass(frozen=True)
class Secured:
    """A server that asks for certificates, on several transports."""

    server: RunningServer
    servers: Authority
    clients: Authority
    directory: Path
    ports: dict[str, int]

    def context(self, files: tuple[Path, Path] | None) -> ssl.SSLContext:
        """The context of a client with a certificate."""
        context = ssl.create_default_context(cafile=self.servers.file)
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def connect(self, name: str, files: tuple[Path, Path] | None) -> RawPeer:
        """A connection with a certificate."""
        return connect_tls(self.ports[name], self.context(files))

    def gets_in(self, name: str, files: tuple[Path, Path] | None) -> bool:
        """Whether one may log on with a certificate."""
        try:
            with self.connect(name, files) as peer:
                return bool(peer.log_on()["status"] == "success")
        except (OSError, EOFError):
            return False

    def admin_status(self, files: tuple[Path, Path] | None) -> int:
        """The status of a request to the admin interface; 0 if there is no answer."""
        try:
            with self.connect("admin", files) as peer:
                peer.socket.sendall(b"GET /amps HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return int(peer.socket.recv(1000)[9:12] or 0)
        except (OSError, EOFError):
            return 0


def tls_elements(authority: Authority, clients: Authority, more: str = "") -> str:
    certificate, key = authority.issue(
        "localhost", purpose="server", alternatives=(x509.DNSName("localhost"),)
    )
    return (
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<VerifyClient>true</VerifyClient><CAFile>{clients.file}</CAFile>{more}"
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    servers, clients = Authority(directory, "servers"), Authority(directory, "clients")
    files = tls_elements(servers, clients)
    named, spoofing = (
        BY_CERTIFICATE.format(more=more) for more in ("", "<AllowSpoofing>true</AllowSpoofing>")
    )
    variants = {
        "named": ("tcps", named),
        "spoofing": ("tcps", spoofing),
        "websocket": ("tcps", f"<Protocol>websocket</Protocol>{named}"),
        "basic": ("tcps", f"<Protocol>websocket-basic</Protocol>{named}"),
        "open": ("tcps", ""),
        "xml": ("tcps", f"<Protocol>xml</Protocol><MessageType>xml</MessageType>{named}"),
        "replication": ("amps-replication-secure", ""),
    }
    ports = {name: free_port() for name in [*variants, "admin"]}
    transports = "".join(
        transport(name, kind, f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr>{files}{more}")
        for name, (kind, more) in variants.items()
    )
    elements = f"""
        <Protocols><Protocol>
          <Name>websocket-basic</Name><Module>websocket</Module>
          <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
        </Protocol></Protocols>
        <Admin><InetAddr>127.0.0.1:{ports["admin"]}</InetAddr>{files}</Admin>
        <TransactionLog><JournalDirectory>j</JournalDirectory><JournalSize>10MB</JournalSize>
        </TransactionLog>
    """
    with running_server(directory, transports=transports, elements=elements) as server:
        yield Secured(server, servers, clients, directory, ports)


def refusal(server: RunningServer, name: str) -> Callable[[str], bool]:
    """Whether the log has said why a handshake with a transport was refused."""
    entry = (
        r"19-0005 The admin interface refused a TLS handshake"
        if name == "admin"
        else rf"11-0008 Transport\[{name}\] refused a TLS handshake"
    )
    already = len(server.log())

    def was(reason: str) -> bool:
        pattern = rf"{entry} from 127\.0\.0\.1:\d+: {re.escape(reason)}"
        return server.waits_for(lambda log: re.search(pattern, log[already:]) is not None)

    return was


@pytest.mark.parametrize("name", ["named", "websocket", "replication", "admin"])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("none", "peer did not return a certificate (VerifyClient wants one)"),
        ("expired", "certificate verify failed: certificate has expired"),
        ("not valid yet", "certificate verify failed: certificate is not yet valid"),
        ("for servers", "certificate verify failed: unsuitable certificate purpose"),
        ("of a stranger", "certificate verify failed: unable to get local issuer certificate"),
    ],
)
def test_certificates_that_are_not_accepted(
    secured: Secured, name: str, kind: str, reason: str, tmp_path: Path
) -> None:
    """Whatever is spoken, nobody gets in with one; the log says who has tried, and why not."""
    clients = secured.clients
    shown = {
        "none": None,
        "expired": clients.issue("late", begins=-2 * DAY, lasts=DAY),
        "not valid yet": clients.issue("early", begins=DAY),
        "for servers": clients.issue("server", purpose="server"),
        "of a stranger": Authority(tmp_path, "strangers").issue("ann"),
    }[kind]
    was_refused = refusal(secured.server, name)
    with suppress(OSError), secured.connect(name, shown) as peer:
        peer.socket.sendall(b"GET /amps/json HTTP/1.1\r\n\r\n")
        assert not peer.socket.recv(1)
    assert was_refused(reason)


@pytest.mark.parametrize("name", ["named", "open", "websocket", "admin"])
def test_a_good_certificate_is_accepted(secured: Secured, name: str) -> None:
    files = secured.clients.issue("ann")
    if name == "admin":
        assert secured.admin_status(files) == 200
    elif name == "websocket":
        url = f"wss://localhost:{secured.ports[name]}/amps/json"
        with WebsocketClient(url, ssl=secured.context(files)) as client:
            assert client.ask({"c": "logon", "cid": "1", "a": "processed"})["status"] == "success"
    else:
        assert secured.gets_in(name, files)


MAIL, HOST = x509.RFC822Name("ann@example.com"), x509.DNSName("desk.example.com")
URI = x509.UniformResourceIdentifier("spiffe://example.com/ann")
ADDRESS = x509.IPAddress(ip_address("127.0.0.1"))


@pytest.mark.parametrize(
    ("name", "alternatives", "user"),
    [
        ("ann", (), "ann"),
        ("Ann Lovelace", (MAIL,), "Ann Lovelace"),
        ("", (URI, HOST, MAIL), "ann@example.com"),
        ("", (URI, HOST), "desk.example.com"),
        ("", (ADDRESS, URI), "spiffe://example.com/ann"),
    ],
)
def test_the_user_is_whom_the_certificate_names(
    secured: Secured, name: str, alternatives: tuple[x509.GeneralName, ...], user: str
) -> None:
    """The common name, or an alternative one; what the client says does not matter."""
    files = secured.clients.issue(name, alternatives=alternatives, file="who")
    client = f"{user} of {name!r}"
    with secured.connect("named", files) as peer:
        assert peer.log_on(client, user_id="somebody else")["status"] == "success"
    assert authid(secured.server, client) == user


def authid(server: RunningServer, client: str) -> str:
    """As whom a client has logged on."""
    pattern = rf"logon for: {re.escape(client)}\nclient session info:\n client authid +?= '(.*)'"
    assert server.waits_for(lambda log: re.search(pattern, log) is not None)
    found = re.search(pattern, server.log())
    assert found is not None
    return found[1]


def test_with_spoofing_clients_may_choose(secured: Secured) -> None:
    files = secured.clients.issue("ann")
    for user, expected in (("bob", "bob"), ("", "ann")):
        with secured.connect("spoofing", files) as peer:
            keys = {"user_id": user} if user else {}
            assert peer.log_on(f"as {expected}", **keys)["status"] == "success"
        assert authid(secured.server, f"as {expected}") == expected


@pytest.mark.parametrize(
    ("name", "alternatives"),
    [("", (ADDRESS,)), ("a\nb", ())],
)
def test_a_certificate_that_names_nobody_is_no_logon(
    secured: Secured, name: str, alternatives: tuple[x509.GeneralName, ...]
) -> None:
    files = secured.clients.issue(name, alternatives=alternatives, file="nobody")
    with secured.connect("named", files) as peer:
        ack = peer.ask({"c": "logon", "cid": "1", "mt": "json", "a": "processed", "user_id": "a"})
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert ack["detail"] == "a certificate that names a user is required"
    with secured.connect("open", files) as peer:
        assert peer.log_on("nobody at all")["status"] == "success"
    assert authid(secured.server, "nobody at all") == ""


@pytest.mark.parametrize("name", ["websocket", "basic"])
def test_websockets_know_users_by_their_certificates(secured: Secured, name: str) -> None:
    """Also where the handshake has to bring credentials, which name somebody else."""
    shown = "Basic " + base64.b64encode(b"bob:pw").decode()
    url = f"wss://localhost:{secured.ports[name]}/amps/json"
    context = secured.context(secured.clients.issue("ann"))
    headers = {"Authorization": shown}
    with WebsocketClient(url, ssl=context, additional_headers=headers) as client:
        logon = {"c": "logon", "cid": "1", "a": "processed", "client_name": f"page {name}"}
        assert client.ask(logon)["status"] == "success"
    assert authid(secured.server, f"page {name}") == "ann"


def test_the_admin_interface_knows_users_by_their_certificates(tmp_path: Path) -> None:
    """Without a logon; where the module asks for a certificate that names somebody."""
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>{tls_elements(servers, clients)}"
        f'<WWWAuthenticate>Basic realm="x"</WWWAuthenticate>{BY_CERTIFICATE.format(more="")}'
        "</Admin>"
    )
    with running_server(tmp_path, elements=admin) as server:
        at = Secured(server, servers, clients, tmp_path, {"admin": port})
        nobody = clients.issue("", alternatives=(ADDRESS,), file="nobody")
        assert at.admin_status(nobody) == 401
        with at.connect("admin", clients.issue("ann")) as peer:
            peer.socket.sendall(b"GET /console/session.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b""
            while piece := peer.socket.recv(10_000):
                answer += piece
        assert b'"user":"ann"' in answer


REPLICATED = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
DESTINATION = """
<Replication><Destination>
  <Name>sink</Name><SyncType>async</SyncType>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType>
    <ExcludeValidation>replicate</ExcludeValidation>
  </Topic>
  <Transport>
    <Type>amps-replication-secure</Type><InetAddr>127.0.0.1:{port}</InetAddr>
    <Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>
  </Transport>
</Destination></Replication>
"""


def test_other_instances_are_known_by_their_certificates(tmp_path: Path) -> None:
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    certificate, key = clients.issue("the-source")
    port = free_port()
    listening = transport(
        "replication",
        "amps-replication-secure",
        f"<InetAddr>127.0.0.1:{port}</InetAddr>{tls_elements(servers, clients)}"
        + BY_CERTIFICATE.format(more=""),
    )
    going = DESTINATION.format(port=port, certificate=certificate, key=key)
    (tmp_path / "sink").mkdir()
    (tmp_path / "source").mkdir()
    with (
        named_server(tmp_path / "sink", "sink", REPLICATED, listening) as sink,
        named_server(tmp_path / "source", "source", REPLICATED + going),
    ):
        assert sink.logs("25-0080 User 'the-source' has logged on from 127.0.0.1:")
        assert sink.logs("1F-0006")


def named_server(
    directory: Path, name: str, elements: str, transports: str = ""
) -> AbstractContextManager[RunningServer]:
    """A server with a name of its own."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=elements, transports=transports, level="info")
    return running_configuration(directory, text.replace("test-instance", name), port)


def test_an_authority_that_is_taken_away_counts_no_more(tmp_path: Path) -> None:
    """From CAFile or from CAPath, where another one may come; who is connected stays."""
    servers, first, second = (Authority(tmp_path, name) for name in ("servers", "first", "second"))
    trusted, known = tmp_path / "trusted.pem", tmp_path / "known"
    known.mkdir()
    trusted.write_bytes(first.file.read_bytes() + second.file.read_bytes())
    ports = {name: free_port() for name in ("file", "path", "admin")}
    by_file, by_path = (
        re.sub("<CAFile>.*</CAFile>", places, tls_elements(servers, first))
        for places in (f"<CAFile>{trusted}</CAFile>", f"<CAPath>{known}</CAPath>")
    )
    (known / "first.pem").write_bytes(first.file.read_bytes())
    transports = "".join(
        transport(name, "tcps", f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr>{elements}")
        for name, elements in (("file", by_file), ("path", by_path))
    )
    elements = f"<Admin><InetAddr>127.0.0.1:{ports['admin']}</InetAddr>{by_path}</Admin>"
    with running_server(tmp_path, transports=transports, elements=elements) as server:
        at = Secured(server, servers, first, tmp_path, ports)
        one, two = first.issue("ann"), second.issue("bob")
        assert at.gets_in("file", one)
        assert at.gets_in("path", one)
        assert not at.gets_in("path", two)
        assert at.admin_status(one) == 200
        with at.connect("file", two) as stays:
            trusted.write_bytes(first.file.read_bytes())
            assert comes_true(lambda: not at.gets_in("file", two))
            assert stays.log_on()["status"] == "success"
        assert at.gets_in("file", one)
        (known / "second.pem").write_bytes(second.file.read_bytes())
        (known / "first.pem").unlink()
        assert comes_true(lambda: at.gets_in("path", two) and not at.gets_in("path", one))
        assert comes_true(lambda: at.admin_status(two) == 200 and at.admin_status(one) == 0)


def test_whoever_tries_again_and_again_does_not_fill_the_log(tmp_path: Path) -> None:
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    port = free_port()
    elements = f"<InetAddr>127.0.0.1:{port}</InetAddr>{tls_elements(servers, clients)}"
    secure = transport("secure", "tcps", elements)
    with running_server(tmp_path, transports=secure) as server:
        at = Secured(server, servers, clients, tmp_path, {"secure": port})
        for _ in range(15):
            assert not at.gets_in("secure", None)
        assert at.gets_in("secure", clients.issue("ann"))
        assert server.logs("11-0008", times=10)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (40, ""),
        (20.5, "11-0013 Certificate {} of transport secure expires at {}, in 20 days"),
        (-1, "11-0014 Certificate {} of transport secure expired at {}"),
    ],
)
def test_certificates_that_end_are_announced(tmp_path: Path, days: float, said: str) -> None:
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    lasts = timedelta(days=days) + 100 * DAY
    certificate, key = servers.issue("localhost", begins=-100 * DAY, lasts=lasts, purpose="server")
    elements = (
        f"<InetAddr>127.0.0.1:0</InetAddr><Certificate>{certificate}</Certificate>"
        f"<PrivateKey>{key}</PrivateKey><VerifyClient>true</VerifyClient>"
        f"<CAFile>{clients.file}</CAFile>"
        "<SecureSocketProtocols>TLSv1.1 TLSv1.2</SecureSocketProtocols>"
    )
    with running_server(tmp_path, transports=transport("secure", "tcps", elements)) as server:
        assert server.logs("11-0012 transport secure allows insecure TLS versions: TLSv1.1")
        until = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
        if said:
            assert server.logs(said.format(certificate, f"{until:%Y-%m-%d %H:%M:%S}Z"))
        else:
            assert not re.search("11-001[34]", server.log())


def test_old_versions_of_tls_are_warned_of(tmp_path: Path) -> None:
    elements = (
        "<InetAddr>127.0.0.1:0</InetAddr><Certificate>a</Certificate><PrivateKey>b</PrivateKey>"
        "<SecureSocketProtocols>TLSv1.1 TLSv1.2</SecureSocketProtocols>"
    )
    (tmp_path / "config.xml").write_text(
        f"<AMPSConfig><Name>x</Name><Transports>{transport('secure', 'tcps', elements)}"
        "</Transports></AMPSConfig>"
    )
    said = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    assert (
        "warning: Transport/SecureSocketProtocols: allows insecure TLS" in said.stdout + said.stderr
    )


def test_the_end_of_a_certificate_is_read_as_it_is(tmp_path: Path) -> None:
    """Of all that a file has, also with ends that need four digits of the year."""
    authority = Authority(tmp_path, "authority")
    far = datetime(2061, 5, 4, 3, 2, 1, tzinfo=UTC) - datetime.now(UTC)
    texts = [
        authority.issue(f"c{number}", lasts=lasts)[0].read_text()
        for number, lasts in enumerate((DAY, 365 * DAY, far))
    ]
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    expected = [x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc for text in texts]
    assert ends_of("intro\n" + texts[0] + broken + texts[1] + texts[2] + "end") == expected
    assert ends_of("no certificate") == []


def test_a_request_without_tls_is_told_so(secured: Secured) -> None:
    assert ask(secured.ports["admin"], "/amps").status == 400
    assert secured.server.logs("an HTTP request without TLS")


def signed(key: Any, algorithm: Any, **terms: Any) -> tuple[str, bytes]:
    """A certificate that its own key has signed: in PEM, and its octets."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.now(UTC))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .sign(key, algorithm, **terms)
    )
    return (
        made.public_bytes(serialization.Encoding.PEM).decode(),
        made.public_bytes(serialization.Encoding.DER),
    )


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (hashes.SHA256(), "sha256"),
        (hashes.SHA384(), "sha384"),
        (hashes.SHA512(), "sha512"),
    ],
)
def test_the_hash_of_a_channel_binding_is_that_of_the_signature(
    algorithm: hashes.HashAlgorithm, name: str
) -> None:
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())):
        text, octets = signed(key, algorithm)
        assert channel_binding_of(f"comment\n{text}{text}") == hashlib.new(name, octets).digest()


def test_certificates_without_a_channel_binding() -> None:
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    key = rsa.generate_private_key(65537, 2048)
    for text in (
        signed(ed25519.Ed25519PrivateKey.generate(), None)[0],
        signed(key, hashes.SHA256(), rsa_padding=pss)[0],
        "",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
    ):
        assert channel_binding_of(text) == b""
