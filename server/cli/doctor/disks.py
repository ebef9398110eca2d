"""Checks of the file systems that an instance writes to: free space, type and access."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from server.cli.doctor.directories import InstanceDirectory
from server.cli.doctor.findings import CheckVerdict, Examination
from server.cli.doctor.machine import ROOT, size_text

AREA: Final = "disks"

_LOW_SHARE: Final = 0.15
_VERY_LOW_SHARE: Final = 0.05
_FEW_INODES: Final = 0.05
_MIN_FREE_FILES: Final = 2
"""Number of further files of the largest kind that must fit into the free space."""

_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
_LAYERED: Final = frozenset({"overlay", "aufs"})


class _Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    source: str
    options: str


def examine(
    directories: Sequence[InstanceDirectory], examination: Examination, root: Path = ROOT
) -> None:
    """Check the file systems of some directories.

    Args:
        directories: the directories.
        examination: collects the findings.
        root: the directory that stands for `/` when the mount table is read.
    """
    mounts = _mounts(root)
    disks: dict[int, list[tuple[InstanceDirectory, Path]]] = {}
    for directory in directories:
        existing_path = _existing(directory.path)
        disks.setdefault(os.stat(existing_path).st_dev, []).append((directory, existing_path))
    examination.facts[AREA] = [
        fact for on_disk in disks.values() for fact in _examine_disk(on_disk, mounts, examination)
    ]


def _examine_disk(
    directories: Sequence[tuple[InstanceDirectory, Path]],
    mounts: Sequence[_Mount],
    examination: Examination,
) -> list[dict[str, object]]:
    """Check one file system, and return the facts of each directory on it."""
    (_, first), *_ = directories
    mount, room = _mount_of(first, mounts), os.statvfs(first)
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    titles = [f"{directory.purpose}: {directory.path}" for directory, _ in directories]
    title = "; ".join(titles)
    required = InstanceDirectory(
        title,
        first,
        max(directory.needed_bytes for directory, _ in directories),
        any(directory.is_durable for directory, _ in directories),
    )
    _judge_room(
        title, "" if mount is None else f", {mount.kind}", free, size, required, examination
    )
    if room.f_files and room.f_favail / room.f_files < _FEW_INODES:
        examination.add_attention(
            AREA,
            f"{title}: inodes",
            f"{room.f_favail:,} of {room.f_files:,} free",
            "without one, no file can be made, however much room there is",
            "remove small files from that file system",
        )
    _judge_kind(title, mount, required, examination)
    for name, (directory, path) in zip(titles, directories, strict=True):
        _judge_access(name, path, directory, examination)
    return [
        {
            "for": directory.purpose,
            "directory": str(directory.path),
            "exists": path == directory.path,
            "free": free,
            "size": size,
            "inodes_free": room.f_favail,
            "file_system": mount and mount._asdict(),
        }
        for directory, path in directories
    ]


def _judge_room(
    title: str,
    kind: str,
    free: int,
    size: int,
    directory: InstanceDirectory,
    examination: Examination,
) -> None:
    share = free / size if size else 0.0
    verdict = CheckVerdict.OK
    if share < _LOW_SHARE:
        verdict = CheckVerdict.LOOK
    if share < _VERY_LOW_SHARE or free < _MIN_FREE_FILES * directory.needed_bytes:
        verdict = CheckVerdict.WRONG if directory.is_durable else CheckVerdict.LOOK
    examination.add_finding(
        AREA,
        title,
        f"{size_text(free)} of {size_text(size)} free ({share:.0%}){kind}",
        verdict,
        "on a full disk publishes are refused, or logs and statistics stop",
        "make room; actions archive, compress and remove journals and logs",
    )


def _judge_kind(
    title: str, mount: _Mount | None, directory: InstanceDirectory, examination: Examination
) -> None:
    if mount is None:
        return
    if "ro" in mount.options.split(","):
        examination.add_wrong(
            AREA,
            f"{title}: mounted",
            f"{mount.kind}, read-only",
            "no file can be written there",
            f"mount {mount.point} for writing; after an error of the disk, replace that first",
        )
    elif directory.is_durable and mount.kind in _VOLATILE:
        examination.add_attention(
            AREA,
            f"{title}: type",
            mount.kind,
            "files there are in memory, and lost when the machine stops",
            "put it on a disk",
        )
    elif directory.is_durable and mount.kind in _REMOTE:
        examination.add_attention(
            AREA,
            f"{title}: type",
            f"{mount.kind} from {mount.source}",
            "each commit goes over the network, and locks of files may not be seen by other hosts",
            "put it on a disk of the machine",
        )
    elif directory.is_durable and mount.kind in _LAYERED:
        examination.add_attention(
            AREA,
            f"{title}: type",
            mount.kind,
            "that is the layer of a container, which is gone with the container",
            "mount a volume there",
        )


def _judge_access(
    title: str, existing_path: Path, directory: InstanceDirectory, examination: Examination
) -> None:
    if existing_path != directory.path:
        if directory.purpose == "logs":
            examination.add_wrong(
                AREA,
                f"{title}: exists",
                "no",
                "directories of logs are not made by the server, which does not start",
                f"mkdir -p {directory.path}",
            )
    elif not os.access(existing_path, os.R_OK | os.X_OK):
        examination.add_attention(
            AREA,
            f"{title}: may be read",
            f"not by this user ({os.geteuid()})",
            "its content has not been examined",
            "run amps-doctor as the user of the server, or as root",
        )


def _existing(path: Path) -> Path:
    """Return the directory, or its nearest ancestor that exists."""
    for candidate in (path, *path.parents):
        if os.path.isdir(candidate):
            return candidate
    return Path("/")


def _mounts(root: Path) -> list[_Mount]:
    """Return the mounted file systems; of several on one mount point, the last counts."""
    mounts = []
    try:
        lines = (root / "proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    for line in lines:
        source, point, kind, options, *_ = [*line.split(" "), "", "", ""]
        mounts.append(_Mount(_unescaped(point), kind, _unescaped(source), options))
    return mounts


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _mount_of(path: Path, mounts: Sequence[_Mount]) -> _Mount | None:
    real = os.path.realpath(path)
    closest = None
    for mount in mounts:
        holds = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if holds and (closest is None or len(mount.point) >= len(closest.point)):
            closest = mount
    return closest
