"""Writes all frames sent to a client to the log, if a log is configured for that (level trace).

It wraps the connection's write, which all frames pass independent of their origin, so that the log
has them with their final headers. Without such a log nothing is wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import contents, header_end
from amperage.wire.header import command_name

if TYPE_CHECKING:
    from server.topics.subscriptions.client import ClientIdentity
    from server.util.log_protocol import ServerLog

_MESSAGE: Final = "17-0001"
_ACK: Final = "17-0002"
_IS_ACK: Final = b'{"c":"ack"'
_PASSWORD: Final = re.compile(rb'(,"pw":")(?:[^"\\]|\\.)*"')
"""In acks of logons: a challenge, or the proof by which the client authenticates the server."""
_HIDDEN: Final = rb'\1***"'
_COMMAND_START: Final = len('{"c":"')


def with_wire_trace(
    client: ClientIdentity, log: ServerLog, send: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """Wrap `send`, so that frames are logged as well; return `send` itself if no log does that.

    Args:
        client: the client.
        log: the log.
        send: takes the frames.
    """
    if not (log.enabled(_MESSAGE) or log.enabled(_ACK)):
        return send

    def send_and_log(frames: bytes) -> None:
        send(frames)
        if not (log.enabled(_MESSAGE) or log.enabled(_ACK)):  # no longer
            return
        for start, end in contents(frames):
            body_start = header_end(frames, start, end)
            header, name = frames[start:body_start], client.client_name
            if header.startswith(_IS_ACK):
                log.emit(_ACK, client=name, header=_PASSWORD.sub(_HIDDEN, header))
                continue
            command = header[_COMMAND_START : header.index(b'"', _COMMAND_START)].decode()
            log.emit(
                _MESSAGE,
                client=name,
                command=command_name(command),
                header=header,
                body=frames[body_start:end],
            )

    return send_and_log
