"""Checks of the clock: kernel synchronisation, and the difference from the server's clock."""

from __future__ import annotations

import ctypes
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.findings import Examination

AREA: Final = "clock"
_UNSYNCHRONISED: Final = 5  # TIME_ERROR of adjtimex(2)
_NANOSECONDS: Final = 0x2000  # STA_NANO: the offset is in nanoseconds
_LARGE_OFFSET: Final = 0.5
_LARGE_DIFFERENCE: Final = 5.0
"""Seconds between the clocks of two machines, one of which reports whole seconds."""


class _Timeval(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("fraction", ctypes.c_long))


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2); unused fields are one block, `rest`."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximum_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", _Timeval),
        ("rest", ctypes.c_byte * 160),
    )


def examine(server_date: str, request_times: tuple[float, float], examination: Examination) -> None:
    """Check the clock of this machine, and compare it with that of the server.

    Args:
        server_date: `Date` header of the server's answer; empty if unknown.
        request_times: times of the request and of its answer, in seconds since 1970.
        examination: collects the findings.
    """
    now = datetime.now(UTC)
    facts: dict[str, object] = {"now": now.isoformat(), "zone": time.strftime("%Z %z")}
    examination.facts[AREA] = facts
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        state = -1
    if state >= 0:
        unit = 1e-9 if timex.status & _NANOSECONDS else 1e-6
        offset, max_error = timex.offset * unit, timex.maximum_error * 1e-6
        is_good = state != _UNSYNCHRONISED and abs(offset) < _LARGE_OFFSET
        facts |= {
            "synchronised": state != _UNSYNCHRONISED,
            "offset": offset,
            "maximum_error": max_error,
        }
        examination.add_finding(
            AREA,
            "synchronised",
            f"{'no' if state == _UNSYNCHRONISED else 'yes'}, offset {offset:+.6f} s",
            CheckVerdict.OK if is_good else CheckVerdict.WARNING,
            "the kernel does not know of a source of time, or is far from it: times of messages,"
            " schedules and leases of instances that replicate go by different clocks",
            "run chrony or systemd-timesyncd; in a container, the host does that",
        )
    if server_date:
        _compare(server_date, request_times, examination, facts)


def _compare(
    server_date: str,
    request_times: tuple[float, float],
    examination: Examination,
    facts: dict[str, object],
) -> None:
    try:
        second = parsedate_to_datetime(server_date).timestamp()
    except ValueError:
        return
    begun, ended = request_times
    # the clocks agree if the server's second overlaps with this interval
    difference = round(min(second + 1 - begun, 0) + max(second - ended, 0))
    facts["server_ahead"] = difference
    examination.add_finding(
        AREA,
        "the server's clock",
        f"{difference:+d} s against this machine's",
        CheckVerdict.WARNING if abs(difference) > _LARGE_DIFFERENCE else CheckVerdict.OK,
        "the clocks of the two machines differ",
        "synchronise both",
    )
