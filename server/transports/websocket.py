"""Connections of the protocol websocket, over tcp or tcps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from websockets.http11 import Request

from amperage.wire.framing import FrameError
from amperage.wire.websocket import WebsocketPeer
from server.security.deferred import AnswerFuture
from server.topics.system.audit import AuditActor
from server.transports.connection import HANDSHAKE_TIMEOUT_S, TransportConnection, TransportContext
from server.transports.websocket_handshake import (
    HandshakeAuthenticator,
    HandshakeError,
    HandshakeResult,
)


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """The settings that all websocket connections of one transport share.

    Attributes:
        authenticator: decides on opening handshakes.
        response_headers: the headers that every response to a handshake carries (HTTPHeader).
        allows_deflate: whether messages are compressed if the peer offers it (PerMessageDeflate).
        text_types: the names of the message types that are sent as text messages; the empty
            name stands for a connection without a logon.
    """

    authenticator: HandshakeAuthenticator
    response_headers: tuple[tuple[str, str], ...]
    allows_deflate: bool
    text_types: Collection[str]


class WebsocketConnection(TransportConnection):
    """One accepted connection that carries websocket messages."""

    def __init__(self, transport_context: TransportContext, settings: WebsocketSettings) -> None:
        super().__init__(transport_context)
        self._settings = settings
        self._peer = WebsocketPeer(deflate=settings.allows_deflate)
        self._pending_decision: AnswerFuture[HandshakeResult | HandshakeError] | None = None
        self._early_data = b""  # received before the handshake was decided

    def data_received(self, data: bytes) -> None:
        """Execute the bytes received, and flush the output of all clients that they affect."""
        if self._pending_decision is not None:
            self._early_data += data
            self._pause_reading()
            return
        if self._session is None:
            self._receive_request(data)
        elif self._session.is_open:
            self._feed(self._session, data)
        else:
            self._peer.receive_close(data)
        self._send_pending()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._send_pending()

    def _start_serving(self) -> None:
        self._start_handshake_timeout()

    def _on_handshake_timeout(self) -> None:
        self._log_refusal(f"it did not end within {HANDSHAKE_TIMEOUT_S:.0f} seconds")
        super()._on_handshake_timeout()

    def _receive_request(self, data: bytes) -> None:
        if self._peer.is_ended:
            return
        try:
            request = self._peer.take_request(data)
        except FrameError as error:
            self._log_refusal(str(error))
            self._send_pending()
            self._close()
            return
        if request is not None:
            self._decide_handshake(request)

    def _decide_handshake(self, request: Request) -> None:
        try:
            decision = self._settings.authenticator.authenticate(
                request, self._peer_address(), self._connection_context
            )
        except HandshakeError as refusal:
            decision = refusal
        if not isinstance(decision, AnswerFuture):
            self._finish_handshake(request, decision)
            return
        self._pending_decision = decision
        self._stop_handshake_timeout()  # from here on the delay is not the peer's
        decision.add_done_callback(lambda result: self._finish_late_handshake(request, result))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `TransportConnection`."""
        super().connection_lost(exc)
        if self._pending_decision is not None:
            self._pending_decision.cancel()

    def _finish_late_handshake(
        self, request: Request, result: HandshakeResult | HandshakeError
    ) -> None:
        """Complete a handshake that had to wait for its decision."""
        self._pending_decision = None
        if self._transport is None or self._transport.is_closing():
            return
        self._finish_handshake(request, result)
        self._send_pending()
        self._flush()
        self._resume_reading()
        if self._early_data:
            early_data, self._early_data = self._early_data, b""
            self.data_received(early_data)

    def _finish_handshake(self, request: Request, result: HandshakeResult | HandshakeError) -> None:
        """Accept or refuse a connection, and begin its session."""
        settings = self._settings
        if self._peer.is_ended:
            return
        if isinstance(result, HandshakeError):
            headers = (*settings.response_headers, *result.headers)
            self._peer.refuse(result.status, str(result), headers)
            self._log_refusal(str(result))
            if result.refused_logon is not None:
                user, reason = result.refused_logon
                connection_context = self._connection_context
                actor = AuditActor(
                    user,
                    self._peer_address(),
                    connection_context.transport,
                    module=connection_context.auth_module,
                )
                self._engine.audit.report_refused_logon(actor, reason)
            return
        try:
            self._peer.accept(request, (*settings.response_headers, *result.headers))
        except FrameError as error:
            self._log_refusal(str(error))
            return
        self._stop_handshake_timeout()
        self._begin_session(result.connection_context, self._send_frames, self._peer)

    def _log_refusal(self, reason: str) -> None:
        self._engine.log.emit(
            "11-0005",
            transport=self._transport_context.connection_context.transport,
            address=self._peer_address(),
            reason=reason,
        )

    def _send_frames(self, data: bytes) -> None:
        if self._session is not None:
            as_text = self._session.message_type in self._settings.text_types
            self._send(self._peer.encode(data, as_text=as_text))

    def _send_pending(self) -> None:
        """Send the output of the framing itself, such as handshake responses and close frames."""
        output = self._peer.take_output()
        if output:
            self._send(output)
        if self._peer.is_ended:
            self._close()

    def _close_after_flush(self) -> None:
        """Send a close frame; the peer's close frame, or a timeout, ends the connection."""
        self._flush()
        session = self._session
        if session is None:
            self._peer.close("", at_fault=False)
        else:
            at_fault = session.close_reason == "unknown command"
            self._peer.close(session.protocol_error or session.close_reason, at_fault=at_fault)
        self._send_pending()
        self._abort_later()
