"""The interface to the process's supervisor: systemd, or none.

A unit of `Type=notify` is notified of the end of the start, of the current step until then,
and of the beginning of the stop. A start takes as long as the log is long, so its timeout is
extended as long as the start makes progress. With `WatchdogSec` the unit expects a heartbeat; it is
sent from the engine's loop, so that systemd restarts an engine that hangs.

Source: sd_notify(3), systemd.service(5).
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.util.clock import Clock

_STEP_SECONDS: Final = 600
"""Timeout of a step of the start without progress: a file with 100 million records needs it."""

_REPORT_INTERVAL_S: Final = 1.0
"""Seconds between two notifications about the same step."""

_BATCH_SIZE: Final = 1024
"""Calls between two reads of the clock: there is one for each entry of the log."""


class Supervisor:
    """Notifies the process's supervisor of the state of the process.

    Args:
        environment: the process's variables, with the address of the supervisor. Its variables are
            removed, so that child processes do not inherit them.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._heartbeat_interval_s = _interval(environment)
        self._step = ""
        self._progress_count = 0
        self._reported_at = 0.0

    def begin_step(self, step: str) -> None:
        """Report that a step of the start begins.

        Args:
            step: its description, for operators.
        """
        self._step, self._progress_count = step, 0
        self._report_status(step)

    def report_progress(self) -> None:
        """Count one unit of progress of the step, and report it now and then."""
        self._progress_count += 1
        if (
            self._progress_count % _BATCH_SIZE == 0
            and monotonic() - self._reported_at >= _REPORT_INTERVAL_S
        ):
            self._report_status(f"{self._step}: {self._progress_count:,} so far")

    def report_ready(self, instance: str, clock: Clock) -> None:
        """Report the end of the start, and send heartbeats of the engine's loop from now on.

        Args:
            instance: the instance's name.
            clock: the engine's clock.
        """
        self._notify(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=instance {instance} serves")
        if self._heartbeat_interval_s:
            self._send_heartbeat(clock)

    def report_stopping(self) -> None:
        """Report that the instance begins to stop."""
        self._notify("STOPPING=1\nSTATUS=stopping")

    def _send_heartbeat(self, clock: Clock) -> None:
        self._notify("WATCHDOG=1")
        clock.call_later(self._heartbeat_interval_s, lambda: self._send_heartbeat(clock))

    def _report_status(self, step: str) -> None:
        self._reported_at = monotonic()
        timeout_us = _STEP_SECONDS * MICROSECONDS_PER_SECOND
        self._notify(f"STATUS=starting: {step}\nEXTEND_TIMEOUT_USEC={timeout_us}")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        # Errors are ignored: the server runs on without its supervisor.
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to,
        ):
            to.sendto(text.encode(), self._address)


def _interval(environment: MutableMapping[str, str]) -> float:
    """Return the interval of heartbeats in seconds, half of systemd's timeout; 0 for none."""
    process = environment.pop("WATCHDOG_PID", "")
    limit = environment.pop("WATCHDOG_USEC", "")
    if not limit.isdecimal() or process not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / MICROSECONDS_PER_SECOND / 2
