"""heartbeat: both sides show that they are alive, and a silent client is disconnected.

The server sends a heartbeat every interval. A client that has not been heard of for two of them,
whatever it sends, is taken for dead; one missed beat is forgiven, since client and server beat at
the same pace (docs/compatibility.md, Heartbeats).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.commands.acks import acknowledge
from server.commands.refusal import CommandRefused
from server.wire.framing import frame
from server.wire.header import Header, encode_header

if TYPE_CHECKING:
    from server.session import Session

_BEATS_FORGIVEN: Final = 2
_HEARTBEAT: Final = frame(encode_header(Header(command="heartbeat")))


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Start the heartbeat timer, or take note of the client's beat.

    Raises:
        CommandRefused: the option is neither `beat` nor `start` with an interval in seconds.
    """
    action, _, interval = (header.options or "beat").partition(",")
    if action == "start":
        session.pulse.stop()
        session.pulse = Pulse(session, _seconds(interval))
        session.pulse.start()
    elif action != "beat":
        raise CommandRefused(
            "invalid option", f"{header.options!r}: expected beat, or start and seconds: start,5"
        )
    acknowledge(session, header, "processed")


class Pulse:
    """The heartbeat of one connection.

    Args:
        session: the connection.
        interval: seconds between two beats; 0 for none at all.
    """

    __slots__ = ("_cancel", "_interval", "_session")

    def __init__(self, session: Session, interval: float) -> None:
        self._session = session
        self._interval = interval
        self._cancel: Callable[[], None] | None = None

    def start(self) -> None:
        """Beat from now on."""
        if self._interval > 0:
            self._cancel = self._session.engine.clock.call_later(self._interval, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _beat(self) -> None:
        session = self._session
        silence = session.engine.clock.now() - session.last_heard
        if silence > self._interval * _BEATS_FORGIVEN:
            session.engine.log.emit("07-0042", client=session.client_name)
            session.close("heartbeat")
        else:
            session.outbox.write(_HEARTBEAT)
            self.start()
        session.engine.flush()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise CommandRefused(
            "invalid option", f"{text!r} is no heartbeat interval, expected seconds up to a day"
        )
    return seconds
