"""permessage-deflate with incremental inflation.

The websockets library inflates a frame whole as soon as it has arrived. Here the library's
extension only checks the flags of the protocol (RFC 7692, 7.2.2), and passes frames on unchanged,
as `DeflatedFrame`s; `Inflater` inflates them in pieces of bounded size, so that a few bytes that
expand to very many do not delay other clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from websockets.exceptions import ProtocolError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import CTRL_OPCODES, Frame, Opcode
from websockets.typing import ExtensionParameter

_END_OF_MESSAGE: Final = b"\x00\x00\xff\xff"
MAX_INFLATED_CHUNK_SIZE: Final = 64 * 1024


class DeflatedFrame(Frame):
    """A data frame with deflated content."""


class _Deflate(PerMessageDeflate):
    """The extension of one connection: deflates output, and marks deflated input."""

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:  # noqa: ARG002 - the library's
        """Mark a frame that has to be inflated."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        if frame.opcode is Opcode.CONT:
            if not self.decode_cont_data:
                return frame
            if frame.rsv1:
                raise ProtocolError("RSV1 bit set in continuation frame")
            self.decode_cont_data = not frame.fin
        elif not frame.rsv1:
            return frame
        else:
            self.decode_cont_data = not frame.fin
        return DeflatedFrame(frame.opcode, frame.data, frame.fin, False, frame.rsv2, frame.rsv3)


class DeflateFactory(ServerPerMessageDeflateFactory):
    """Negotiates the extension, as the library's own factory does."""

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """See the library."""
        response, agreed = super().process_request_params(params, accepted_extensions)
        return response, _Deflate(
            agreed.remote_no_context_takeover,
            agreed.local_no_context_takeover,
            agreed.remote_max_window_bits,
            agreed.local_max_window_bits,
            agreed.compress_settings,
        )


class Inflater:
    """Inflates the messages of one connection.

    Args:
        agreed: the negotiated extension.
    """

    __slots__ = ("_decoder", "_pending_input", "_resets_context", "_window_bits", "has_more")

    def __init__(self, agreed: PerMessageDeflate) -> None:
        self._window_bits = -agreed.remote_max_window_bits
        self._resets_context = agreed.remote_no_context_takeover
        self._decoder = zlib.decompressobj(self._window_bits)
        self._pending_input = b""
        self.has_more = False

    def start_frame(self, frame: DeflatedFrame) -> None:
        """Start with another frame, after the previous one has been inflated."""
        if frame.opcode is not Opcode.CONT and self._resets_context:
            self._decoder = zlib.decompressobj(self._window_bits)
        self._pending_input = bytes(frame.data) + (_END_OF_MESSAGE if frame.fin else b"")
        self.has_more = True

    def next_piece(self) -> bytes:
        """Return the next piece of the frame; there are more while `has_more`.

        Raises:
            zlib.error: the content is not deflated.
        """
        piece = self._decoder.decompress(self._pending_input, MAX_INFLATED_CHUNK_SIZE)
        self._pending_input = self._decoder.unconsumed_tail
        self.has_more = bool(self._pending_input) or len(piece) == MAX_INFLATED_CHUNK_SIZE
        return piece
