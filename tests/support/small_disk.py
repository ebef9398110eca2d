"""A file system of a few megabytes, which a server can fill up.

It is mounted for the server alone, in a name space of its own, which needs no privileges on most
systems. Where that is forbidden, the server's call for space is refused instead.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NAMESPACES: Final = ("user", "mnt")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class SmallDisk:
    """A disk that is small, or what stands in for it.

    Attributes:
        mount_point: where the server sees it.
        size: in bytes.
        holder: the process that keeps the name space; None where there is no such disk.
    """

    mount_point: Path
    size: int
    holder: int | None

    def __call__(self) -> None:
        """Let this process, which is going to be a server, have the disk."""
        if self.holder is None:
            self._stand_in()
            return
        directory = Path.cwd()
        for name in _NAMESPACES:
            descriptor = os.open(f"/proc/{self.holder}/ns/{name}", os.O_RDONLY)
            if _LIBC.setns(descriptor, 0):
                raise OSError(ctypes.get_errno(), f"cannot enter the {name} name space")
            os.close(descriptor)
        os.chdir(directory)  # the same path; who enters a name space finds himself in its root

    def _stand_in(self) -> None:
        allocate = os.posix_fallocate

        def allocate_if_there_is_space(descriptor: int, offset: int, length: int) -> None:
            on_disk = os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(self.mount_point))
            if on_disk and (self._ballast.exists() or offset + length > self.size):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            allocate(descriptor, offset, length)

        os.posix_fallocate = allocate_if_there_is_space

    def fill(self) -> None:
        """Leave no space for anything new.

        The server may be taking space at the same time, for a file that it makes in advance. What
        was free a moment ago is then too much to ask for.
        """
        with self._ballast.open("wb") as ballast:
            while self.holder is not None and (room := self._room()):
                with suppress_full():
                    os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), room)

    def make_space(self) -> None:
        """Undo `fill`."""
        self._ballast.unlink()

    def _room(self) -> int:
        """The bytes that are free."""
        disk = os.statvfs(self._ballast.parent)
        return disk.f_bavail * disk.f_frsize

    @property
    def root(self) -> Path:
        """Where tests see it."""
        root = Path("/" if self.holder is None else f"/proc/{self.holder}/root")
        return root / self.mount_point.relative_to("/")

    @property
    def _ballast(self) -> Path:
        return self.root / "ballast"


@contextmanager
def suppress_full() -> Iterator[None]:
    """Go on when there is no space left."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def small_disk(mount_point: Path, megabytes: int, options: str = "") -> Iterator[SmallDisk]:
    """A disk, gone in the end.

    Args:
        mount_point: an empty directory.
        megabytes: its size.
        options: of the mount, each with a leading comma.
    """
    mount = f"mount -t tmpfs -o size={megabytes}m{options} none '{mount_point}'"
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{mount} && echo && cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdout is not None
    try:
        mounted = holder.stdout.readline() == b"\n"
        yield SmallDisk(mount_point, megabytes << 20, holder.pid if mounted else None)
    finally:
        holder.kill()
        holder.communicate()
