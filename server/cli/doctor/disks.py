"""Checks of the file systems that an instance writes to: free space, type and access."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from server.admin.diagnosis.directories import InstanceDirectory
from server.admin.diagnosis.file_checks import DISKS, by_file_system, check_free_space
from server.cli.doctor.findings import Examination
from server.cli.doctor.machine import ROOT

AREA: Final = DISKS

_FEW_INODES: Final = 0.05

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
    examination.facts[AREA] = [
        fact
        for on_disk in by_file_system(directories)
        for fact in _examine_disk(on_disk, mounts, examination)
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
    is_durable = any(directory.is_durable for directory, _ in directories)
    kind = "" if mount is None else mount.kind
    examination.findings.append(check_free_space(directories, room, kind))
    if room.f_files and room.f_favail / room.f_files < _FEW_INODES:
        examination.add_attention(
            AREA,
            f"{title}: inodes",
            f"{room.f_favail:,} of {room.f_files:,} free",
            "without one, no file can be made, however much room there is",
            "remove small files from that file system",
        )
    _judge_kind(title, mount, examination, is_durable=is_durable)
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


def _judge_kind(
    title: str, mount: _Mount | None, examination: Examination, *, is_durable: bool
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
    elif is_durable and mount.kind in _VOLATILE:
        examination.add_attention(
            AREA,
            f"{title}: type",
            mount.kind,
            "files there are in memory, and lost when the machine stops",
            "put it on a disk",
        )
    elif is_durable and mount.kind in _REMOTE:
        examination.add_attention(
            AREA,
            f"{title}: type",
            f"{mount.kind} from {mount.source}",
            "each commit goes over the network, and locks of files may not be seen by other hosts",
            "put it on a disk of the machine",
        )
    elif is_durable and mount.kind in _LAYERED:
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
