"""One connection: requests are read, answered and written one after the other, within limits.

Bytes are read only while a request is awaited, so requests sent in advance (pipelined) stay in the
socket and cost nothing but the kernel's buffer. Answers are sent in chunks, and the next one waits
until the peer has read enough of those before it. Every wait for the peer has a timeout.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from server.admin.http.compression import encode_body
from server.admin.http.limits import (
    LINGER_SECONDS,
    MAX_REQUEST_BODY_SIZE,
    MAX_REQUEST_HEAD_SIZE,
    MAX_REQUEST_HEADERS,
    MAX_REQUEST_TARGET_SIZE,
    MAX_UNREAD_BYTES,
    SEND_CHUNK_SIZE,
)
from server.admin.http.messages import (
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
    is_unchanged,
    split_target,
    text_response,
)
from server.security.certificates import user_of

if TYPE_CHECKING:
    from server.admin.http.server import HttpServer

RequestHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""The handler of requests. It may raise `HttpError`."""

_TLS_HANDSHAKE: Final = b"\x16"

_references = itertools.count(1)


class HttpConnection:
    """A connection, from when it is accepted to its end.

    Args:
        reader: reads from the peer.
        writer: writes to the peer.
        server: the server.

    Attributes:
        is_waiting_for_peer: whether the connection waits for its peer, so that it may be cut off.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: HttpServer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._server = server
        self._limits = server.limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_HEAD_SIZE)
        self._peer = _address(writer.get_extra_info("peername"))
        self._is_encrypted = writer.get_extra_info("sslcontext") is not None
        self._certificate_user = user_of(writer.get_extra_info("peercert") or {})
        self._method = "GET"  # of the request at hand
        self.is_waiting_for_peer = True
        writer.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)

    async def serve(self) -> None:
        """Answer requests until the peer or the server ends the connection."""
        wait_s = self._limits.arrival_timeout_s
        try:
            while await self._exchange(wait_s):
                self._http.start_next_cycle()
                wait_s = self._limits.idle_timeout_s
                await asyncio.sleep(0)  # other tasks run, even if pipelined requests wait here
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self._writer.transport.abort()
        finally:
            self._writer.close()

    def abort(self) -> None:
        """End it at once."""
        self._writer.transport.abort()

    async def _exchange(self, wait_s: float) -> bool:
        """Answer one request.

        Args:
            wait_s: seconds within which it has to begin.

        Returns:
            Whether another one may follow.
        """
        try:
            request = await self._read_request(wait_s)
        except HttpError as refusal:
            return await self._send_refusal(refusal)
        except h11.RemoteProtocolError as error:
            if self._http.trailing_data[0][:1] == _TLS_HANDSHAKE:
                self._server.on_handshake_failed(self._peer, "it has no TLS, and was sent TLS")
            text = f"The request is not valid HTTP: {error}."
            return await self._send_refusal(HttpError(error.error_status_hint, text))
        if request is None:
            return False
        started_s = time.monotonic()
        self.is_waiting_for_peer = False
        response = await self._handle_request(request)
        if not self._server.send_budget.reserve(response.body):
            text = "The limit of response bytes in transit is reached. Retry later."
            response = text_response(503, text, (("Retry-After", "10"),))
        try:
            size = await self._send_response(request, response)
        finally:
            self._server.send_budget.release(response.body)
        if self._server.log.enabled("19-0006"):
            self._server.log.emit(
                "19-0006",
                address=self._peer,
                method=request.method,
                path=request.path,
                status=response.status,
                bytes=size,
                milliseconds=round((time.monotonic() - started_s) * 1000, 1),
            )
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    # requests

    async def _read_request(self, wait_s: float) -> HttpRequest | None:
        """Wait for a request; None if the peer has gone, or is silent.

        Raises:
            HttpError: the request does not arrive in time, or exceeds a limit.
            h11.RemoteProtocolError: it is not HTTP.
        """
        self.is_waiting_for_peer = True
        self._method = "GET"  # until it is known: a refusal has a body, unless it is for a HEAD
        loop = asyncio.get_running_loop()
        arrival_timeout_s = self._limits.arrival_timeout_s
        has_begun = bool(self._http.trailing_data[0])
        limit = asyncio.timeout(arrival_timeout_s if has_begun else wait_s)
        try:
            async with limit:
                while (event := self._http.next_event()) is h11.NEED_DATA:
                    await self._receive()
                    if not has_begun:
                        has_begun = True
                        limit.reschedule(loop.time() + arrival_timeout_s)
                if not isinstance(event, h11.Request):
                    return None
                self._method = event.method.decode("ascii")
                _check_head(event)
                body = await self._read_body(event)
        except TimeoutError:
            if not has_begun:
                return None
            raise HttpError(
                408,
                f"The request has not arrived as a whole within {arrival_timeout_s:.0f} seconds.",
            ) from None
        return self._make_request(event, body)

    async def _read_body(self, head: h11.Request) -> bytes:
        length = next((value for name, value in head.headers if name == b"content-length"), b"0")
        if int(length) > MAX_REQUEST_BODY_SIZE:
            raise _TOO_LARGE
        body = bytearray()
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_REQUEST_BODY_SIZE:
                    raise _TOO_LARGE
                continue
            if self._http.they_are_waiting_for_100_continue:
                self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            await self._receive()
        return bytes(body)

    async def _receive(self) -> None:
        self._http.receive_data(await self._reader.read(SEND_CHUNK_SIZE))
        self._server.record_progress(self)

    def _make_request(self, head: h11.Request, body: bytes) -> HttpRequest:
        path, query = split_target(head.target.decode("ascii"))
        headers: dict[str, str] = {}
        for name, value in head.headers:
            previous = headers.get(name.decode("ascii"))
            text = value.decode("latin-1")
            headers[name.decode("ascii")] = text if previous is None else f"{previous}, {text}"
        return HttpRequest(
            self._method,
            path,
            query,
            headers,
            body,
            self._peer,
            self._is_encrypted,
            self._certificate_user,
        )

    # answers

    async def _handle_request(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._server.handler(request)
        except HttpError as refusal:
            return text_response(refusal.status, str(refusal), refusal.headers)
        except Exception as error:  # a defect: the client gets a reference to the log only
            reference = next(_references)
            self._server.log.emit(
                "19-0007", reference=reference, path=request.path, error=repr(error)
            )
            text = f"Internal error. The log has the details: entry 19-0007, reference {reference}."
            return text_response(500, text)

    async def _send_refusal(self, refusal: HttpError) -> bool:
        """Answer an invalid request, and end the connection."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        response = text_response(
            refusal.status, str(refusal), (*refusal.headers, ("Connection", "close"))
        )
        await self._send_response(HttpRequest(self._method, "/", {}, {}), response)
        await self._linger()
        return False

    async def _linger(self) -> None:
        """Keep reading for a moment: closing at once could discard the answer before it is read."""
        if not self._writer.is_closing() and self._writer.can_write_eof():
            self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._reader.read(SEND_CHUNK_SIZE):
                    pass

    async def _send_response(self, request: HttpRequest, response: HttpResponse) -> int:
        """Send an answer.

        Returns:
            The bytes of its body that were sent.
        """
        if is_unchanged(request, response):
            response.status = HTTPStatus.NOT_MODIFIED
        body = response.body
        has_body = request.method != "HEAD" and response.status not in (204, 304)
        if not isinstance(body, HttpDocument):
            await self._write_and_drain(
                self._encode_head(response, [("Content-Type", response.content_type)])
            )
            return await self._send_stream(body) if has_body else await self._send_end()
        content, encoding = encode_body(request, body)
        headers = [("Vary", "Accept-Encoding")]
        if response.status != HTTPStatus.NO_CONTENT:
            headers += [("Content-Type", body.content_type), ("Content-Length", str(len(content)))]
        if response.status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            headers.append(("ETag", body.etag))
        if encoding:
            headers.append(("Content-Encoding", encoding))
        head = self._encode_head(response, headers)  # sent together with the first chunk
        if not has_body or not content:
            await self._write_and_drain(head)
            return await self._send_end()
        for start in range(0, len(content), SEND_CHUNK_SIZE):
            chunk = self._http.send(h11.Data(data=content[start : start + SEND_CHUNK_SIZE])) or b""
            await self._write_and_drain(head + chunk)
            head = b""
        await self._send_end()
        return len(content)

    def _encode_head(self, response: HttpResponse, headers: list[tuple[str, str]]) -> bytes:
        if response.last_modified:
            headers.append(("Last-Modified", response.last_modified))
        headers += response.headers
        names = {name.lower() for name, _ in headers} - {"vary"}
        headers += [header for header in self._server.headers if header[0].lower() not in names]
        head = h11.Response(
            status_code=response.status,
            reason=HTTPStatus(response.status).phrase.encode(),
            headers=[("Date", formatdate(usegmt=True)), *_join_vary(headers)],
        )
        return self._http.send(head) or b""

    async def _send_stream(self, body: AsyncGenerator[bytes, None]) -> int:
        size = 0
        async with aclosing(body):
            while (chunk := await self._next_chunk(body)) is not None:
                size += len(chunk)
                if chunk:
                    await self._write_and_drain(self._http.send(h11.Data(data=chunk)))
        await self._send_end()
        return size

    async def _next_chunk(self, body: AsyncGenerator[bytes, None]) -> bytes | None:
        """Return the next chunk of an answer; None at its end.

        Raises:
            ConnectionAbortedError: creating it failed. Sent bytes cannot be taken back, so the
                answer is cut off, so that the client detects that it is incomplete.
        """
        try:
            return await anext(body, None)
        except HttpError as refusal:
            reason = str(refusal)
        except Exception as error:
            reason = repr(error)
        self._server.log.emit("19-0007", reference=next(_references), path="", error=reason)
        raise ConnectionAbortedError

    async def _send_end(self) -> int:
        await self._write_and_drain(self._http.send(h11.EndOfMessage()))
        return 0

    async def _write_and_drain(self, data: bytes | None) -> None:
        """Send, and wait until the peer has read enough of it.

        Raises:
            OSError: the peer has gone.
            TimeoutError: it does not read.
        """
        self._write(data)
        self.is_waiting_for_peer = True
        async with asyncio.timeout(self._limits.write_timeout_s):
            await self._writer.drain()
        self.is_waiting_for_peer = False
        self._server.record_progress(self)

    def _write(self, data: bytes | None) -> None:
        """Send.

        Raises:
            ConnectionResetError: the peer has gone, perhaps while the next chunk was prepared.
        """
        if self._writer.is_closing():  # a closing transport would raise something else than OSError
            raise ConnectionResetError
        if data:
            self._writer.write(data)


_TOO_LARGE: Final = HttpError(
    413, f"The body of a request may have {MAX_REQUEST_BODY_SIZE:,} bytes."
)


def _check_head(head: h11.Request) -> None:
    """Refuse a request that exceeds a limit, or that proxies might parse differently than we do.

    Raises:
        HttpError: it is refused.
    """
    if not head.http_version.startswith(b"1."):
        raise HttpError(505, "Expected HTTP/1.1.")
    if len(head.target) > MAX_REQUEST_TARGET_SIZE:
        raise HttpError(414, f"A path with its query may have {MAX_REQUEST_TARGET_SIZE:,} bytes.")
    size = sum(len(name) + len(value) for name, value in head.headers)
    if size > MAX_REQUEST_HEAD_SIZE or len(head.headers) > MAX_REQUEST_HEADERS:
        raise HttpError(
            431,
            f"A request may have {MAX_REQUEST_HEADERS} headers,"
            f" and {MAX_REQUEST_HEAD_SIZE:,} bytes of them.",
        )
    names = {name for name, _ in head.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or head.http_version < b"1.1"):
        raise HttpError(400, "The request has two lengths: Transfer-Encoding, and another one.")


def _join_vary(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers, with one Vary for all."""
    varying = [value for name, value in headers if name.lower() == "vary"]
    others = [(name, value) for name, value in headers if name.lower() != "vary"]
    return [*others, ("Vary", ", ".join(dict.fromkeys(varying)))] if varying else others


def _address(peer: object) -> str:
    """Return an address for the log."""
    if not isinstance(peer, tuple):
        return str(peer or "")
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
