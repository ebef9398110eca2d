"""What tests of transports share: connections of several kinds, and transports to configure."""

from __future__ import annotations

import json
import socket
import ssl
import zlib
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
from websockets.sync.client import ClientConnection, connect

from tests.support.raw import RawPeer, frame
from tests.support.waiting import WAIT_SECONDS


class SocketPeer(RawPeer):
    """A peer on a socket that is connected already."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected


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


def gets_in(port: int, ours: Authority, theirs: Authority) -> bool:
    """Whether a client gets in that shows a certificate.

    Args:
        port: of the server.
        ours: has issued the server's certificate.
        theirs: has issued the client's.
    """
    context = ours.client_context()
    context.load_cert_chain(*theirs.issue("client"))
    try:
        with connect_tls(port, context) as peer:
            return bool(peer.log_on()["status"] == "success")
    except (OSError, EOFError):
        return False


class Authority:
    """A certificate authority, and the files that it makes."""

    def __init__(self, directory: Path, name: str) -> None:
        self._made = trustme.CA(organization_name=name)
        self._directory = directory
        self.file = directory / f"{name}.pem"
        self._made.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, not_after: datetime | None = None) -> tuple[Path, Path]:
        """Make a certificate for a host or client: the files of the certificate and of its key."""
        issued = self._made.issue_cert(name, not_after=not_after)
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


class WebsocketClient:
    """A client that sends one message per command."""

    connection: ClientConnection

    def __init__(self, url: str, **arguments: Any) -> None:
        self._opening = connect(url, open_timeout=WAIT_SECONDS, max_size=None, **arguments)

    def __enter__(self) -> Self:
        self.connection = self._opening.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opening.__exit__(kind, error, trace)

    def send(self, header: dict[str, Any], body: bytes = b"", *, text: bool = True) -> None:
        """Send one command as a text or a binary message."""
        self.connection.send(json.dumps(header).encode() + body, text=text)

    def receive_raw(self) -> str | bytes:
        """The next message as it came: text or bytes."""
        return self.connection.recv(WAIT_SECONDS)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message: header and body."""
        message = self.receive_raw()
        content = message.encode() if isinstance(message, str) else message
        _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
        return json.loads(content[:end]), content[end:]

    def ask(self, header: dict[str, Any]) -> dict[str, Any]:
        """Send a command, and give the header of the answer."""
        self.send(header)
        return self.receive()[0]

    def subscribe(self, topic: str) -> dict[str, Any]:
        """Subscribe, and give the ack."""
        return self.ask({"c": "subscribe", "cid": "s", "t": topic, "a": "processed"})


class CompressedPeer(RawPeer):
    """A peer that compresses what it sends, and expects the same."""

    def __init__(self, port: int, level: int = -1) -> None:
        super().__init__(port)
        self._deflate = zlib.compressobj(level)
        self._inflate = zlib.decompressobj()

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame."""
        self.send_compressed(frame(header, body))

    def send_compressed(self, data: bytes) -> None:
        """Send any bytes, compressed."""
        self.socket.sendall(self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH))

    def _read(self) -> bytes:
        return self._inflate.decompress(super()._read())
