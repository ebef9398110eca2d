"""The host's figures: processors, memory, disks and network, read on the thread of statistics.

They come from /proc. If it is missing, or a file of it cannot be read, the figures are zero, or
there are no entries; a device that is missing at the next reading has no entry there any more.
Shares and averages are those of the time between two readings, so that the first has none. In a
container, processors and memory are the host's, disks and network those that the container sees.

Source: AMPS Monitoring Guide, Host Statistics.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Final, NamedTuple

from server.statistics.host_resources import HOST, HOST_CPUS, HOST_DISKS, HOST_MEMORY, HOST_NETWORK
from server.statistics.sample import StatisticsEntry, StatisticsSource
from server.statistics.schema import Resource, StatisticValue

PROC: Final = Path("/proc")

_KILOBYTE: Final = 1024
_SECTOR: Final = 512  # the unit of /proc/diskstats, for any sector size of the disk
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")

_READ_ONLY_TYPES: Final = frozenset({"squashfs", "iso9660", "erofs", "udf"})
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
    increases = [max(0, new - old) for new, old in zip(now, before, strict=True)]
    total = sum(increases)
    return tuple(100 * increase / total if total else 0.0 for increase in increases)


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
        memory = dict(map(_memory, _lines(self._path)))
        total = memory.get("MemTotal", 0) or _total_memory()
        free, buffers, cached = (memory.get(name, 0) for name in ("MemFree", "Buffers", "Cached"))
        static_values = (memory.get("SwapTotal", 0), total)
        if static_values != self._static_values:
            self._static_values = static_values
        dynamic_values = (
            memory.get("AnonPages", 0),
            memory.get("MemAvailable", free + buffers + cached),
            buffers,
            cached,
            free,
            total - free if memory else 0,
            memory.get("SwapFree", 0),
        )
        yield StatisticsEntry("", self._static_values, dynamic_values)


def _memory(line: str) -> tuple[str, int]:
    name, _, value = line.partition(":")
    return name, int(value.split()[0]) * _KILOBYTE


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
            name, _, counts = line.rpartition(":")
            if name:
                yield StatisticsEntry(
                    safe_id(name.strip()), (), _traffic([*map(int, counts.split())])
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


_TREND_POINTS: Final = 60
_TREND_STEP_S: Final = 60.0
_MIN_TREND_POINTS: Final = 10
_PREDICTION_S: Final = 24 * 3600.0


class FreeSpaceTrend:
    """Predicts the free space of a file system by linear regression over the last hour."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=_TREND_POINTS)

    def predict(self, now_s: float, free_percent: float) -> float:
        """Note the present percentage, and return that in 24 hours.

        Before ten minutes have passed that is the present one.
        """
        if not self._points or now_s - self._points[-1][0] >= _TREND_STEP_S:
            self._points.append((now_s, free_percent))
        if len(self._points) < _MIN_TREND_POINTS:
            return free_percent
        slope, _ = linear_regression(*zip(*self._points, strict=True))
        return min(100.0, max(0.0, free_percent + slope * _PREDICTION_S))


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
        self._trends: dict[str, FreeSpaceTrend] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        now = self._clock()
        seconds, self._read_at = now - self._read_at, now
        disks = {device: (name, did) for device, name, did in map(_disk, _lines(self._activity))}
        shown: dict[str, _DiskActivity] = {}
        for mount in map(_mount, _lines(self._mounts)):
            disk = disks.get(mount.device) or disks.get(_device_of(mount.source))
            if mount.kind in _READ_ONLY_TYPES or not (disk or mount.point == "/"):
                continue
            name, activity = disk or (mount.kind, _DiskActivity())
            name = safe_id(name)
            if name in shown:
                continue
            shown[name] = activity
            if self._static_values.get(name) != (mount.point,):
                self._static_values[name] = (mount.point,)
            before = self._previous.get(name, activity)
            free = free_percent(mount.point)
            predicted = self._trends.setdefault(name, FreeSpaceTrend()).predict(now, free)
            yield StatisticsEntry(
                name,
                self._static_values[name],
                (free, activity.in_progress, predicted, *_usage(activity, before, seconds)),
            )
        self._previous = shown
        self._trends = {name: self._trends[name] for name in shown}


def _usage(now: _DiskActivity, before: _DiskActivity, seconds: float) -> tuple[StatisticValue, ...]:
    def grown(of: Callable[[_DiskActivity], int]) -> int:
        return max(0, of(now) - of(before))

    reads, writes = grown(lambda activity: activity.reads), grown(lambda activity: activity.writes)
    read = grown(lambda activity: activity.sectors_read) * _SECTOR
    written = grown(lambda activity: activity.sectors_written) * _SECTOR
    return (
        grown(lambda activity: activity.reading) / reads if reads else 0.0,
        grown(lambda activity: activity.writing) / writes if writes else 0.0,
        round(read / seconds) if seconds > 0 else 0,
        round(written / seconds) if seconds > 0 else 0,
    )


def free_percent(path: str) -> float:
    """Return the percentage of a file system available to programs; 0 if that is not known."""
    try:
        status = os.statvfs(path)
    except OSError:
        return 0.0
    return 100 * status.f_bavail / status.f_blocks if status.f_blocks else 0.0


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
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


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
