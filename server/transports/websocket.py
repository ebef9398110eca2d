"""Connections of the protocol websocket, over tcp or tcps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from websockets.http11 import Request

from server.transports.connection import HANDSHAKE_SECONDS, Connection, Reception
from server.transports.handshake import Doorkeeper, HandshakeRefused
from server.wire.framing import FrameError
from server.wire.websocket import WebsocketPeer


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """What the websocket connections of one transport share.

    Attributes:
        doorkeeper: decides on opening handshakes.
        headers: the headers that every response to a handshake carries (HTTPHeader).
        deflate: whether messages are compressed if the peer offers it (PerMessageDeflate).
        text_types: the names of the message types whose messages are sent as text; the empty
            name stands for a connection that has not logged on.
    """

    doorkeeper: Doorkeeper
    headers: tuple[tuple[str, str], ...]
    deflate: bool
    text_types: Collection[str]


class WebsocketConnection(Connection):
    """One accepted connection that carries websocket messages."""

    def __init__(self, reception: Reception, settings: WebsocketSettings) -> None:
        super().__init__(reception)
        self._settings = settings
        self._peer = WebsocketPeer(deflate=settings.deflate)

    def data_received(self, data: bytes) -> None:
        """Let the session obey, and everybody concerned hear of it."""
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
        self._log_refusal(f"it did not end within {HANDSHAKE_SECONDS:.0f} seconds")
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
        settings = self._settings
        try:
            entrance = settings.doorkeeper.admit(request)
        except HandshakeRefused as refusal:
            headers = (*settings.headers, *refusal.headers)
            self._peer.refuse(refusal.status, str(refusal), headers)
            self._log_refusal(str(refusal))
            return
        try:
            self._peer.accept(request, settings.headers)
        except FrameError as error:
            self._log_refusal(str(error))
            return
        self._end_handshake()
        self._begin_session(entrance, self._send_frames, self._peer)

    def _log_refusal(self, reason: str) -> None:
        self._engine.log.emit(
            "11-0005",
            transport=self._reception.entrance.transport,
            address=self._address(),
            reason=reason,
        )

    def _send_frames(self, data: bytes) -> None:
        if self._session is not None:
            as_text = self._session.message_type in self._settings.text_types
            self._send(self._peer.encode(data, as_text=as_text))

    def _send_pending(self) -> None:
        """Send what the framing itself has to say."""
        output = self._peer.take_output()
        if output:
            self._send(output)
        if self._peer.is_ended:
            self._close()

    def _hang_up(self) -> None:
        """Say goodbye; the peer's own goodbye, or its silence, ends the connection."""
        self._flush()
        session = self._session
        if session is None:
            self._peer.close("", at_fault=False)
        else:
            at_fault = session.close_reason == "unknown command"
            self._peer.close(session.fault or session.close_reason, at_fault=at_fault)
        self._send_pending()
        self._abort_later()
