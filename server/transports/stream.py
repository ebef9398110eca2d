"""Connections that carry frames as a stream of bytes: tcp, tcps and amps-unix.

The peer chooses the beginning of a connection: frames, an HTTP preflight, or compression
(amperage/wire/protocol_detection.py). After that, plain frames take the fast path.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amperage.wire.compression import CompressedReader, Compression
from amperage.wire.framing import FrameError
from amperage.wire.protocol_detection import ProtocolDetector
from server.transports.connection import TransportConnection, TransportContext

if TYPE_CHECKING:
    from amperage.wire.frame_slices import SharedFrames
    from server.engine.session import Session


class StreamConnection(TransportConnection):
    """One accepted connection that carries a stream of frames."""

    def __init__(self, transport_context: TransportContext) -> None:
        super().__init__(transport_context)
        self._is_plain = False  # True once the stream is known to contain only plain frames
        self._protocol_detector = ProtocolDetector()
        self._compression: Compression | None = None

    def data_received(self, data: bytes) -> None:
        """See `TransportConnection._feed`."""
        session = self._session
        if session is None:
            return
        if self._is_plain:
            self._feed(session, data)
        else:
            self._receive_opening(session, data)

    def _start_serving(self) -> None:
        self._begin_session(
            self._connection_context,
            self._send_frames,
            takes_parts=True,
            shared_sink=None if self._writer is None else self._send_shared,
        )

    def _receive_opening(self, session: Session, data: bytes) -> None:
        """Receive bytes that may belong to the opening, or are compressed."""
        try:
            if not self._protocol_detector.is_complete:
                data = self._process_opening(session, data)
            self._feed(session, data)
        except FrameError as error:
            session.abort(error)

    def _process_opening(self, session: Session, data: bytes) -> bytes:
        protocol_detector = self._protocol_detector
        try:
            data = protocol_detector.feed(data)
        finally:
            if protocol_detector.reply:
                self._send(protocol_detector.reply)
                protocol_detector.reply = b""
        if protocol_detector.has_partial_request:
            self._start_handshake_timeout()
        else:
            self._stop_handshake_timeout()
        if protocol_detector.is_compressed:
            self._compression = Compression()
            session.input.wrap_reader(partial(CompressedReader, self._compression))
        self._is_plain = protocol_detector.is_complete
        return data

    def _send_frames(self, data: bytes) -> None:
        self._send(data if self._compression is None else self._compression.compress(data))

    def _send_shared(self, frames: SharedFrames) -> None:
        if self._compression is None:
            self._send(frames)
        else:
            self._send_frames(bytes(frames))
