"""Connections of the legacy protocols, over tcp, tcps and amps-unix."""

from __future__ import annotations

from typing import Final

from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.dialects import DIALECTS
from amperage.wire.legacy.fix import FixDialect
from amperage.wire.legacy.peer import LegacyPeer
from config_schema.spec import MessageTypeSpec
from server.transports.connection import TransportContext
from server.transports.stream import StreamConnection

_FIX_MODULES: Final = ("fix", "nvfix")


class LegacyConnection(StreamConnection):
    """One accepted connection that carries messages of a legacy protocol."""

    def __init__(self, transport_context: TransportContext, dialect: Dialect) -> None:
        super().__init__(transport_context)
        self._peer = LegacyPeer(dialect)

    def _start_serving(self) -> None:
        self._begin_session(self._connection_context, self._send_frames, self._peer)

    def _send_frames(self, data: bytes) -> None:
        super()._send_frames(self._peer.encode(data))


def make_dialect(protocol: str, message_type: MessageTypeSpec | None) -> Dialect:
    """Return the format of messages on a transport.

    Args:
        protocol: one of DIALECTS.
        message_type: the definition of the transport's message type; None for one that needs no
            definition. FIX headers use the separators of FIX message types.

    Raises:
        ValueError: field and header separators are equal, so FIX header and fields would be
            indistinguishable.
    """
    dialect = DIALECTS[protocol]
    if (
        not isinstance(dialect, FixDialect)
        or message_type is None
        or message_type.module not in _FIX_MODULES
    ):
        return dialect
    configured = FixDialect(
        _separator(message_type, "FieldSeparator") or dialect.field_separator,
        _separator(message_type, "HeaderSeparator") or dialect.header_separator,
    )
    if configured.field_separator == configured.header_separator:
        raise ValueError(
            f"message type {message_type.name} needs a HeaderSeparator"
            f" other than its FieldSeparator for the protocol {protocol}"
        )
    return configured


def _separator(message_type: MessageTypeSpec, option: str) -> str | None:
    code = message_type.options.get(option)
    return None if code is None else chr(int(code))
