"""What tests of transports share: connections of several kinds, and transports to configure."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import trustme

from tests.support.raw import RawPeer
from tests.support.waiting import WAIT_SECONDS


class SocketPeer(RawPeer):
    """A peer on a socket that is connected already."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._received = b""


def transport(name: str, kind: str, elements: str) -> str:
    """A Transport element."""
    return f"<Transport><Name>{name}</Name><Type>{kind}</Type>{elements}</Transport>"


def connect_unix(path: Path) -> SocketPeer:
    """Connect to a Unix socket."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(WAIT_SECONDS)
    connected.connect(str(path))
    return SocketPeer(connected)


def connect_tls(port: int, context: ssl.SSLContext, host: str = "localhost") -> SocketPeer:
    """Connect to a port of 127.0.0.1 with TLS."""
    plain = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
    try:
        return SocketPeer(context.wrap_socket(plain, server_hostname=host))
    except BaseException:
        plain.close()
        raise


class Authority:
    """A certificate authority, and the files that it makes."""

    def __init__(self, directory: Path, name: str) -> None:
        self._made = trustme.CA(organization_name=name)
        self._directory = directory
        self.file = directory / f"{name}.pem"
        self._made.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Make a certificate for a host or client: the files of the certificate and of its key."""
        issued = self._made.issue_cert(name)
        certificate = self._directory / f"{self.file.stem}-{name}.crt"
        key = self._directory / f"{self.file.stem}-{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key

    def client_context(self) -> ssl.SSLContext:
        """The context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
