"""The admin interface's life cycle: a thread with an event loop of its own.

Its sockets listen before clients may connect, so that an address in use fails the start early;
requests are answered once the instance serves. It ends after the transports.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import uvloop

from server.admin.http.server import HttpServer
from server.transports.connection import printable_address
from server.transports.sockets import listen_on_inet
from server.transports.tls import TlsError, make_server_context, remake_server_context, watch_files

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec, InetAddr
    from server.admin.http.connection import RequestHandler
    from server.admin.monitoring import MonitoringPages
    from server.process.file_watch import FileWatch
    from server.transports.descriptor_reserve import DescriptorReserve
    from server.util.log_protocol import ServerLog

_STOP_SECONDS: Final = 5.0


class AdminInterfaceError(Exception):
    """The admin interface cannot be opened. The text has the location and the reason."""


class AdminInterface:
    """The admin interface of an instance.

    Args:
        admin: its description.
        handler: answers requests.
        monitoring: is notified when the event loop begins and ends.
        headers: headers that all answers have.
        descriptors: decides whether another connection may use a descriptor.
        log: the log.
    """

    def __init__(
        self,
        admin: AdminSpec,
        handler: RequestHandler,
        monitoring: MonitoringPages,
        headers: list[tuple[str, str]],
        descriptors: DescriptorReserve,
        log: ServerLog,
    ) -> None:
        self._admin = admin
        self._log = log
        self._monitoring = monitoring
        self._server = HttpServer(handler, headers, descriptors, log)
        self._sockets: list[socket.socket] = []
        self._tls_context: ssl.SSLContext | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_event: asyncio.Event | None = None

    def listen(self, address: InetAddr) -> None:
        """Listen, and answer no requests yet.

        Raises:
            AdminInterfaceError: the address is in use, not there or not allowed, or the certificate
                cannot be used.
        """
        subject = f"{self._admin.location}: the admin interface"
        try:
            if self._admin.tls is not None:
                self._tls_context = make_server_context(self._admin.tls)
        except TlsError as error:
            raise AdminInterfaceError(f"{subject} cannot be secured: {error}") from None
        try:
            self._sockets = listen_on_inet(address, reuse_address=True)
        except OSError as error:
            reason = error.strerror or error
            raise AdminInterfaceError(f"{subject} cannot listen on {address}: {reason}") from None

    def serve(self) -> None:
        """Answer requests from now on."""
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="admin interface", daemon=True
        )
        self._thread.start()
        started.result()
        scheme = "http" if self._tls_context is None else "https"
        for listening_socket in self._sockets:
            address = printable_address(listening_socket.getsockname())
            self._log.emit("19-0001", address=address, url=f"{scheme}://{_host(address)}/amps")

    def close(self) -> None:
        """Stop answering; requests under way are abandoned."""
        if self._thread is None:
            for listening_socket in self._sockets:
                listening_socket.close()
            return
        self._post_stop()
        self._thread.join(_STOP_SECONDS)
        self._log.emit("19-0002")

    def watch_certificates(self, files: FileWatch) -> None:
        """Reload certificate, key and authorities when their files change."""
        if self._admin.tls is not None:
            watch_files(self._admin.tls, files, self._on_certificate_change)

    def _on_certificate_change(self, _change: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._reload_certificate)

    def _reload_certificate(self) -> None:
        if self._admin.tls is None:
            return
        try:
            context, unusable = remake_server_context(self._admin.tls)
        except TlsError as error:
            self._log.emit("19-0004", reason=error)
        else:
            for reason in unusable:
                self._log.emit("19-0012", reason=reason)
            self._server.set_tls_context(context)
            self._log.emit("19-0003")

    def _post_stop(self) -> None:
        if self._loop is not None and self._stop_event is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_event.set)

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(started))
        except Exception as error:
            if not started.done():
                started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._log_defect)
        self._stop_event = asyncio.Event()
        self._monitoring.begin()
        await self._server.serve(self._sockets, self._tls_context)
        started.set_result(None)
        await self._stop_event.wait()
        self._monitoring.close()
        await self._server.close()

    def _log_defect(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._log.emit(
            "01-0004", text=context.get("message", ""), error=repr(context.get("exception"))
        )


def _host(address: str) -> str:
    """Return the host and port by which a browser on this machine reaches a listening address."""
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in ("[::]", "0.0.0.0") else address  # noqa: S104 - compared
