"""The host's figures: processors, memory, disks and network, read on the thread of statistics.

They come from /proc. If it is missing, or a file of it cannot be read, the figures are zero, or
there are no entries; a device that is gone at the next reading has no entry there any more. Shares
and averages are those of the time between two readings, so that the first has none. In a container,
processors and memory are the host's, disks and network those that the container sees.

Source: AMPS Monitoring Guide, Host Statistics.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from server.statistics.host_resources import HOST, HOST_CPUS, HOST_DISKS, HOST_MEMORY, HOST_NETWORK
from server.statistics.sample import StatisticsEntry, StatisticsSource
from server.statistics.schema import Resource, StatisticValue

PROC: Final = Path("/proc")

_KILOBYTE: Final = 1024
_SECTOR: Final = 512  # the unit of /proc/diskstats, for any sector size of the disk
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")

_ALWAYS_FULL: Final = frozenset({"squashfs", "iso9660", "erofs", "udf"})
"""Read-only file systems; that they are full means nothing."""


def host_sources(
    proc: Path = PROC, clock: Callable[[], float] = time.monotonic
) -> list[StatisticsSource]:
    """Return the sources of the host's figures.

    Args:
        proc: the path of /proc.
        clock: seconds, monotonic.
    """
    return [HostName(), HostCpus(proc), HostDisks(proc, clock), HostMemory(proc), HostNetwork(proc)]


class HostName:
    """host: its name."""

    resource: Resource = HOST

    def __init__(self) -> None:
        self._static_values: tuple[StatisticValue, ...] = (socket.gethostname(),)

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        yield StatisticsEntry("", self._static_values, ())


class _CpuTimes(NamedTuple):
    """The time that a processor has spent so far, in ticks of its clock."""

    idle: int
    iowait: int
    system: int
    user: int


_BEGINNING: Final = _CpuTimes(0, 0, 0, 0)


class HostCpus:
    """host/cpus: the shares of each processor's time, and of all.

    At the first reading they are those since the host was started, so that an idle processor does
    not look like a busy one.

    Args:
        proc: the path of /proc.
    """

    resource: Resource = HOST_CPUS

    def __init__(self, proc: Path) -> None:
        self._path = proc / "stat"
        self._previous: Mapping[str, _CpuTimes] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        now = dict(map(_cpu, (line for line in _lines(self._path) if line.startswith("cpu"))))
        for name, times in (now or {"all": _BEGINNING}).items():
            yield StatisticsEntry(name, (), _shares(times, self._previous.get(name, _BEGINNING)))
        self._previous = now


def _cpu(line: str) -> tuple[str, _CpuTimes]:
    name, *fields = line.split()
    user, nice, system, idle, iowait, irq, softirq, steal = (*map(int, fields[:8]), *[0] * 8)[:8]
    times = _CpuTimes(idle, iowait, system + irq + softirq + steal, user + nice)
    return "all" if name == "cpu" else name, times


def _shares(now: _CpuTimes, before: _CpuTimes) -> tuple[float, ...]:
    grown = [max(0, new - old) for new, old in zip(now, before, strict=True)]
    whole = sum(grown)
    return tuple(100 * one / whole if whole else 0.0 for one in grown)


class HostMemory:
    """host/memory.

    Args:
        proc: the path of /proc.
    """

    resource: Resource = HOST_MEMORY

    def __init__(self, proc: Path) -> None:
        self._path = proc / "meminfo"
        self._static_values: tuple[StatisticValue, ...] = ()

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        known = dict(map(_memory, _lines(self._path)))
        total = known.get("MemTotal", 0) or _total_memory()
        free, buffers, cached = (known.get(name, 0) for name in ("MemFree", "Buffers", "Cached"))
        fixed = (known.get("SwapTotal", 0), total)
        if fixed != self._static_values:
            self._static_values = fixed
        moving = (
            known.get("AnonPages", 0),
            known.get("MemAvailable", free + buffers + cached),
            buffers,
            cached,
            free,
            total - free if known else 0,
            known.get("SwapFree", 0),
        )
        yield StatisticsEntry("", self._static_values, moving)


def _memory(line: str) -> tuple[str, int]:
    name, _, rest = line.partition(":")
    return name, int(rest.split()[0]) * _KILOBYTE


def _total_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0


class HostNetwork:
    """host/network: the interfaces.

    Args:
        proc: the path of /proc.
    """

    resource: Resource = HOST_NETWORK

    def __init__(self, proc: Path) -> None:
        self._path = proc / "self" / "net" / "dev"

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for line in _lines(self._path):
            name, _, rest = line.rpartition(":")
            if name:
                yield StatisticsEntry(
                    safe_id(name.strip()), (), _traffic([*map(int, rest.split())])
                )


def _traffic(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the totals of an interface; errors include those of each kind, both ways."""
    bytes_in, packets_in, damaged_in, dropped_in = numbers[:4]
    bytes_out, packets_out, damaged_out, dropped_out, _, collisions = numbers[8:14]
    errors = damaged_in + dropped_in + damaged_out + dropped_out + collisions
    return bytes_in, bytes_out, errors, packets_in, packets_out


class _DiskActivity(NamedTuple):
    """The totals of a disk, times in milliseconds."""

    reads: int = 0
    sectors_read: int = 0
    reading: int = 0
    writes: int = 0
    sectors_written: int = 0
    writing: int = 0
    in_progress: int = 0


class _Mount(NamedTuple):
    """A mounted file system."""

    device: str
    point: str
    kind: str
    source: str


class HostDisks:
    """host/disks: the disks on which file systems are mounted.

    A disk that is mounted in several places has one entry, with the first of them. The root of a
    container has no disk that the container sees; its entry has the name of the type of its file
    system. Network file systems have none: one that hangs would block the other figures.

    Args:
        proc: the path of /proc.
        clock: seconds, monotonic.
    """

    resource: Resource = HOST_DISKS

    def __init__(self, proc: Path, clock: Callable[[], float]) -> None:
        self._mounts = proc / "self" / "mountinfo"
        self._activity = proc / "diskstats"
        self._clock = clock
        self._read_at = 0.0
        self._previous: Mapping[str, _DiskActivity] = {}
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        now = self._clock()
        seconds, self._read_at = now - self._read_at, now
        known = {device: (name, did) for device, name, did in map(_disk, _lines(self._activity))}
        shown: dict[str, _DiskActivity] = {}
        for mount in map(_mount, _lines(self._mounts)):
            found = known.get(mount.device) or known.get(_device_of(mount.source))
            if mount.kind in _ALWAYS_FULL or not (found or mount.point == "/"):
                continue
            name, activity = found or (mount.kind, _DiskActivity())
            name = safe_id(name)
            if name in shown:
                continue
            shown[name] = activity
            if self._static_values.get(name) != (mount.point,):
                self._static_values[name] = (mount.point,)
            before = self._previous.get(name, activity)
            yield StatisticsEntry(
                name, self._static_values[name], _usage(mount.point, activity, before, seconds)
            )
        self._previous = shown


def _usage(
    mount_point: str, now: _DiskActivity, before: _DiskActivity, seconds: float
) -> tuple[StatisticValue, ...]:
    def grown(of: Callable[[_DiskActivity], int]) -> int:
        return max(0, of(now) - of(before))

    reads, writes = grown(lambda one: one.reads), grown(lambda one: one.writes)
    read = grown(lambda one: one.sectors_read) * _SECTOR
    written = grown(lambda one: one.sectors_written) * _SECTOR
    return (
        free_percent(mount_point),
        now.in_progress,
        grown(lambda one: one.reading) / reads if reads else 0.0,
        grown(lambda one: one.writing) / writes if writes else 0.0,
        round(read / seconds) if seconds > 0 else 0,
        round(written / seconds) if seconds > 0 else 0,
    )


def free_percent(path: str) -> float:
    """Return the percentage of a file system available to programs; 0 if that is not known."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0.0
    return 100 * found.f_bavail / found.f_blocks if found.f_blocks else 0.0


def _disk(line: str) -> tuple[str, str, _DiskActivity]:
    major, minor, name, *fields = line.split()
    reads, _, sectors_read, reading, writes, _, sectors_written, writing, in_progress = map(
        int, fields[:9]
    )
    activity = _DiskActivity(
        reads, sectors_read, reading, writes, sectors_written, writing, in_progress
    )
    return f"{major}:{minor}", name, activity


def _mount(line: str) -> _Mount:
    """Parse a line of mountinfo; after some optional fields a dash precedes the last three."""
    fields = line.split(" ")
    kind, source = fields[fields.index("-", 6) + 1 :][:2]
    return _Mount(fields[2], _unescaped(fields[4]), kind, _unescaped(source))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def _device_of(source: str) -> str:
    """Return the number of a device; some file systems show one of their own instead of it."""
    if not source.startswith("/dev/"):
        return ""
    try:
        number = os.stat(source).st_rdev
    except OSError:
        return ""
    return f"{os.major(number)}:{os.minor(number)}"


def safe_id(name: str) -> str:
    """Return a device's name, made safe for a path."""
    return _UNSAFE.sub("_", name)


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, none if it cannot be read."""
    try:
        return path.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
