"""Checks of the machine: processors, memory, limits, and kernel settings that affect a server.

Files of the kernel are read below a root directory, which tests may create. A file that cannot be
read is left out.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.admin.diagnosis.file_checks import size_text
from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.findings import Examination

AREA: Final = "machine"
ROOT: Final = Path("/")

_KIBIBYTE: Final = 1024
_FEW_FILES: Final = 4_096
_VERY_FEW_FILES: Final = 1_024
_MANY_USED: Final = 0.8
_LITTLE_MEMORY: Final = 0.10
_VERY_LITTLE_MEMORY: Final = 0.03
_EAGER_SWAPPING: Final = 30
_FEW_MAPS: Final = 65_530
_FEW_PROCESSORS: Final = 2
_BUSY: Final = 2.0
"""Load: runnable processes per processor."""

_UNLIMITED: Final = 1 << 60
"""For "no limit", cgroups v1 reports a number larger than this."""

_SETTING: Final = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The kernel's files about a machine, and about one process.

    Attributes:
        root: the directory that stands for `/`.
        pid: the server's process; None if none is known to run here.
    """

    root: Path = ROOT
    pid: int | None = None

    @property
    def process_directory(self) -> Path:
        """The `/proc` directory of the server, or else of this command."""
        return self.root / "proc" / ("self" if self.pid is None else str(self.pid))

    def read_text(self, path: str) -> str:
        """Return the text of a file of the kernel; empty if it cannot be read."""
        return _text(self.root / path)

    def read_number(self, path: str) -> int | None:
        """Return the number in a file of the kernel; None if it holds none."""
        return _number(self.read_text(path))


def examine(machine: HostMachine, examination: Examination) -> None:
    """Check a machine."""
    memory = _table(machine.read_text("proc/meminfo"))
    facts: dict[str, object] = {
        "processors": _processors(machine, examination),
        "memory": _memory(memory, examination),
        "cgroup": _cgroup(machine, examination),
        "open_files": _open_files(machine, examination),
        "kernel": _kernel(machine, examination),
        "limits": _limits(machine),
    }
    if machine.pid is not None:
        facts["process"] = _process(machine, examination)
    examination.facts[AREA] = facts


def _processors(machine: HostMachine, examination: Examination) -> dict[str, object]:
    usable = len(os.sched_getaffinity(machine.pid or 0))
    load = machine.read_text("proc/loadavg").split()
    examination.add_finding(
        AREA,
        "processors",
        f"{usable} of {os.cpu_count()} may be used",
        CheckVerdict.WARNING if usable < _FEW_PROCESSORS else CheckVerdict.OK,
        "the server wants one for its engine, and one for disks, statistics and the system",
        "give it two processors",
    )
    if load:
        examination.add_finding(
            AREA,
            "load",
            f"{load[0]} in the last minute, {load[2]} in 15 minutes",
            CheckVerdict.WARNING if float(load[0]) > _BUSY * usable else CheckVerdict.OK,
            "more wants to run than there are processors for, so that everything waits",
            "look what it is (top)",
        )
    return {"usable": usable, "all": os.cpu_count(), "load": load[:3], "kind": platform.machine()}


def _memory(memory: Mapping[str, int], examination: Examination) -> dict[str, object]:
    total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
    if total:
        share = available / total
        examination.add_finding(
            AREA,
            "memory",
            f"{size_text(available)} of {size_text(total)} available ({share:.0%})",
            _low_verdict(share, _LITTLE_MEMORY, _VERY_LITTLE_MEMORY),
            "records and what waits for slow clients are in memory; the kernel ends what takes"
            " the last of it",
            "lower MessageMemoryLimit, move other programs, or add memory",
        )
    return dict(memory)


def _cgroup(machine: HostMachine, examination: Examination) -> dict[str, object]:
    """Check and return the limits of the container or service, if it has any."""
    groups = _cgroups(machine)
    limit = _limit(groups, "memory", "memory.max", "memory.limit_in_bytes")
    used = _limit(groups, "memory", "memory.current", "memory.usage_in_bytes")
    tasks = _limit(groups, "pids", "pids.max", "pids.max")
    quota = _quota(groups)
    events = _table(_first(groups, "memory", "memory.events", "memory.oom_control"))
    killed = events.get("oom_kill", 0)
    throttled = _table(_first(groups, "cpu", "cpu.stat", "cpu.stat")).get("nr_throttled", 0)
    if limit is not None and used is not None:
        share = 1 - used / limit
        examination.add_finding(
            AREA,
            "memory limit of the cgroup",
            f"{size_text(used)} of {size_text(limit)} used",
            _low_verdict(share, _LITTLE_MEMORY, _VERY_LITTLE_MEMORY),
            "the kernel ends the server when it reaches the limit",
            "raise the limit (MemoryMax=, --memory), or lower MessageMemoryLimit",
        )
    if killed:
        examination.add_wrong(
            AREA,
            "processes ended for want of memory",
            f"{killed:,}",
            "the kernel has ended processes of this cgroup, which may have been the server",
            "look into dmesg; raise the limit",
        )
    if throttled:
        examination.add_attention(
            AREA,
            "processor limit of the cgroup",
            f"{quota or 'a limit'}: reached {throttled:,} times",
            "all clients wait for the rest of each period in which the limit is reached",
            "raise the limit (CPUQuota=, --cpus)",
        )
    return {
        "memory_limit": limit,
        "memory_used": used,
        "processes_limit": tasks,
        "processor_limit": quota,
        "killed_for_memory": killed,
        "throttled": throttled,
    }


def _open_files(machine: HostMachine, examination: Examination) -> dict[str, object]:
    """Check the limit of open files; the server raises its soft limit to the hard one by itself."""
    limits = _limits(machine).get("open files", {})
    hard = limits.get("hard")
    used = None
    if machine.pid is not None:
        try:
            used = len(os.listdir(machine.process_directory / "fd"))
        except OSError:
            used = None  # the process of another user
    if isinstance(hard, int):
        of_used = "" if used is None else f", {used:,} used"
        verdict = _low_verdict(float(hard), _FEW_FILES, _VERY_FEW_FILES, inclusive=True)
        if used is not None and used > _MANY_USED * hard:
            verdict = CheckVerdict.ERROR
        examination.add_finding(
            AREA,
            "open files",
            f"{hard:,} at most{of_used}",
            verdict,
            "each connection and file of records takes one; without one, no client can connect",
            "raise the hard limit (LimitNOFILE=, ulimit -Hn)",
        )
    return {**limits, "used": used}


def _kernel(machine: HostMachine, examination: Examination) -> dict[str, object]:
    pages = _SETTING.search(machine.read_text("sys/kernel/mm/transparent_hugepage/enabled"))
    swappiness = machine.read_number("proc/sys/vm/swappiness")
    maps = machine.read_number("proc/sys/vm/max_map_count")
    has_swap = bool(_table(machine.read_text("proc/meminfo")).get("SwapTotal", 0))
    if pages is not None:
        examination.add_finding(
            AREA,
            "transparent huge pages",
            pages[1],
            CheckVerdict.WARNING if pages[1] == "always" else CheckVerdict.OK,
            "the kernel may hold the server up while it puts pages together, and memory grows",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if swappiness is not None:
        examination.add_finding(
            AREA,
            "swappiness",
            f"{swappiness}{'' if has_swap else ', and there is no swap'}",
            CheckVerdict.WARNING if has_swap and swappiness > _EAGER_SWAPPING else CheckVerdict.OK,
            "records that were not read lately are swapped out, and slow to read",
            "sysctl vm.swappiness=1",
        )
    if maps is not None:
        examination.add_finding(
            AREA,
            "memory maps",
            f"{maps:,} per process",
            CheckVerdict.WARNING if maps < _FEW_MAPS else CheckVerdict.OK,
            "files of records are mapped slab by slab",
            "sysctl vm.max_map_count=262144",
        )
    return {
        "release": platform.release(),
        "transparent_huge_pages": pages and pages[1],
        "swappiness": swappiness,
        "max_map_count": maps,
        "somaxconn": machine.read_number("proc/sys/net/core/somaxconn"),
        "overcommit_memory": machine.read_number("proc/sys/vm/overcommit_memory"),
    }


def _process(machine: HostMachine, examination: Examination) -> dict[str, object]:
    status = _table(_text(machine.process_directory / "status"))
    swapped = status.get("VmSwap", 0)
    if status:
        examination.add_finding(
            AREA,
            "memory of the server",
            f"{size_text(status.get('VmRSS', 0))}, {size_text(swapped)} swapped out",
            CheckVerdict.WARNING if swapped else CheckVerdict.OK,
            "swapped-out memory is slow when it is needed",
            "give the machine more memory, or turn swap off",
        )
    return {"pid": machine.pid, "memory": status}


def _limits(machine: HostMachine) -> dict[str, dict[str, int | str]]:
    """Return the limits of a process, soft and hard, by their names in lower case."""
    limits: dict[str, dict[str, int | str]] = {}
    for line in _text(machine.process_directory / "limits").splitlines()[1:]:
        name, *values = re.split(r"\s{2,}", line.strip())
        soft, hard = (int(value) if value.isdigit() else value for value in (*values, "", "")[:2])
        limits[name.removeprefix("Max ")] = {"soft": soft, "hard": hard}
    return limits


def _cgroups(machine: HostMachine) -> dict[str, list[Path]]:
    """Return the directories of each controller of a process's cgroup, the likeliest first.

    In a container, the kernel may name a path of the host that is not visible from within: the
    limits of the container are at the top then.
    """
    top = machine.root / "sys/fs/cgroup"
    groups: dict[str, list[Path]] = {}
    for line in _text(machine.process_directory / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for name in controllers.split(",") if controllers else ("",):
            directory = top / name if name else top
            groups[name] = [directory / path.lstrip("/"), directory]
    return groups


def _first(groups: Mapping[str, list[Path]], controller: str, new: str, old: str) -> str:
    """Return the content of a controller's file, in either version of cgroups."""
    files = [path / old for path in groups.get(controller, ())]
    files += [path / new for path in groups.get("", ())]
    return next(filter(None, map(_text, files)), "")


def _limit(groups: Mapping[str, list[Path]], controller: str, new: str, old: str) -> int | None:
    value = _number(_first(groups, controller, new, old))
    return None if value is None or value >= _UNLIMITED else value


def _quota(groups: Mapping[str, list[Path]]) -> str | None:
    quota, _, period = _first(groups, "", "cpu.max", "cpu.max").partition(" ")
    if not quota:
        quota = _first(groups, "cpu", "cpu.cfs_quota_us", "cpu.cfs_quota_us")
        period = _first(groups, "cpu", "cpu.cfs_period_us", "cpu.cfs_period_us")
    share, period_us = _number(quota), _number(period)
    return f"{share / period_us:.2f} processors" if share and period_us and share > 0 else None


def _low_verdict(
    value: float, few: float, very_few: float, *, inclusive: bool = False
) -> CheckVerdict:
    """Return the verdict on a value that should not be low."""
    if value < very_few:
        return CheckVerdict.ERROR
    is_low = value <= very_few if inclusive else False
    return CheckVerdict.WARNING if is_low or value < few else CheckVerdict.OK


def _table(text: str) -> dict[str, int]:
    """Return numbers by name from lines of a name and a number; `kB` is converted to bytes."""
    table: dict[str, int] = {}
    for line in text.splitlines():
        name, *columns = line.replace(":", " ").split()[:3] or [""]
        if columns and columns[0].isdigit():
            table[name] = int(columns[0]) * (_KIBIBYTE if columns[1:] == ["kB"] else 1)
    return table


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def find_lock_holder(paths: Iterable[Path]) -> int | None:
    """Return the process that has locked one of the paths; None if none is known.

    It takes no lock to find out, as that could keep a server from starting.
    """
    file_ids = set[str]()
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            continue
        device = about.st_dev
        file_ids.add(f"{os.major(device):02x}:{os.minor(device):02x}:{about.st_ino}")
    try:
        lines = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[5] in file_ids and fields[4].isdigit() and int(fields[4]):
            return int(fields[4])
    return None
