"""Reads minidumps in Microsoft's format, as AMPS writes them with Breakpad.

Only the header and the directory of streams are read, with the numbers of threads and modules: the
rest are registers and memory, which are meaningless without the program's symbols.

Source: Microsoft, MINIDUMP_HEADER and MINIDUMP_DIRECTORY; Breakpad, minidump_format.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

MAGIC: Final = b"MDMP"

_HEADER: Final = struct.Struct("<4sIIIIIQ")
_STREAM: Final = struct.Struct("<III")
_COUNT: Final = struct.Struct("<I")
_MAX_STREAMS: Final = 1_000

_UNUSED: Final = 0
_COUNTED: Final = {3: "threads", 4: "modules"}
"""Streams that begin with the number of their elements."""

_STREAMS: Final[Mapping[int, str]] = {
    3: "thread list",
    4: "module list",
    5: "memory list",
    6: "exception",
    7: "system information",
    9: "64-bit memory list",
    15: "process information",
    16: "memory information list",
    24: "thread names",
    0x47670001: "Breakpad information",
    0x47670002: "assertion",
    0x47670003: "/proc/cpuinfo",
    0x47670004: "/proc/PID/status",
    0x47670005: "release of the distribution",
    0x47670006: "command line",
    0x47670007: "environment",
    0x47670008: "auxiliary vector",
    0x47670009: "memory map",
    0x4767000A: "debugging information of the dynamic linker",
}
SENSITIVE: Final = frozenset({"memory list", "64-bit memory list", "environment", "command line"})
"""Streams that may contain confidential data."""


@dataclass(frozen=True, slots=True)
class Breakpad:
    """The header and the directory of streams of a file.

    Attributes:
        taken_at: time of the dump; None if the header has none.
        streams: names of the streams, with the bytes of each.
        counts: numbers of threads and modules, as far as they can be read.
        missing: descriptions of the missing parts.
    """

    taken_at: datetime | None
    streams: list[tuple[str, int]]
    counts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def read_breakpad(octets: bytes) -> Breakpad:
    """Parse the header and the directory of a file that begins with `MAGIC`; never raise."""
    if len(octets) < _HEADER.size:
        missing_header = f"the header: the file has {len(octets)} bytes of {_HEADER.size}"
        return Breakpad(None, [], missing=[missing_header])
    _, _, count, directory, _, seconds, _ = _HEADER.unpack_from(octets)
    breakpad = Breakpad(datetime.fromtimestamp(seconds, UTC) if seconds else None, [])
    for number in range(min(count, _MAX_STREAMS)):
        at = directory + number * _STREAM.size
        if at + _STREAM.size > len(octets):
            breakpad.missing.append(f"the directory of streams behind {number} of {count:,}")
            break
        kind, size, start = _STREAM.unpack_from(octets, at)
        if kind == _UNUSED:
            continue
        name = _STREAMS.get(kind, f"stream {kind:#x}")
        breakpad.streams.append((name, size))
        if start + size > len(octets):
            breakpad.missing.append(f"some of {name}: the file was cut short")
        elif kind in _COUNTED and size >= _COUNT.size:
            (breakpad.counts[_COUNTED[kind]],) = _COUNT.unpack_from(octets, start)
    return breakpad
