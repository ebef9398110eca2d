"""An HTTP client for modules that send requests to web services: one request, one response.

The time and the size of every response are limited. Redirections are not followed; they are
responses like any other. Bodies must not be compressed. An error names the service without the path
and query of the URL, which may be confidential.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import h11

from server.util.safe_open import MAX_CERTIFICATE_FILE_SIZE, check_regular

MAX_RESPONSE_HEADER_SIZE: Final = 65_536
"""Limit of the header of a response, in bytes."""

_PORTS: Final = {"http": 80, "https": 443}
_CHUNK: Final = 65_536
_SELF_SIGNED: Final = 18
"""The verify code of OpenSSL for a self-signed certificate."""


class HttpClientError(Exception):
    """A service gives no usable response. The text names the service and the problem."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The destination of a request.

    Attributes:
        scheme: http or https.
        host: the name or address, without brackets.
        port: the port.
        target: path and query, as in the request line.
    """

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_endpoint(url: str) -> Endpoint:
    """Parse a URL.

    Raises:
        ValueError: it cannot be used; the text gives the reason, without the URL.
    """
    expected = "expected a URL such as https://host.example:8443/path"
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"it has characters that have to be percent-encoded; {expected}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{error}; {expected}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(expected)
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains a user, which belongs in a header")
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    return Endpoint(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], target)


@dataclass(frozen=True, slots=True)
class HttpTlsSettings:
    """TLS settings for https.

    Attributes:
        certificate: file with the client certificate, for services that request one; None for none.
        key: file with its key; None where the certificate's file has it.
        authorities: file with the CA certificates that services are verified with; None for those
            of the system.
        allow_unverified: whether to skip the verification of a service's identity.
        allow_self_signed: whether to accept a certificate that is signed by its own key.
    """

    certificate: str | None = None
    key: str | None = None
    authorities: str | None = None
    allow_unverified: bool = False
    allow_self_signed: bool = False

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of connections, from a cache; a changed file gives a new one.

        Raises:
            HttpClientError: a file cannot be used; the text names it.
        """
        files = (self.certificate, self.key, self.authorities)
        return _context(self, tuple(_stamp(path) for path in files if path is not None))

    def make_context(self, trusted: bytes | None = None) -> ssl.SSLContext:
        """Create a TLS context for connections.

        Args:
            trusted: a certificate to trust in addition to the authorities, in DER form.

        Raises:
            HttpClientError: a file cannot be used; the text names it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.allow_unverified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.authorities is None:
            context.load_default_certs()
        else:
            _check_file("CAKey", self.authorities)
            try:
                context.load_verify_locations(self.authorities)
            except (OSError, ValueError) as error:
                raise HttpClientError(f"CAKey {self.authorities}: {_error_text(error)}") from None
        if trusted is not None:
            context.load_verify_locations(cadata=trusted)
        if self.certificate is not None:
            self._load_certificate(context, self.certificate)
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: str) -> None:
        _check_file("Certificate", certificate)
        if self.key is not None:
            _check_file("Key", self.key)
        try:
            # Without a password, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            files = f"{certificate} and {self.key}" if self.key else certificate
            raise HttpClientError(
                f"Certificate and Key {files}: {_error_text(error)}; expected a certificate and its"
                " key, without a password, in PEM format"
            ) from None


def _check_file(option: str, path: str) -> None:
    """Check that OpenSSL will not block on a file.

    Raises:
        HttpClientError: it is not a readable regular file.
    """
    try:
        check_regular(path, MAX_CERTIFICATE_FILE_SIZE)
    except OSError as error:
        raise HttpClientError(
            f"{option} {path}: {(error.strerror or str(error)).lower()}"
        ) from None


_UNVERIFIED: Final = HttpTlsSettings(allow_unverified=True)


@lru_cache(maxsize=64)
def _context(tls: HttpTlsSettings, _stamps: tuple[object, ...]) -> ssl.SSLContext:
    return tls.make_context()


def _stamp(path: str) -> object:
    """Return a value that changes when the file does."""
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True, slots=True)
class HttpClientResponse:
    """The response of a service.

    Attributes:
        status: such as 200.
        headers: names, in lower case, and values.
        body: the bytes after the headers.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of a name, which is given in lower case; None without one."""
        return next(iter(self.all_headers(name)), None)

    def all_headers(self, name: str) -> list[str]:
        """Return all headers of a name, which is given in lower case."""
        return [value for header, value in self.headers if header == name]


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Sends requests to services.

    Attributes:
        tls: the TLS settings for https.
        connect_seconds: timeout of a connection attempt, its TLS handshake included.
        request_seconds: timeout of the response, from then on.
        max_response_bytes: size limit of the body of a response.
    """

    tls: HttpTlsSettings
    connect_seconds: float
    request_seconds: float
    max_response_bytes: int

    async def request(
        self,
        method: str,
        endpoint: Endpoint,
        headers: Sequence[tuple[str, str | bytes]] = (),
        body: bytes = b"",
    ) -> HttpClientResponse:
        """Send one request over a connection of its own, and return the response.

        Args:
            method: such as GET.
            endpoint: the service and the resource.
            headers: in addition to host, length and the like.
            body: the body of the request.

        Raises:
            HttpClientError: there is no response, or none that can be used.
        """
        connection = await self.connect(endpoint)
        try:
            return await connection.request(
                method, endpoint, [("connection", "close"), *headers], body
            )
        finally:
            connection.close()

    async def connect(self, endpoint: Endpoint) -> HttpClientConnection:
        """Connect to a service, for several requests, one after the other.

        Raises:
            HttpClientError: the connection failed.
        """
        try:
            async with asyncio.timeout(self.connect_seconds):
                reader, writer = await self._connect(endpoint)
        except TimeoutError:
            raise HttpClientError(
                f"{endpoint}: no connection within {self.connect_seconds:g} seconds"
            ) from None
        except (OSError, UnicodeError) as error:
            raise HttpClientError(f"{endpoint}: {_error_text(error)}") from None
        return HttpClientConnection(self, reader, writer)

    async def _connect(
        self, endpoint: Endpoint
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if endpoint.scheme == "http":
            return await asyncio.open_connection(endpoint.host, endpoint.port)
        try:
            return await self._connect_tls(endpoint, self.tls.context())
        except ssl.SSLCertVerificationError as error:
            if error.verify_code != _SELF_SIGNED or not self.tls.allow_self_signed:
                raise
        # The certificate itself becomes trusted; all other checks still apply to it.
        shown = await self._peer_certificate(endpoint)
        return await self._connect_tls(endpoint, self.tls.make_context(shown))

    async def _connect_tls(
        self, endpoint: Endpoint, context: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=context, server_hostname=endpoint.host
        )

    async def _peer_certificate(self, endpoint: Endpoint) -> bytes:
        _, writer = await self._connect_tls(endpoint, _UNVERIFIED.context())
        secured = writer.get_extra_info("ssl_object")
        writer.transport.abort()
        certificate: bytes = secured.getpeercert(binary_form=True) or b""
        return certificate


class HttpClientConnection:
    """A connection to a service.

    Args:
        client: has the limits.
        reader: the incoming bytes.
        writer: the outgoing bytes.

    Attributes:
        has_received: whether bytes have been received since the last request.
    """

    def __init__(
        self, client: HttpClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._client = client
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, MAX_RESPONSE_HEADER_SIZE)
        self.has_received = False

    @property
    def is_usable(self) -> bool:
        """True if another request can be sent."""
        states = self._http.our_state, self._http.their_state
        is_idle = states in ((h11.IDLE, h11.IDLE), (h11.DONE, h11.DONE))
        return is_idle and not self._reader.at_eof() and not self._http.trailing_data[0]

    def close(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()

    async def request(
        self,
        method: str,
        endpoint: Endpoint,
        headers: Sequence[tuple[str, str | bytes]] = (),
        body: bytes = b"",
    ) -> HttpClientResponse:
        """Send a request and return the response; see `HttpClient.request`."""
        seconds = self._client.request_seconds
        try:
            async with asyncio.timeout(seconds):
                self._send(method, endpoint, headers, body)
                with suppress(ConnectionError):  # it may have responded before it has read all
                    await self._writer.drain()
                return await self._receive(endpoint)
        except TimeoutError:
            raise HttpClientError(f"{endpoint}: no answer within {seconds:g} seconds") from None
        except h11.LocalProtocolError as error:
            raise HttpClientError(f"{endpoint}: this cannot be asked over HTTP: {error}") from None
        except h11.RemoteProtocolError as error:
            raise HttpClientError(f"{endpoint}: it does not speak HTTP: {error}") from None
        except OSError as error:
            raise HttpClientError(f"{endpoint}: {_error_text(error)}") from None

    def _send(
        self,
        method: str,
        endpoint: Endpoint,
        headers: Sequence[tuple[str, str | bytes]],
        body: bytes,
    ) -> None:
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self.has_received = False
        names = {name.lower() for name, _ in headers}
        defaults = {"host": endpoint.authority, "accept": "application/json"}
        if body:
            defaults["content-length"] = str(len(body))
        all_headers = [
            *(
                (header_name, defaults[header_name])
                for header_name in defaults
                if header_name not in names
            ),
            *headers,
        ]
        request = h11.Request(
            method=method,
            target=endpoint.target,
            headers=[(name.encode(), _octets(value)) for name, value in all_headers],
        )
        output = self._http.send(request) or b""
        if body:
            output += self._http.send(h11.Data(data=body)) or b""
        output += self._http.send(h11.EndOfMessage()) or b""
        self._writer.write(output)

    async def _receive(self, endpoint: Endpoint) -> HttpClientResponse:
        max_bytes = self._client.max_response_bytes
        response: h11.Response | None = None
        content = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(_CHUNK)
                self.has_received = self.has_received or bool(data)
                if not self.has_received:
                    raise HttpClientError(f"{endpoint}: it ended the connection without an answer")
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > max_bytes:
                    raise HttpClientError(f"{endpoint}: the answer has more than {max_bytes} bytes")
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                return _answer(endpoint, response, bytes(content))
            elif not isinstance(event, h11.InformationalResponse):
                raise HttpClientError(f"{endpoint}: it ended the connection without an answer")


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _answer(endpoint: Endpoint, response: h11.Response, body: bytes) -> HttpClientResponse:
    headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in response.headers]
    answer = HttpClientResponse(response.status_code, headers, body)
    if answer.header("content-encoding") not in (None, "", "identity"):
        raise HttpClientError(f"{endpoint}: the answer is compressed, which was not requested")
    return answer


def _error_text(error: Exception) -> str:
    """Return a readable description of an error."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
        case ssl.SSLError():
            if error.reason is None and error.args and isinstance(error.args[0], int):
                return "it is damaged, or cut off"  # a file: its PEM is malformed
            reason = error.reason or str(error.args[-1])
            return f"TLS failed: {reason.replace('_', ' ').lower()}"
        case socket.gaierror():
            return f"unknown host: {error.strerror}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number).lower()
        case _:
            return str(error)
