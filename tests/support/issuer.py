"""An authorization server: gives tokens for codes, publishes its keys, and does as it is told."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import parse_qs

from joserfc import jwk, jws

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "amps"

Answer = tuple[int, dict[str, str], bytes]


def part(content: object) -> str:
    """A part of a token."""
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def claims(**others: object) -> dict[str, object]:
    """What a good token says; None leaves something out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 300}
    return {name: value for name, value in (good | others).items() if value is not None}


def signed(
    key: Any, content: object, *, algorithm: str = "", header: Mapping[str, object] | None = None
) -> str:
    """A token, signed with a key of joserfc's."""
    name = algorithm or ("RS256" if key.key_type == "RSA" else "ES256")
    full = {"alg": name, "kid": key.kid, **(header or {})}
    full = {field_: value for field_, value in full.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[name], strict_check_header=False)
    return jws.serialize_compact(full, json.dumps(content).encode(), key, registry=registry)


def key_set(*keys: Any) -> bytes:
    """Public keys as they are published."""
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def rsa_key(name: str, bits: int = 2048, **parameters: str) -> jwk.RSAKey:
    """A new key."""
    return jwk.RSAKey.generate_key(bits, cast(Any, {"kid": name, **parameters}))


def ec_key(name: str, curve: str = "P-256", **parameters: str) -> jwk.ECKey:
    """A new key."""
    return jwk.ECKey.generate_key(cast(Any, curve), cast(Any, {"kid": name, **parameters}))


@dataclass
class Issuer:
    """The server.

    Attributes:
        url: where it is, without a path.
        port: the port.
        keys: what /keys has.
        codes: what /token takes, and what it gives for each.
        answers: what paths say instead, if they are in here.
        asked: the paths that have been asked for.
        forms: what /token has been sent.
        headers: what came with that.
    """

    url: str = ""
    port: int = 0
    keys: bytes = b""
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str, body: bytes) -> Answer:
        """What is said to a request."""
        self.asked.append(path)
        if path == "/token":
            self.forms.append({name: one[0] for name, one in parse_qs(body.decode()).items()})
        if path in self.answers:
            return self.answers[path]()
        if path == "/keys":
            return 200, {}, self.keys
        if path == "/token":
            given = self.codes.pop(self.forms[-1].get("code", ""), None)
            status = 400 if given is None else 200
            return status, {}, json.dumps(given or {"error": "invalid_grant"}).encode()
        return 404, {}, b""


@contextmanager
def issuing(tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """An authorization server on a free port.

    Args:
        tls: with which it is secured.
    """
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            issuer.headers.append(dict(self.headers))
            self._answer(self.rfile.read(int(self.headers["content-length"])))

        def _answer(self, body: bytes) -> None:
            status, headers, content = issuer.answer(self.path, body)
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        """Says nothing of clients that go."""

        def handle_error(self, *_: object) -> None:
            """See above."""

    server = Server(("127.0.0.1", 0), Handler)
    issuer.port = server.server_address[1]
    issuer.url = f"http{'' if tls is None else 's'}://localhost:{issuer.port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
