"""A web service of permissions, as users of the HTTP module write them, for tests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Asked:
    """A request.

    Attributes:
        path: what was asked for.
        headers: names in lower case.
        peer: the address and port that it came from.
    """

    path: str
    headers: Mapping[str, str]
    peer: tuple[str, int]


@dataclass
class Reply:
    """What is answered."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def document(**fields: Any) -> Reply:
    """An answer with a permission document."""
    return Reply(200, json.dumps(fields).encode())


def everything(**fields: Any) -> Reply:
    """A document that allows everything."""
    rule = {"topic": ".*", "read": True, "write": True}
    return document(**{"logon": True, "topic": [rule], "admin": [rule]} | fields)


Answer = Callable[[Asked], Reply]


@dataclass
class WebService:
    """A service that runs.

    Attributes:
        port: where.
        answer: answers requests.
        asked: the requests.
    """

    port: int
    answer: Answer
    asked: list[Asked] = field(default_factory=list)

    def paths(self) -> list[str]:
        """What was asked for."""
        return [one.path for one in self.asked]


@contextmanager
def web_service(
    answer: Answer, tls: ssl.SSLContext | None = None, protocol: str = "HTTP/1.0"
) -> Iterator[WebService]:
    """A service on a port of 127.0.0.1.

    Args:
        answer: answers requests, each on a thread of its own.
        tls: how it speaks https; None for http.
        protocol: with HTTP/1.1, connections may be used for several requests.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Asked(self.path, headers, self.client_address)
            service.asked.append(request)
            reply = service.answer(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 1_000

        def handle_error(self, *_arguments: object) -> None:
            """Clients may go at any time."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    service = WebService(server.server_port, answer)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
