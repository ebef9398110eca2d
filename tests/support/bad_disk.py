"""A disk that fails now and then: syncs of chosen files fail while a test wants them to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from server.storage.journal import Disk as JournalDisk
from server.storage.sow.group_commit import SowCommitter
from tests.support.stepped_disk import commit_in_steps


@dataclass(frozen=True)
class BadDisk:
    """Prepares a server's process; see `running_server`.

    Attributes:
        switch: a file that has the end of the names of the files concerned, while syncs fail.
    """

    switch: Path

    def __call__(self) -> None:
        """Let syncs of this process fail when they are to."""
        JournalDisk.commit = commit_in_steps  # type: ignore[method-assign]  # by the calls replaced below
        good = os.fdatasync
        os.fsync, os.fdatasync = self._failing(os.fsync), self._failing(good)  # type: ignore[assignment]  # of the same signature but for names
        # Where it has been looked up already:
        defaults = SowCommitter.__init__.__defaults__ or ()
        SowCommitter.__init__.__defaults__ = tuple(
            os.fdatasync if value is good else value for value in defaults
        )

    def break_down(self, file_name: str) -> None:
        """Let syncs of files with such a name fail from now on."""
        self.switch.write_text(file_name)

    def recover(self) -> None:
        """Let syncs succeed again."""
        self.switch.unlink()

    def _failing(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def sync_or_fail(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self.switch.exists() and path.endswith(self.switch.read_text()):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        return sync_or_fail
