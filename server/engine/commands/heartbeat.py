"""heartbeat: both peers prove that they are alive, and a silent client is disconnected.

The server sends a heartbeat every interval, from `start` to `stop`. A client is considered
disconnected when nothing at all has been received from it for longer than two intervals and a grace
period. Some clients answer a heartbeat only if their last one is older than an interval, which is
the second one: they send one every two intervals (docs/compatibility.md, Heartbeats).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from server.engine.commands.acks import acknowledge
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from server.engine.session import Session

_MIN_GRACE: Final = 1.0
_HEARTBEAT: Final = frame(encode_header(Header(command="heartbeat")))


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Start or stop the heartbeat timer, or acknowledge the client's heartbeat.

    Clients may do so before they log on: clients that disconnect stop their heartbeats first, in
    any state.

    Raises:
        CommandRefusedError: the option is neither `beat` nor `stop` nor `start` with an interval in
            seconds.
    """
    action, _, interval = (header.options or "beat").strip(", ").partition(",")
    if action == "start":
        seconds = _seconds(interval)
        session.heartbeat_timer.stop()
        session.heartbeat_timer = HeartbeatTimer(
            session, seconds, (header.grace_period or 0) / 1000
        )
        session.heartbeat_timer.start()
    elif action == "stop":
        session.heartbeat_timer.stop()
    elif action != "beat":
        raise CommandRefusedError(
            "invalid option",
            f"{header.options!r}: expected beat, stop, or start and seconds: start,5",
        )
    acknowledge(session, header, "processed")


class HeartbeatTimer:
    """The heartbeat timer of one connection.

    Args:
        session: the connection.
        interval_s: seconds between two heartbeats; 0 for none.
        grace_s: seconds that the client may be silent after an interval, if they are longer than
            the time that every client is granted.
    """

    __slots__ = ("_cancel_check", "_cancel_heartbeat", "_interval_s", "_session", "_timeout_s")

    def __init__(self, session: Session, interval_s: float, grace_s: float = 0.0) -> None:
        self._session = session
        self._interval_s = interval_s
        self._timeout_s = max(
            2 * interval_s + max(_MIN_GRACE, interval_s / 2), interval_s + grace_s
        )
        self._cancel_heartbeat: Callable[[], None] | None = None
        self._cancel_check: Callable[[], None] | None = None

    def start(self) -> None:
        """Send heartbeats from now on, and disconnect the client when it is silent too long."""
        if self._interval_s > 0:
            self._schedule_heartbeat()
            self._schedule_check(self._timeout_s)

    def stop(self) -> None:
        """Send no more heartbeats."""
        for cancel in (self._cancel_heartbeat, self._cancel_check):
            if cancel is not None:
                cancel()
        self._cancel_heartbeat = self._cancel_check = None

    def _schedule_heartbeat(self) -> None:
        self._cancel_heartbeat = self._session.engine.clock.call_later(
            self._interval_s, self._send_heartbeat
        )

    def _send_heartbeat(self) -> None:
        outbox = self._session.outbox
        outbox.counting_writer(outbox.traffic.answers).write(_HEARTBEAT)
        self._schedule_heartbeat()
        self._session.engine.flush()

    def _schedule_check(self, seconds: float) -> None:
        self._cancel_check = self._session.engine.clock.call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        session = self._session
        remaining_s = (
            session.last_input_steady_s + self._timeout_s - session.engine.clock.steady_unpaused()
        )
        if (
            remaining_s <= 0 and session.input.is_waiting
        ):  # received bytes have not been executed yet
            remaining_s = self._interval_s
        if remaining_s > 0:
            self._schedule_check(remaining_s)
            return
        session.engine.log.emit("07-0042", client=session.client_name)
        session.close("heartbeat")
        session.engine.flush()


def _seconds(text: str) -> float:
    try:
        seconds = float(text.strip(", "))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise CommandRefusedError(
            "invalid option", f"{text!r} is no heartbeat interval, expected seconds up to a day"
        )
    return seconds
