"""Whoever started the process and watches it: systemd, or nobody.

A unit of `Type=notify` hears when the start is over, what it is at until then, and when the end
begins. A start takes as long as the log is long, so its time limit is put off as long as the start
goes on. With `WatchdogSec` the unit wants to hear something again and again; it does from the
engine's loop, so that an engine that hangs is started anew.

Source: sd_notify(3), systemd.service(5).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

_SECOND: Final = 1_000_000  # in the microseconds that systemd counts in
_STEP_SECONDS: Final = 600
"""How long a step of the start may take without a word: as a file with 100 million records does."""

_BETWEEN: Final = 1.0
"""Seconds between two words about the same step."""

_AT_ONCE: Final = 1024
"""Calls between two looks at the clock: they are as many as entries of the log."""


class Clock(Protocol):
    """What calls later."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function in so many seconds; what is returned takes that back."""


class Supervisor:
    """Tells the process's supervisor what the process does.

    Args:
        environment: the process's variables, which tell where to; they are taken out, for they are
            not meant for programs that this one starts.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._interval = _interval(environment)
        self._step = ""
        self._calls = 0
        self._said = 0.0

    def begin(self, step: str) -> None:
        """A step of the start begins.

        Args:
            step: what it does, for people.
        """
        self._step, self._calls = step, 0
        self._say(step)

    def go_on(self) -> None:
        """The step has not ended, and has done one thing more."""
        self._calls += 1
        if self._calls % _AT_ONCE == 0 and monotonic() - self._said >= _BETWEEN:
            self._say(f"{self._step}: {self._calls:,} so far")

    def ready(self, instance: str, clock: Clock) -> None:
        """The start is over; from now on the supervisor hears that the engine's loop turns.

        Args:
            instance: the instance's name.
            clock: of the engine.
        """
        self._tell(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=instance {instance} serves")
        if self._interval:
            self._beat(clock)

    def stopping(self) -> None:
        """The end begins."""
        self._tell("STOPPING=1\nSTATUS=stopping")

    def _beat(self, clock: Clock) -> None:
        self._tell("WATCHDOG=1")
        clock.call_later(self._interval, lambda: self._beat(clock))

    def _say(self, what: str) -> None:
        self._said = monotonic()
        self._tell(f"STATUS=starting: {what}\nEXTEND_TIMEOUT_USEC={_STEP_SECONDS * _SECOND}")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        # A supervisor that does not listen is no reason to do anything else.
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to,
        ):
            to.sendto(text.encode(), self._address)


def _interval(environment: MutableMapping[str, str]) -> float:
    """How often the supervisor wants to hear something, in seconds; 0 for never."""
    process = environment.pop("WATCHDOG_PID", "")
    limit = environment.pop("WATCHDOG_USEC", "")
    if not limit.isdecimal() or process not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / _SECOND / 2
