"""Writes what a client is sent to the log, for logs that ask for it (level trace).

It stands where all frames pass on their way to the connection, whoever made them, so that the log
has what was sent, with the headers that were sent. Without such a log it is not there at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import contents, header_end
from amperage.wire.header import command_name

if TYPE_CHECKING:
    from server.base.log import Log
    from server.subscriptions.client import Client

_MESSAGE: Final = "17-0001"
_ACK: Final = "17-0002"
_IS_ACK: Final = b'{"c":"ack"'
_PASSWORD: Final = re.compile(rb'(,"pw":")(?:[^"\\]|\\.)*"')
"""In acks of logons: a challenge, or what proves to the client who has let it in."""
_HIDDEN: Final = rb'\1***"'
_COMMAND_START: Final = len('{"c":"')


def with_transcript(
    client: Client, log: Log, send: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """What takes frames for a client, and writes them to the log if that is asked for.

    Args:
        client: the client.
        log: the log.
        send: takes the frames.
    """
    if not (log.enabled(_MESSAGE) or log.enabled(_ACK)):
        return send

    def send_and_tell(frames: bytes) -> None:
        send(frames)
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

    return send_and_tell
