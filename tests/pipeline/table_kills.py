"""Ends what changes a table at each of its steps, one after the other."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.forked import context

_KILLED = 9


def killed_at(step: int, change: Callable[[Path], None], table: Path) -> bool:
    """Change a table in a process that is gone at its so-manieth step; whether it came so far."""
    pid = os.fork()
    if pid == 0:
        _change(step, change, table)
    return _was_killed(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def killed_elsewhere_at(step: int, change: Callable[[Path], None], table: Path) -> bool:
    """The same for what cannot be done in a process that has been forked from this one."""
    process = context().Process(target=_change, args=(step, change, table))
    process.start()
    process.join()
    assert process.exitcode is not None
    return _was_killed(process.exitcode)


def _was_killed(status: int) -> bool:
    assert status in (0, _KILLED)
    return status == _KILLED


def _change(step: int, change: Callable[[Path], None], table: Path) -> None:
    count = itertools.count(1)

    def end(event: str, _: object) -> None:
        what = event.startswith(("os.", "shutil.", "open", "ctypes.")) and event != "os.fork"
        if what and next(count) == step:
            os._exit(_KILLED)

    sys.addaudithook(end)
    try:
        change(table)
    except BaseException:
        os._exit(1)
    os._exit(0)
