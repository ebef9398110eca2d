"""Minidumps: the state of a process as a text, for the diagnosis of a problem.

A minidump holds the stack of every thread, the place where each task waits, and the sizes of
all structures that grow; it contains no message. `server/cli/minidumps/` reads it back.
Source: AMPS User Guide, Create Minidump; Instance-Level Configuration (MiniDumpDirectory).
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from config_schema.version import AMPS_VERSION, VERSION

_MAX_TYPES_SHOWN: Final = 40
_MAX_TASKS_SHOWN: Final = 100

END: Final = "end of the minidump, checksum "
"""The beginning of the last line, before the CRC-32 of everything above it."""


MinidumpTable: TypeAlias = tuple[str, Iterable[tuple[str, int]]]
"""A title, and lines with a name and a number."""


def write_minidump(
    directory: str,
    mask: int,
    instance: str,
    state: Mapping[str, int],
    tasks: Iterable[asyncio.Task[Any]] = (),
    sizes: Iterable[MinidumpTable] = (),
) -> Path:
    """Write a minidump.

    Args:
        directory: the directory; it is made if it does not exist.
        mask: the permissions of the file.
        instance: the instance's name, for the name of the file.
        state: counts of the instance's objects.
        tasks: the tasks of the engine's event loop.
        sizes: the sizes of its structures when they were last sampled.

    Returns:
        The file.

    Raises:
        OSError: it cannot be written.

    Source: AMPS User Guide, Instance-Level Configuration (MiniDumpDirectory).
    """
    now = datetime.now(UTC)
    name = f"{name_prefix(instance)}{now:%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.txt"
    path = Path(directory).absolute() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join([*_lines(now, instance, state, tasks, sizes), "", ""])
    text = lines.encode("utf-8", "backslashreplace")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mask)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mask)  # regardless of the umask
        file.write(text)
        file.write(f"{END}{zlib.crc32(text):08x}\n".encode("ascii"))
    return path


def name_prefix(instance: str) -> str:
    """Return the beginning of the names of an instance's minidumps; a date follows."""
    safe = "".join(
        character if character.isalnum() or character in "-_." else "_" for character in instance
    )
    return f"minidump-{safe}-"


def _lines(
    now: datetime,
    instance: str,
    state: Mapping[str, int],
    tasks: Iterable[asyncio.Task[Any]],
    sizes: Iterable[MinidumpTable],
) -> Iterator[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield f"Amperage {VERSION} (AMPS {AMPS_VERSION}), instance {instance}"
    yield f"time {now:%Y-%m-%dT%H:%M:%S.%fZ}, process {os.getpid()}, Python {sys.version}"
    yield f"processor seconds {usage.ru_utime:.3f} user, {usage.ru_stime:.3f} system"
    yield f"largest resident size {usage.ru_maxrss} KiB, monotonic clock {time.monotonic():.3f}"
    yield from _table("state", state.items())
    for title, rows in sizes:
        yield from _table(title, rows)
    yield from _waiting_tasks(tasks)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way
        yield f"\nthread {ident} ({names.get(ident, 'unknown')}), outermost call first"
        yield from (line.rstrip() for line in traceback.format_stack(frame))
    for number, counts in enumerate(gc.get_stats()):
        yield from _table(f"garbage collection, generation {number}", counts.items())
    yield f"\nobjects set aside, which are not among the following: {gc.get_freeze_count():,}"
    kinds = Counter(type(item).__qualname__ for item in gc.get_objects())
    yield from _table("objects that the collector tracks", kinds.most_common(_MAX_TYPES_SHOWN))


def _waiting_tasks(tasks: Iterable[asyncio.Task[Any]]) -> Iterator[str]:
    """Yield the places where tasks wait, with the number of tasks at each."""
    stacks = Counter(map(_task_location, tasks))
    yield f"\ntasks: {stacks.total():,}"
    for stack, count in stacks.most_common(_MAX_TASKS_SHOWN):
        yield f"  {count:>8,} {stack}"


def _task_location(task: asyncio.Task[Any]) -> str:
    name = getattr(task.get_coro(), "__qualname__", "unknown")
    frames = task.get_stack(limit=1)
    if not frames:
        return f"{name}, ended"
    return f"{name}, {Path(frames[0].f_code.co_filename).name}:{frames[0].f_lineno}"


def _table(title: str, rows: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"\n{title}"
    yield from (f"  {name:40} {count:>14,}" for name, count in rows)
