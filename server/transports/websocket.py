"""Connections of the protocol websocket, over tcp or tcps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from websockets.http11 import Request

from amperage.wire.framing import FrameError
from amperage.wire.websocket import WebsocketPeer
from server.security.deferred import AnswerFuture
from server.topics.system.audit import AuditParty
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
        doorkeeper: decides on opening handshakes.
        headers: the headers that every response to a handshake carries (HTTPHeader).
        deflate: whether messages are compressed if the peer offers it (PerMessageDeflate).
        text_types: the names of the message types that are sent as text messages; the empty
            name stands for a connection without a logon.
    """

    doorkeeper: HandshakeAuthenticator
    headers: tuple[tuple[str, str], ...]
    deflate: bool
    text_types: Collection[str]


class WebsocketConnection(TransportConnection):
    """One accepted connection that carries websocket messages."""

    def __init__(self, transport_context: TransportContext, settings: WebsocketSettings) -> None:
        super().__init__(transport_context)
        self._settings = settings
        self._peer = WebsocketPeer(deflate=settings.deflate)
        self._deciding: AnswerFuture[HandshakeResult | HandshakeError] | None = None
        self._early = b""  # received before the handshake was decided

    def data_received(self, data: bytes) -> None:
        """Execute the bytes received, and flush the output of all clients that they affect."""
        if self._deciding is not None:
            self._early += data
            self._pause_reading()
            return
        if self._session is None:
            self._shake_hands(data)
        elif self._session.is_open:
            self._feed(self._session, data)
        else:
            self._peer.read_goodbye(data)
        self._send_pending()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._send_pending()

    def _begin(self) -> None:
        self._limit_handshake()

    def _give_up_handshake(self) -> None:
        self._log_refusal(f"it did not end within {HANDSHAKE_TIMEOUT_S:.0f} seconds")
        super()._give_up_handshake()

    def _shake_hands(self, data: bytes) -> None:
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
            self._answer(request)

    def _answer(self, request: Request) -> None:
        try:
            later = self._settings.doorkeeper.admit(request, self._address(), self._entrance)
        except HandshakeError as refusal:
            later = refusal
        if not isinstance(later, AnswerFuture):
            self._decided(request, later)
            return
        self._deciding = later
        self._end_handshake()  # from here on the delay is not the peer's
        later.when_there(lambda found: self._decided_late(request, found))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `TransportConnection`."""
        super().connection_lost(exc)
        if self._deciding is not None:
            self._deciding.give_up()

    def _decided_late(self, request: Request, found: HandshakeResult | HandshakeError) -> None:
        """Complete a handshake that had to wait for its decision."""
        self._deciding = None
        if self._transport is None or self._transport.is_closing():
            return
        self._decided(request, found)
        self._send_pending()
        self._flush()
        self._resume_reading()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _decided(self, request: Request, found: HandshakeResult | HandshakeError) -> None:
        """Accept or refuse a connection, and begin its session."""
        settings = self._settings
        if self._peer.is_ended:
            return
        if isinstance(found, HandshakeError):
            headers = (*settings.headers, *found.headers)
            self._peer.refuse(found.status, str(found), headers)
            self._log_refusal(str(found))
            if found.logon is not None:
                user, reason = found.logon
                ours = self._entrance
                party = AuditParty(user, self._address(), ours.transport, module=ours.module)
                self._engine.audit.logon_refused(party, reason)
            return
        try:
            self._peer.accept(request, (*settings.headers, *found.headers))
        except FrameError as error:
            self._log_refusal(str(error))
            return
        self._end_handshake()
        self._begin_session(found.entrance, self._send_frames, self._peer)

    def _log_refusal(self, reason: str) -> None:
        self._engine.log.emit(
            "11-0005",
            transport=self._transport_context.entrance.transport,
            address=self._address(),
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

    def _hang_up(self) -> None:
        """Send a close frame; the peer's close frame, or a timeout, ends the connection."""
        self._flush()
        session = self._session
        if session is None:
            self._peer.close("", at_fault=False)
        else:
            at_fault = session.close_reason == "unknown command"
            self._peer.close(session.fault or session.close_reason, at_fault=at_fault)
        self._send_pending()
        self._abort_later()
