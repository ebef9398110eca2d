"""A collector of OpenTelemetry, as far as tests need one: it takes what exporters send by HTTP."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar


class OtlpHandler(http.server.BaseHTTPRequestHandler):
    """Answers requests; subclasses look at them."""

    def collect(self, path: str, content: bytes) -> bytes:
        """Take the content of a request, and give that of the response."""
        raise NotImplementedError

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        answer = self.collect(self.path, content)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class OtlpCollector(http.server.ThreadingHTTPServer):
    """The server of a collector; subclasses have what it has got."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[OtlpHandler]) -> None:
        super().__init__(("127.0.0.1", port), handler)


_Collector = TypeVar("_Collector", bound=OtlpCollector)


@contextmanager
def serving(collector: _Collector) -> Iterator[_Collector]:
    """Let a collector answer."""
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        collector.server_close()
        thread.join()
