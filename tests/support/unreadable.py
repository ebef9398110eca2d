"""Journals that cannot be opened or read while a test wants that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.storage.journal import storage


@dataclass(frozen=True)
class Trouble:
    """Prepares a process: reading journals fails as long as there is a file of a name.

    Attributes:
        sign: the file; it has the name of the call that fails, and the number of the error.
    """

    sign: Path

    def __call__(self) -> None:
        """Watch the calls of this process from now on."""
        pread, open_ = os.pread, os.open

        def check(call: str, name: str) -> None:
            if name.endswith(".journal") and self.sign.exists():
                which, _, number = self.sign.read_text().partition(" ")
                if which == call:
                    raise OSError(int(number), os.strerror(int(number)), name)

        def read(descriptor: int, length: int, offset: int) -> bytes:
            check("read", os.readlink(f"/proc/self/fd/{descriptor}"))
            return pread(descriptor, length, offset)

        def open_file(path: Any, flags: int, *rest: Any, **further: Any) -> int:
            if flags & os.O_ACCMODE == os.O_RDONLY:
                check("open", os.fspath(path) if isinstance(path, os.PathLike | str) else "")
            return open_(path, flags, *rest, **further)

        os.pread, os.open = read, open_file
        # What the system has in memory is read without Python's knowledge: it has nothing there.
        vars(storage)["read_in_memory"] = lambda *_: None
