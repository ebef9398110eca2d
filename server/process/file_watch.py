"""Watches files, and calls back when the content of one has changed.

    inotify -> observer's thread --a watched name--> engine's thread, waits until it is quiet
                                 -> helper thread: resolves the path, hashes the content
                                 -> engine's thread: the content differs, so runs the callback

Editors and tools replace files instead of writing to them, so directories are watched. The same
goes for symbolic links: a path leads to another file when one of the links on its way changes, so
the directory of each link is watched, and the directory of its target. A report of the system is
only a hint to read the file again: a change is a change of the content, after no event has come for
a moment.

Reading may take long, for ever even if a network file system does not answer, so it is not done on
the engine's thread. A file that is not a regular file counts as missing: reading a pipe would
block.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from server.util.daemon_threads import DaemonThreadPool
from server.util.safe_open import open_regular

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

    from server.util.log_protocol import ServerLog

# An observer that is stopped while it dispatches an event logs an error, which the operator cannot
# do anything about: without a handler, it would go to standard error.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

_QUIET_SECONDS: Final = 0.2
_THREADS: Final = 4

_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a file up to which its content is hashed; above, size and mtime are compared."""
_CHUNK: Final = 1024 * 1024
_MAX_LINKS: Final = 40
"""Symbolic links followed on the way to a file; Linux has the same limit."""


class _WatchedName(NamedTuple):
    """A name in a directory that is watched.

    Attributes:
        directory: its path, without symbolic links.
        inode: of the directory, as another one may be created under its path; 0 if there is none.
        name: of a file or link in it.
        is_suffix: whether `name` is only the suffix of names.
    """

    directory: str
    inode: int
    name: str
    is_suffix: bool = False

    def concerns(self, name: str) -> bool:
        """Return whether a file of this name is watched."""
        return name.endswith(self.name) if self.is_suffix else name == self.name


class _FileState(NamedTuple):
    """The result of looking at a watched file or directory.

    Attributes:
        content: a digest of the content; None if there is no file that can be read.
        places: the names that this result depends on.
        odd: the paths that are not regular files, each with the reason.
    """

    content: bytes | None
    places: frozenset[_WatchedName]
    odd: frozenset[tuple[str, str]]


@dataclass(eq=False, slots=True)
class _Watch:
    """A watched file, or the watched files of a directory.

    Attributes:
        path: the file, or the directory.
        suffix: of the names of the files of a directory that are watched; empty for a file.
        with_mode: whether a change of its permissions counts as well.
        told: called on changes.
        seen: the last result.
        timer: runs until no event has come for a moment.
        is_looked_at: whether a thread is reading it.
    """

    path: Path
    suffix: str
    with_mode: bool
    told: Callable[[str], None]
    seen: _FileState
    timer: asyncio.TimerHandle | None = None
    is_looked_at: bool = False


class FileWatch:
    """Watches files.

    Args:
        log: gets an entry for files that cannot be watched.
    """

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._observer: BaseObserver | None = None
        self._threads = DaemonThreadPool(_THREADS, "file watch")
        self._watches: list[_Watch] = []
        self._observed: dict[tuple[str, int], _DirectoryWatch] = {}  # by directory and inode

    def watch(
        self, path: Path, told: Callable[[str], None], *, with_mode: bool = False
    ) -> Callable[[], None]:
        """Watch a file.

        Args:
            path: the file, which need not exist.
            told: called on the event loop with `created`, `modified` or `deleted`.
            with_mode: whether a change of its permissions counts as a modification, too.

        Returns:
            A function that ends the watch.
        """
        return self._begin(path.absolute(), "", with_mode, told)

    def watch_all(
        self, directory: Path, suffix: str, told: Callable[[str], None]
    ) -> Callable[[], None]:
        """Watch all files with a suffix in a directory.

        Args:
            directory: the directory.
            suffix: the suffix.
            told: called on the event loop when one of them is created, has changed or is deleted.

        Returns:
            A function that ends the watch.
        """
        return self._begin(directory.absolute(), suffix, False, told)

    def _begin(
        self, path: Path, suffix: str, with_mode: bool, told: Callable[[str], None]
    ) -> Callable[[], None]:
        watch = _Watch(path, suffix, with_mode, told, _look_at(path, suffix, with_mode))
        self._watches.append(watch)
        self._observe()
        self._say_what_is_odd(watch.seen.odd)

        def end() -> None:
            if watch in self._watches:
                self._watches.remove(watch)
            if watch.timer is not None:
                watch.timer.cancel()

        return end

    def close(self) -> None:
        """End all watches."""
        for watch in self._watches:
            if watch.timer is not None:
                watch.timer.cancel()
        self._watches.clear()
        self._threads.shutdown()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _observe(self) -> bool:
        """Observe the directories that matter now. Return whether there are new ones."""
        wanted: dict[tuple[str, int], set[_WatchedName]] = {}
        for watch in self._watches:
            for place in watch.seen.places:
                wanted.setdefault((place.directory, place.inode), set()).add(place)
        for key, observed in list(self._observed.items()):
            if key not in wanted or observed.handler.is_over:
                self._forget(self._observed.pop(key))
        for key in wanted.keys() & self._observed.keys():
            self._observed[key].handler.places = frozenset(wanted[key])
        new = wanted.keys() - self._observed.keys()
        for key in new:
            self._observed[key] = self._schedule(key[0], frozenset(wanted[key]))
        return bool(new)

    def _schedule(self, directory: str, places: frozenset[_WatchedName]) -> _DirectoryWatch:
        loop = asyncio.get_running_loop()
        handler = _EventForwarder(loop, directory, places, partial(self._look_soon, directory))
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.daemon = True
                self._observer.start()
            return _DirectoryWatch(handler, self._observer.schedule(handler, directory))
        except OSError as error:
            self._log.emit("00-0041", path=directory, reason=error.strerror or error)
            return _DirectoryWatch(handler, None)

    def _forget(self, observed: _DirectoryWatch) -> None:
        if self._observer is not None and observed.watch is not None:
            with suppress(KeyError):  # the directory is gone
                self._observer.unschedule(observed.watch)

    def _look_soon(self, directory: str, names: Iterable[str]) -> None:
        """Schedule a look at the watches that changed names of a directory concern."""
        for watch in self._watches:
            places = (place for place in watch.seen.places if place.directory == directory)
            if any(place.concerns(name) for place in places for name in names):
                self._wait_for_quiet(watch)

    def _wait_for_quiet(self, watch: _Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()
        watch.timer = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._look, watch)

    def _look(self, watch: _Watch) -> None:
        watch.timer = None
        if watch.is_looked_at:
            self._wait_for_quiet(watch)
            return
        watch.is_looked_at = True
        loop = asyncio.get_running_loop()

        def work() -> None:
            seen = _look_at(watch.path, watch.suffix, watch.with_mode)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._compare, watch, seen)

        self._threads.submit(work)

    def _compare(self, watch: _Watch, seen: _FileState) -> None:
        watch.is_looked_at = False
        if watch not in self._watches:
            return
        before, watch.seen = watch.seen, seen
        if self._observe():
            self._wait_for_quiet(watch)  # for changes made before the new directory was observed
        self._say_what_is_odd(seen.odd - before.odd)
        if before.content == seen.content:
            return
        if seen.content is None:
            watch.told("deleted")
        else:
            watch.told("created" if before.content is None else "modified")

    def _say_what_is_odd(self, odd: Iterable[tuple[str, str]]) -> None:
        for path, reason in sorted(odd):
            self._log.emit("00-0045", path=path, reason=reason)


class _EventForwarder(FileSystemEventHandler):
    """Forwards the observer's events from its thread to the event loop.

    Attributes:
        places: the watched names in the directory.
        is_over: whether the directory is deleted; another one may get its path, even its inode.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: str,
        places: frozenset[_WatchedName],
        look: Callable[[list[str]], None],
    ) -> None:
        self.places = places
        self.is_over = False
        self._loop = loop
        self._directory = directory
        self._look = look

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Forward an event in the directory if it concerns a watched name."""
        if event.event_type in ("opened", "closed_no_write"):  # our own reads
            return
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.event_type == "deleted" and paths == [self._directory]:
            self.is_over = True
            names = [place.name for place in self.places]
        else:
            names = [os.path.basename(path) for path in paths]
        if any(place.concerns(name) for place in self.places for name in names):
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._look, names)


class _DirectoryWatch(NamedTuple):
    """An observed directory; `watch` is None if it cannot be observed."""

    handler: _EventForwarder
    watch: ObservedWatch | None


def _look_at(path: Path, suffix: str, with_mode: bool) -> _FileState:
    """Read a watched file, or the watched files of a directory."""
    odd: set[tuple[str, str]] = set()
    places = set(_way_to(path))
    if not suffix:
        return _FileState(_content(path, with_mode, odd), frozenset(places), frozenset(odd))
    real = os.path.realpath(path)
    if inode := _inode(real):
        places.add(_WatchedName(real, inode, suffix, is_suffix=True))
    found = []
    for one in sorted(path.glob(f"*{suffix}")):
        places.update(_way_to(one))
        found.append((one.name, _content(one, with_mode, odd)))
    return _FileState(repr(found).encode(), frozenset(places), frozenset(odd))


def _content(path: Path, with_mode: bool, odd: set[tuple[str, str]]) -> bytes | None:
    """Return a digest of the content of a file; None if it cannot be read.

    Args:
        path: the file.
        with_mode: whether its permissions count as well.
        odd: gets the path and the reason if it is not a regular file.
    """
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            mode = b"%o " % found.st_mode if with_mode else b""
            if found.st_size > _MAX_BYTES:
                return mode + repr((found.st_size, found.st_mtime_ns, found.st_ino)).encode()
            digest = hashlib.sha256()
            for _ in range(0, _MAX_BYTES, _CHUNK):  # bounded: the file may grow while it is read
                digest.update(file.read(_CHUNK))
            return mode + digest.digest()
    except OSError as error:
        if path.exists() and not path.is_file():
            odd.add((str(path), error.strerror or str(error)))
        return None


def _way_to(path: Path) -> Iterable[_WatchedName]:
    """Yield the symbolic links on the way to a file, then its own place or the missing one."""
    at = "/"
    rest = list(reversed(path.parts[1:]))
    links = 0
    while rest and links <= _MAX_LINKS:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            target = Path(os.readlink(here))
        except OSError:  # not a link
            if not rest or not os.path.isdir(here):
                yield _WatchedName(at, _inode(at), name)
                return
            at = here
            continue
        yield _WatchedName(at, _inode(at), name)
        links += 1
        at = "/" if target.is_absolute() else at
        rest += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _inode(directory: str) -> int:
    try:
        return os.stat(directory).st_ino
    except OSError:
        return 0
