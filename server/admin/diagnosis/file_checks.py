"""Checks of the file systems and the certificates of an instance."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.findings import CheckFinding, CheckVerdict, checked
from server.engine.maintenance.certificate_expiry import NOTICE, read_expiry_times

if TYPE_CHECKING:
    from server.admin.diagnosis.directories import InstanceDirectory

DISKS: Final = "disks"
CERTIFICATES: Final = "certificates"

_LOW_SHARE: Final = 0.15
_VERY_LOW_SHARE: Final = 0.05
_MIN_FREE_FILES: Final = 2
"""Number of further files of the largest kind that must fit into the free space."""

_KIBIBYTE: Final = 1024


def by_file_system(
    directories: Iterable[InstanceDirectory],
) -> list[list[tuple[InstanceDirectory, Path]]]:
    """Group directories by their file systems, each with its nearest ancestor that exists."""
    groups: dict[int, list[tuple[InstanceDirectory, Path]]] = {}
    for directory in directories:
        existing_path, device = _existing(directory.path)
        groups.setdefault(device, []).append((directory, existing_path))
    return [*groups.values()]


def check_free_space(
    directories: Sequence[tuple[InstanceDirectory, Path]],
    file_system: os.statvfs_result,
    kind: str = "",
) -> CheckFinding:
    """Check the free space of the file system that some directories are on.

    Args:
        directories: as of `by_file_system`.
        file_system: its size and free space.
        kind: the type of the file system; empty if it is unknown.
    """
    free = file_system.f_bavail * file_system.f_frsize
    size = file_system.f_blocks * file_system.f_frsize
    share = free / size if size else 0.0
    is_durable = any(directory.is_durable for directory, _ in directories)
    needed_bytes = max(directory.needed_bytes for directory, _ in directories)
    verdict = CheckVerdict.OK
    if share < _LOW_SHARE:
        verdict = CheckVerdict.WARNING
    if share < _VERY_LOW_SHARE or free < _MIN_FREE_FILES * needed_bytes:
        verdict = CheckVerdict.ERROR if is_durable else CheckVerdict.WARNING
    return checked(
        CheckFinding(
            DISKS,
            "; ".join(f"{directory.purpose}: {directory.path}" for directory, _ in directories),
            verdict,
            f"{size_text(free)} of {size_text(size)} free ({share:.0%}){kind and f', {kind}'}",
            "on a full disk publishes are refused, or logs and statistics stop",
            "make room; actions archive, compress and remove journals and logs",
            page="journals",
            runbook="full-disks",
            path="/amps/host/disks",
        )
    )


def disk_findings(directories: Iterable[InstanceDirectory]) -> Iterator[CheckFinding]:
    """Check the free space of all file systems that some directories are on."""
    for group in by_file_system(directories):
        path = group[0][1]
        try:
            file_system = os.statvfs(path)
        except OSError as error:
            yield disk_problem(str(path), error.strerror or str(error))
        else:
            yield check_free_space(group, file_system)


def disk_problem(name: str, value: str) -> CheckFinding:
    """Return the finding that file systems cannot be examined."""
    return CheckFinding(
        DISKS,
        name,
        CheckVerdict.ERROR,
        value,
        "journals, records or logs may not be written",
        "look at the disks and the mounts of the host",
        page="log",
        runbook="full-disks",
        path="/amps/host/disks",
    )


def certificate_findings(users: Mapping[str, Sequence[str]]) -> Iterator[CheckFinding]:
    """Check each certificate of an instance once.

    Args:
        users: the files, with the users of each.
    """
    for path, names in users.items():
        yield _check_certificate(path, f"{path} of {', '.join(names)}")


def _check_certificate(path: str, title: str) -> CheckFinding:
    why = "has no certificate that can be read"
    try:
        ends = read_expiry_times(path)
    except OSError as error:
        ends, why = [], error.strerror or str(error)
    links = {
        "page": "administration",
        "runbook": "certificates-that-expire",
        "path": "/amps/instance/transports",
    }
    if not ends:
        return CheckFinding(
            CERTIFICATES,
            title,
            CheckVerdict.ERROR,
            why,
            "a transport does not open without its certificate",
            "let the user of the server read a file in PEM format",
            **links,
        )
    left = min(ends) - datetime.now(UTC)
    verdict = CheckVerdict.WARNING if left < NOTICE else CheckVerdict.OK
    return checked(
        CheckFinding(
            CERTIFICATES,
            title,
            CheckVerdict.ERROR if left.total_seconds() <= 0 else verdict,
            f"good until {min(ends):%Y-%m-%d %H:%M} UTC, {left.days} days",
            "clients and other instances refuse it from that moment on",
            "put a new one in the place of the file: it is read again when it changes",
            **links,
        )
    )


def size_text(size: float) -> str:
    """Return a size in bytes as text with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIBIBYTE:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBIBYTE
    return f"{size:.1f} TiB"


def _existing(path: Path) -> tuple[Path, int]:
    """Return the directory, or its nearest ancestor that exists, and its file system."""
    for candidate in (path, *path.parents):
        try:
            status = os.stat(candidate)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            return candidate, status.st_dev
    return Path("/"), os.stat("/").st_dev
