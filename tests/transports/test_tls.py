"""Encrypted transports: tcps, and tcp with a certificate."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from config_schema.spec import TlsSpec
from server.transports.tls import TlsError, make_server_context
from tests.support.raw import RawPeer
from tests.support.server import CONFIGURATION, RunningServer, amp_server, free_port, running_server
from tests.transports.support import Authority, connect_tls, gets_in, transport

AES_256 = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384"


@dataclass(frozen=True)
class SecureServer:
    """A server with encrypted transports, and the ports of these."""

    server: RunningServer
    authority: Authority
    clients: Authority
    ports: dict[str, int]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    """One server with every kind of encrypted transport."""
    directory = tmp_path_factory.mktemp("tls")
    authority, clients = Authority(directory, "servers"), Authority(directory, "clients")
    certificate, key = authority.issue("localhost")
    files = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    (directory / "trusted").mkdir()
    (directory / "trusted" / "clients.pem").write_bytes(clients.file.read_bytes())
    variants = {
        "tcps": ("tcps", ""),
        "tcp-with-certificate": ("tcp", ""),
        "only-1-2": ("tcps", "<SecureSocketProtocols>TLSv1.2</SecureSocketProtocols>"),
        "1-2-without-1-1": (
            "tcps",
            "<SecureSocketProtocols>TLSv1.2 TLSv1.3</SecureSocketProtocols>",
        ),
        "one-cipher": (
            "tcps",
            f"<Ciphers>{AES_256}</Ciphers><SecureSocketProtocols>TLSv1.2</SecureSocketProtocols>",
        ),
        "verified-by-file": (
            "tcps",
            f"<VerifyClient>true</VerifyClient><CAFile>{clients.file}</CAFile>",
        ),
        "verified-by-path": (
            "tcps",
            f"<VerifyClient>true</VerifyClient><CAPath>{directory / 'trusted'}</CAPath>",
        ),
    }
    ports = {name: free_port() for name in variants}
    transports = "".join(
        transport(name, kind, f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr>{files}{elements}")
        for name, (kind, elements) in variants.items()
    )
    with running_server(directory, transports=transports) as server:
        yield SecureServer(server, authority, clients, ports)


@pytest.mark.parametrize("name", ["tcps", "tcp-with-certificate"])
def test_commands_and_messages_pass_encrypted(secure: SecureServer, name: str) -> None:
    """A message published over an encrypted transport reaches a plain subscriber, and back."""
    with (
        connect_tls(secure.ports[name], secure.authority.client_context()) as peer,
        secure.server.log_on() as plain,
    ):
        assert peer.log_on()["status"] == "success"
        plain.subscribe(f"to-plain-{name}", "1")
        peer.subscribe(f"to-secure-{name}", "1")
        body = b"x" * 300_000
        peer.publish(f"to-plain-{name}", body)
        plain.publish(f"to-secure-{name}", body)
        assert plain.receive()[1] == body
        assert peer.receive()[1] == body


def test_a_plain_client_is_turned_away(secure: SecureServer) -> None:
    """A transport with a certificate serves nobody who does not encrypt."""
    with RawPeer(secure.ports["tcp-with-certificate"]) as peer:
        peer.socket.sendall(b"\x00\x00\x00\x02{}" * 4)
        assert peer.socket.recv(100)[:1] in (b"", b"\x15")  # closed, or a TLS alert first


@pytest.mark.parametrize(
    ("name", "version", "accepted"),
    [
        ("tcps", ssl.TLSVersion.TLSv1_2, True),
        ("tcps", ssl.TLSVersion.TLSv1_3, True),
        ("only-1-2", ssl.TLSVersion.TLSv1_2, True),
        ("only-1-2", ssl.TLSVersion.TLSv1_3, False),
        ("1-2-without-1-1", ssl.TLSVersion.TLSv1_3, True),
    ],
)
def test_only_the_configured_versions_are_spoken(
    secure: SecureServer, name: str, version: ssl.TLSVersion, accepted: bool
) -> None:
    """SecureSocketProtocols decides which versions of TLS a client may speak."""
    context = secure.authority.client_context()
    context.minimum_version = context.maximum_version = version
    if accepted:
        with connect_tls(secure.ports[name], context) as peer:
            assert peer.log_on()["status"] == "success"
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect_tls(secure.ports[name], context)


def test_only_the_configured_ciphers_are_used(secure: SecureServer) -> None:
    """Ciphers goes to OpenSSL as it is."""
    context = secure.authority.client_context()
    with connect_tls(secure.ports["one-cipher"], context) as peer:
        assert isinstance(peer.socket, ssl.SSLSocket)
        cipher = peer.socket.cipher()
    assert cipher is not None
    assert cipher[0].endswith("AES256-GCM-SHA384")
    context.set_ciphers("ECDHE+AES128")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect_tls(secure.ports["one-cipher"], context)


@pytest.mark.parametrize(
    ("beginning", "answer", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 ", "an HTTP request without TLS"),
        (b'\x00\x00\x00\x0d{"c":"logon"}', b"", "the client speaks AMPS without TLS"),
        (b"\x78\x9c", b"", "the client speaks without TLS"),
        (b"\x16\x03\x01\x00\x02\x01\x00", b"", ""),
        (b"hello there, who are you", b"", "wrong version number (the other end does not"),
        (b"\x16\x03\x01\x02\x00", b"", "the client closed the connection during the handshake"),
    ],
)
def test_whoever_does_not_speak_tls_is_turned_away_and_named(
    secure: SecureServer, beginning: bytes, answer: bytes, said: str
) -> None:
    """An HTTP client is told what is wrong; the log says who has come, and what they speak."""
    with RawPeer(secure.ports["tcps"]) as peer:
        host, port = peer.socket.getsockname()
        peer.socket.sendall(beginning)
        if not answer:
            peer.socket.shutdown(socket.SHUT_WR)
        assert peer.socket.recv(1000).startswith(answer)
        assert peer.is_disconnected()
    assert secure.server.logs(
        f"11-0008 Transport[tcps] refused a TLS handshake from {host}:{port}: {said}"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one-cipher", "no shared cipher (no cipher is common to both)"),
        ("verified-by-file", "peer did not return a certificate (VerifyClient wants one)"),
    ],
)
def test_a_handshake_that_fails_is_logged(secure: SecureServer, name: str, said: str) -> None:
    """With the transport and the reason; the connection is not one before its handshake."""
    context = secure.authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AES128")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect_tls(secure.ports[name], context)
    assert secure.server.waits_for(
        lambda log: (
            re.search(
                re.escape(f"11-0008 Transport[{name}] refused a TLS handshake from ")
                + r"127\.0\.0\.1:\d+: "
                + re.escape(said),
                log,
            )
            is not None
        )
    )


def test_a_client_that_does_not_trust_the_server_is_named(secure: SecureServer) -> None:
    """The reason says which of the two does not accept the other's certificate."""
    with pytest.raises(ssl.SSLError):
        connect_tls(secure.ports["tcps"], secure.clients.client_context())
    assert secure.server.logs("the other end does not trust the authority of our Certificate")


@pytest.mark.parametrize("name", ["verified-by-file", "verified-by-path"])
def test_clients_are_verified(secure: SecureServer, name: str) -> None:
    """With VerifyClient, only a certificate of a trusted authority gets in."""
    context = secure.authority.client_context()
    context.load_cert_chain(*secure.clients.issue("ann"))
    with connect_tls(secure.ports[name], context) as peer:
        assert peer.log_on()["status"] == "success"
    stranger = secure.authority.client_context()
    stranger.load_cert_chain(*secure.authority.issue("mallory"))
    for refused in (stranger, secure.authority.client_context()):
        # With TLS 1.3 the client hears of the refusal with the first bytes that it reads.
        with (
            pytest.raises((ssl.SSLError, EOFError, ConnectionError)),
            connect_tls(secure.ports[name], refused) as peer,
        ):
            peer.log_on()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with good and bad files."""
    directory = tmp_path_factory.mktemp("files")
    authority = Authority(directory, "authority")
    for name in ("good", "other"):
        certificate, key = authority.issue(name)
        certificate.rename(directory / f"{name}.crt")
        key.rename(directory / f"{name}.key")
    (directory / "text.crt").write_text("no certificate")
    (directory / "empty").mkdir()
    encrypt = ["openssl", "pkey", "-aes256", "-passout", "pass:secret"]
    subprocess.run(
        [*encrypt, "-in", "good.key", "-out", "locked.key"],
        cwd=directory,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return directory


GOOD = TlsSpec(
    certificate="good.crt",
    private_key="good.key",
    ciphers=None,
    protocols=("TLSv1.2", "TLSv1.3"),
    verify_client=False,
    ca_file=None,
    ca_path=None,
)

BAD = {
    "Certificate absent.crt: No such file or directory": replace(GOOD, certificate="absent.crt"),
    "Certificate text.crt: no certificate or crl found; expected a certificate in PEM": replace(
        GOOD, certificate="text.crt"
    ),
    "PrivateKey absent.key: No such file or directory": replace(GOOD, private_key="absent.key"),
    "PrivateKey other.key: key values mismatch; expected the key of good.crt": replace(
        GOOD, private_key="other.key"
    ),
    "PrivateKey locked.key: ": replace(GOOD, private_key="locked.key"),
    "Ciphers 'NONSENSE': no cipher can be selected": replace(GOOD, ciphers="NONSENSE"),
    "SecureSocketProtocols 'SSLv2 SSLv3': none of these is supported": replace(
        GOOD, protocols=("SSLv2", "SSLv3")
    ),
    "certificate authority absent.pem: No such file or directory": replace(
        GOOD, verify_client=True, ca_file="absent.pem"
    ),
    "CAPath empty: there is no .pem file": replace(GOOD, verify_client=True, ca_path="empty"),
}


@pytest.mark.parametrize(("said", "tls"), BAD.items(), ids=BAD.keys())
def test_what_cannot_be_used_is_said(
    files: Path, monkeypatch: pytest.MonkeyPatch, said: str, tls: TlsSpec
) -> None:
    """The error names the element, the file and the reason, and nothing asks for a password."""
    monkeypatch.chdir(files)
    make_server_context(GOOD)
    with pytest.raises(TlsError) as raised:
        make_server_context(tls)
    assert str(raised.value).startswith(said)


def test_a_certificate_that_cannot_be_used_keeps_the_server_from_starting(files: Path) -> None:
    """The error has the place in the configuration and the name of the transport."""
    elements = (
        "<InetAddr>127.0.0.1:0</InetAddr>"
        "<Certificate>good.crt</Certificate><PrivateKey>other.key</PrivateKey>"
    )
    secured = transport("secure", "tcps", elements)
    text = CONFIGURATION.format(port=0, transports=secured, level="error", elements="")
    (files / "config.xml").write_text(text)
    ended = amp_server("config.xml", cwd=files)
    assert ended.returncode == 1
    assert ended.stderr == (
        "config.xml:12: transport secure cannot be secured: PrivateKey other.key: key values"
        " mismatch; expected the key of good.crt, in PEM format and without a password\n"
    )


def test_a_certificate_that_changes_is_read_again(tmp_path: Path) -> None:
    """New connections get it; those that are there stay; a bad one leaves the old one in force."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    certificate, key = old.issue("localhost")
    port = free_port()
    secured = transport(
        "secure",
        "tcps",
        f"<InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>",
    )
    with (
        running_server(tmp_path, transports=secured) as server,
        connect_tls(port, old.client_context()) as before,
    ):
        certificate.write_text("no certificate")
        assert server.logs("11-0007 Transport[secure] keeps its previous certificate")
        with connect_tls(port, old.client_context()) as still:
            assert still.log_on()["status"] == "success"
        for source, target in zip(new.issue("localhost"), (certificate, key), strict=True):
            source.replace(target)
        assert server.logs("11-0006 Transport[secure] reloaded its certificate")
        with connect_tls(port, new.client_context()) as after:
            assert after.log_on()["status"] == "success"
        assert before.log_on()["status"] == "success"


def test_an_authority_that_is_added_is_trusted_from_then_on(tmp_path: Path) -> None:
    """Clients whose certificates it has issued are let in, and those of before are, too."""
    ours, first, second = (Authority(tmp_path, name) for name in ("ours", "first", "second"))
    certificate, key = ours.issue("localhost")
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(first.file.read_bytes())
    port = free_port()
    secured = transport(
        "secure",
        "tcps",
        f"<InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<CAFile>{trusted}</CAFile><VerifyClient>true</VerifyClient>",
    )

    with running_server(tmp_path, transports=secured) as server:
        assert gets_in(port, ours, first)
        assert not gets_in(port, ours, second)
        trusted.write_bytes(first.file.read_bytes() + second.file.read_bytes())
        assert server.logs("11-0006 Transport[secure] reloaded its certificate")
        assert gets_in(port, ours, second)
        assert gets_in(port, ours, first)
