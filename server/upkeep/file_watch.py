"""Tells when the content of a file has changed, as told by the operating system.

Editors and tools do not write files, they put new ones in their place: so it is directories that
are watched. What the system reports is no more than a hint to look: a change is a change of the
content, once things have been quiet for a moment.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

    from server.base.log import Log

# An observer that is stopped while it hands on an event complains, and nobody can do anything about
# it: without a handler, that would go to standard error.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

_QUIET_SECONDS: Final = 0.2

_LINK_TO_ALL: Final = "..data"
"""In Kubernetes the files of a volume are links through this one, which alone is replaced."""


@dataclass(eq=False, slots=True)
class _Watch:
    path: Path
    told: Callable[[str], None]
    content: bytes | None
    timer: asyncio.TimerHandle | None = None


class FileWatch:
    """Watches files.

    Args:
        log: told of files that cannot be watched.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, list[_Watch]] = {}  # by directory
        self._names: dict[Path, set[str]] = {}  # of files that matter, by directory

    def watch(self, path: Path, told: Callable[[str], None]) -> Callable[[], None]:
        """Watch a file.

        Args:
            path: the file, which need not be there; its directory must be.
            told: called on the event loop with `created`, `modified` or `deleted`.

        Returns:
            A function that ends it.
        """
        absolute = path.absolute()
        watch = _Watch(absolute, told, _digest(absolute))
        watches = self._watches.setdefault(absolute.parent, [])
        watches.append(watch)
        self._names.setdefault(absolute.parent, {_LINK_TO_ALL}).add(absolute.name)
        if len(watches) == 1:
            self._observe(absolute.parent)

        def end() -> None:
            if watch in watches:
                watches.remove(watch)
            if watch.timer is not None:
                watch.timer.cancel()

        return end

    def close(self) -> None:
        """Watch no more."""
        for watches in self._watches.values():
            for watch in watches:
                if watch.timer is not None:
                    watch.timer.cancel()
        self._watches.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _observe(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        handler = _Forward(loop, self._names[directory], lambda: self._look_soon(directory))
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.daemon = True
                self._observer.start()
            self._observer.schedule(handler, str(directory))
        except OSError as error:
            self._log.emit("00-0041", path=directory, reason=error.strerror or error)

    def _look_soon(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        for watch in self._watches.get(directory, ()):
            if watch.timer is not None:
                watch.timer.cancel()
            watch.timer = loop.call_later(_QUIET_SECONDS, self._look, watch)

    def _look(self, watch: _Watch) -> None:
        watch.timer = None
        before, watch.content = watch.content, _digest(watch.path)
        if before == watch.content:
            return
        if watch.content is None:
            watch.told("deleted")
        else:
            watch.told("created" if before is None else "modified")


class _Forward(FileSystemEventHandler):
    """Takes the observer's events, on its thread, to the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, names: set[str], look: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._names = names
        self._look = look

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Something happened in the directory."""
        if event.event_type in ("opened", "closed_no_write"):  # that is us, looking
            return
        concerned = {os.path.basename(os.fsdecode(event.src_path))}
        concerned.add(os.path.basename(os.fsdecode(event.dest_path or "")))
        if not self._names.isdisjoint(concerned) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look)


def _digest(path: Path) -> bytes | None:
    """What stands for the content of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
