"""The host's system logger as a logging target.

Messages are sent directly to the daemon's socket, in the format of syslog(3). The C library's
syslog() has one identity per process, but a configuration may have several targets, each with its
own; it also hides failures, which are to be reported once to the operator.

Source: AMPS User Guide, Logging to Syslog.
"""

import os
import socket
import sys
import syslog
import time
from collections.abc import Mapping, Sequence
from typing import Final

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.log.levels import Level
from server.log.targets.base import LogLine, LogTarget

SOCKET: Final = "/dev/log"
CONSOLE: Final = "/dev/console"

OPTIONS: Final = frozenset(
    {"LOG_CONS", "LOG_NDELAY", "LOG_NOWAIT", "LOG_ODELAY", "LOG_PERROR", "LOG_PID"}
)
FACILITIES: Final[Mapping[str, int]] = {
    "LOG_USER": syslog.LOG_USER,
    "LOG_LOCAL0": syslog.LOG_LOCAL0,
    "LOG_LOCAL1": syslog.LOG_LOCAL1,
    "LOG_LOCAL2": syslog.LOG_LOCAL2,
    "LOG_LOCAL3": syslog.LOG_LOCAL3,
    "LOG_LOCAL4": syslog.LOG_LOCAL4,
    "LOG_LOCAL5": syslog.LOG_LOCAL5,
    "LOG_LOCAL6": syslog.LOG_LOCAL6,
    "LOG_LOCAL7": syslog.LOG_LOCAL7,
}
DEFAULT_FACILITY: Final = "LOG_USER"

SEVERITIES: Final[Mapping[Level, int]] = {
    Level.DEVELOPER: syslog.LOG_DEBUG,
    Level.TRACE: syslog.LOG_DEBUG,
    Level.STATS: syslog.LOG_INFO,
    Level.INFO: syslog.LOG_INFO,
    Level.WARNING: syslog.LOG_WARNING,
    Level.ERROR: syslog.LOG_ERR,
    Level.CRITICAL: syslog.LOG_CRIT,
    Level.EMERGENCY: syslog.LOG_EMERG,
}

MAX_TEXT: Final = 32 * 1024
"""Maximum bytes sent of an entry; a datagram socket accepts a message whole or not at all."""

_CUT: Final = b" [cut]"
_SEND_TIMEOUT_S: Final = 1.0
"""Timeout per message for a daemon that does not read."""


class SyslogTarget(LogTarget):
    """Sends each entry to the system logger.

    Args:
        spec: the configuration of the target.
        problems: gets the mistakes in it.
        instance_name: the identity of its messages without an Ident.
        address: the path of the daemon's datagram socket.

    Attributes:
        identity: the name that its messages are sent under.
        facility: the number of their facility.
    """

    def __init__(
        self, spec: LogTargetSpec, problems: Problems, instance_name: str, address: str = SOCKET
    ) -> None:
        """Connect at once if LOG_NDELAY is set, otherwise with the first entry."""
        super().__init__(spec, problems)
        self._options = _options(spec, problems)
        self.facility = _facility(spec, problems)
        self.identity = spec.ident or instance_name
        process = f"[{os.getpid()}]" if "LOG_PID" in self._options else ""
        self._tag = f"{self.identity}{process}: ".encode()
        self._address = address
        self._socket: socket.socket | None = None
        if "LOG_NDELAY" in self._options:
            try:
                self._connect()
            except OSError as problem:
                problems.warning(
                    spec,
                    "Target/Protocol",
                    f"the system logger does not answer at {address}: {problem.strerror}",
                    "start it; the connection is tried again with each entry",
                )

    @property
    def name(self) -> str:
        """The protocol and the address that its messages are sent to."""
        return f"syslog ({self._address})"

    def write(self, lines: Sequence[LogLine]) -> None:
        """See `LogTarget.write`."""
        for line in lines:
            text = line.text.rstrip(b"\n")
            if len(text) > MAX_TEXT:
                text = text[:MAX_TEXT] + _CUT
            if "LOG_PERROR" in self._options:
                print(text.decode("utf-8", "replace"), file=sys.stderr)
            local_time = time.localtime(line.nanoseconds // 1_000_000_000)
            stamp = time.strftime("%b %e %H:%M:%S ", local_time).encode()
            priority = self.facility | SEVERITIES[line.level]
            try:
                self._send(b"<%d>%s%s%s" % (priority, stamp, self._tag, text))
            except OSError:
                if "LOG_CONS" in self._options:
                    _write_to_console(self._tag + text)
                raise
            self._count_written((line,))

    def close(self) -> None:
        """See `LogTarget.close`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: bytes) -> None:
        """Send a message, with a reconnect if the daemon was restarted since the last one."""
        if self._socket is not None:
            try:
                self._socket.send(message)
            except ConnectionError:
                self.close()
            else:
                return
        self._connect().send(message)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        connection.settimeout(_SEND_TIMEOUT_S)
        try:
            connection.connect(self._address)
        except OSError:
            connection.close()
            raise
        self._socket = connection
        return connection


def _options(spec: LogTargetSpec, problems: Problems) -> frozenset[str]:
    for option in spec.options:
        if option not in OPTIONS:
            options = ", ".join(sorted(OPTIONS))
            problems.error(
                spec,
                "Target/Options",
                f"'{option}' is not a syslog option; expected some of {options}",
            )
    return OPTIONS & set(spec.options)


def _facility(spec: LogTargetSpec, problems: Problems) -> int:
    name = spec.facility or DEFAULT_FACILITY
    if name not in FACILITIES:
        facilities = ", ".join(FACILITIES)
        problems.error(
            spec,
            "Target/Facility",
            f"'{name}' is not a syslog facility; expected one of {facilities}",
        )
    return FACILITIES.get(name, syslog.LOG_USER)


def _write_to_console(message: bytes) -> None:
    """Write to the console (LOG_CONS), if the system logger cannot be reached."""
    try:
        with open(CONSOLE, "wb", buffering=0) as console:
            console.write(message + b"\r\n")
    except OSError:
        pass  # most processes may not write to it, and no other output remains for a report
