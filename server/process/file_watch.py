"""Watches files, and calls back when the content of one has changed.

    inotify -> observer's thread --a watched name--> engine's thread, waits until it is quiet
                                 -> helper thread: resolves the path, hashes the content
                                 -> engine's thread: the content differs, so runs the callback

Editors and tools replace files instead of writing to them, so directories are watched. The same
goes for symbolic links: a path leads to another file when one of the links on its way changes, so
the directory of each link is watched, and the directory of its target. A report of the system is
only a hint to read the file again: a change is a change of the content, after no event has come for
a moment.

Reading may take long, without end if a network file system does not answer, so it is not done on
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

from watchdog import events
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

_CHANGES: Final[list[type[FileSystemEvent]]] = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type)
    and issubclass(kind, FileSystemEvent)
    and kind.event_type not in (events.EVENT_TYPE_OPENED, events.EVENT_TYPE_CLOSED_NO_WRITE)
]
"""The events observed: not those of files that are only read, by this or by another program."""

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

    def matches(self, name: str) -> bool:
        """Return whether a file of this name is watched."""
        return name.endswith(self.name) if self.is_suffix else name == self.name


class _FileState(NamedTuple):
    """The state of a watched file or directory when it was read.

    Attributes:
        content: a digest of the content; None if there is no file that can be read.
        watched_names: the names that this result depends on.
        irregular_paths: the paths that are not regular files, each with the reason.
    """

    content: bytes | None
    watched_names: frozenset[_WatchedName]
    irregular_paths: frozenset[tuple[str, str]]


@dataclass(eq=False, slots=True)
class _Watch:
    """A watched file, or the watched files of a directory.

    Attributes:
        path: the file, or the directory.
        suffix: of the names of the files of a directory that are watched; empty for a file.
        includes_mode: whether a change of its permissions counts as well.
        on_change: called on changes.
        state: the last result.
        timer: runs until no event has come for a moment.
        is_being_checked: whether a thread is reading it.
    """

    path: Path
    suffix: str
    includes_mode: bool
    on_change: Callable[[str], None]
    state: _FileState
    timer: asyncio.TimerHandle | None = None
    is_being_checked: bool = False


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
        # By directory and inode.
        self._directory_watches: dict[tuple[str, int], _DirectoryWatch] = {}

    def watch(
        self, path: Path, on_event: Callable[[str], None], *, with_mode: bool = False
    ) -> Callable[[], None]:
        """Watch a file.

        Args:
            path: the file, which need not exist.
            on_event: called on the event loop with `created`, `modified` or `deleted`.
            with_mode: whether a change of its permissions counts as a modification, too.

        Returns:
            A function that ends the watch.
        """
        return self._add_watch(path.absolute(), "", with_mode, on_event)

    def watch_all(
        self, directory: Path, suffix: str, on_event: Callable[[str], None]
    ) -> Callable[[], None]:
        """Watch all files with a suffix in a directory.

        Args:
            directory: the directory.
            suffix: the suffix.
            on_event: called on the event loop when one is created, has changed or is deleted.

        Returns:
            A function that ends the watch.
        """
        return self._add_watch(directory.absolute(), suffix, False, on_event)

    def _add_watch(
        self, path: Path, suffix: str, with_mode: bool, on_event: Callable[[str], None]
    ) -> Callable[[], None]:
        watch = _Watch(path, suffix, with_mode, on_event, _read_state(path, suffix, with_mode))
        self._watches.append(watch)
        self._update_observers()
        self._log_irregular_paths(watch.state.irregular_paths)

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

    def _update_observers(self) -> bool:
        """Observe the directories that matter now. Return whether there are new ones."""
        watched_names: dict[tuple[str, int], set[_WatchedName]] = {}
        for watch in self._watches:
            for watched_name in watch.state.watched_names:
                watched_names.setdefault((watched_name.directory, watched_name.inode), set()).add(
                    watched_name
                )
        for key, observed in list(self._directory_watches.items()):
            if key not in watched_names or observed.handler.is_directory_deleted:
                self._unobserve_directory(self._directory_watches.pop(key))
        for key in watched_names.keys() & self._directory_watches.keys():
            self._directory_watches[key].handler.watched_names = frozenset(watched_names[key])
        new = watched_names.keys() - self._directory_watches.keys()
        for key in new:
            self._directory_watches[key] = self._observe_directory(
                key[0], frozenset(watched_names[key])
            )
        return bool(new)

    def _observe_directory(
        self, directory: str, watched_names: frozenset[_WatchedName]
    ) -> _DirectoryWatch:
        loop = asyncio.get_running_loop()
        handler = _EventForwarder(
            loop, directory, watched_names, partial(self._on_names_changed, directory)
        )
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.daemon = True
                self._observer.start()
            watch = self._observer.schedule(handler, directory, event_filter=_CHANGES)
            return _DirectoryWatch(handler, watch)
        except OSError as error:
            self._log.emit("00-0041", path=directory, reason=error.strerror or error)
            return _DirectoryWatch(handler, None)

    def _unobserve_directory(self, observed: _DirectoryWatch) -> None:
        if self._observer is not None and observed.watch is not None:
            with suppress(KeyError):  # the directory is removed
                self._observer.unschedule(observed.watch)

    def _on_names_changed(self, directory: str, names: Iterable[str]) -> None:
        """Schedule a look at the watches that changed names of a directory concern."""
        for watch in self._watches:
            watched_names = (
                watched_name
                for watched_name in watch.state.watched_names
                if watched_name.directory == directory
            )
            if any(watched_name.matches(name) for watched_name in watched_names for name in names):
                self._debounce(watch)

    def _debounce(self, watch: _Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()
        watch.timer = asyncio.get_running_loop().call_later(
            _QUIET_SECONDS, self._check_watch, watch
        )

    def _check_watch(self, watch: _Watch) -> None:
        watch.timer = None
        if watch.is_being_checked:
            self._debounce(watch)
            return
        watch.is_being_checked = True
        loop = asyncio.get_running_loop()

        def work() -> None:
            state = _read_state(watch.path, watch.suffix, watch.includes_mode)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._apply_state, watch, state)

        self._threads.submit(work)

    def _apply_state(self, watch: _Watch, state: _FileState) -> None:
        watch.is_being_checked = False
        if watch not in self._watches:
            return
        before, watch.state = watch.state, state
        if self._update_observers():
            self._debounce(watch)  # for changes made before the new directory was observed
        self._log_irregular_paths(state.irregular_paths - before.irregular_paths)
        if before.content == state.content:
            return
        if state.content is None:
            watch.on_change("deleted")
        else:
            watch.on_change("created" if before.content is None else "modified")

    def _log_irregular_paths(self, irregular_paths: Iterable[tuple[str, str]]) -> None:
        for path, reason in sorted(irregular_paths):
            self._log.emit("00-0045", path=path, reason=reason)


class _EventForwarder(FileSystemEventHandler):
    """Forwards the observer's events from its thread to the event loop.

    Attributes:
        watched_names: the watched names in the directory.
        is_directory_deleted: whether the directory is deleted; another one may get its path, even
            its inode.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: str,
        watched_names: frozenset[_WatchedName],
        on_names_changed: Callable[[list[str]], None],
    ) -> None:
        self.watched_names = watched_names
        self.is_directory_deleted = False
        self._loop = loop
        self._directory = directory
        self._on_names_changed = on_names_changed

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Forward an event in the directory if it concerns a watched name."""
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.event_type == "deleted" and paths == [self._directory]:
            self.is_directory_deleted = True
            names = [watched_name.name for watched_name in self.watched_names]
        else:
            names = [os.path.basename(path) for path in paths]
        if any(watched_name.matches(name) for watched_name in self.watched_names for name in names):
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_names_changed, names)


class _DirectoryWatch(NamedTuple):
    """An observed directory; `watch` is None if it cannot be observed."""

    handler: _EventForwarder
    watch: ObservedWatch | None


def _read_state(path: Path, suffix: str, with_mode: bool) -> _FileState:
    """Read a watched file, or the watched files of a directory."""
    irregular_paths: set[tuple[str, str]] = set()
    watched_names = set(_names_on_path(path))
    if not suffix:
        return _FileState(
            _content(path, with_mode, irregular_paths),
            frozenset(watched_names),
            frozenset(irregular_paths),
        )
    real = os.path.realpath(path)
    if inode := _inode(real):
        watched_names.add(_WatchedName(real, inode, suffix, is_suffix=True))
    files = []
    for file in sorted(path.glob(f"*{suffix}")):
        watched_names.update(_names_on_path(file))
        files.append((file.name, _content(file, with_mode, irregular_paths)))
    return _FileState(repr(files).encode(), frozenset(watched_names), frozenset(irregular_paths))


def _content(path: Path, with_mode: bool, irregular_paths: set[tuple[str, str]]) -> bytes | None:
    """Return a digest of the content of a file; None if it cannot be read.

    Args:
        path: the file.
        with_mode: whether its permissions count as well.
        irregular_paths: gets the path and the reason if it is not a regular file.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            mode = b"%o " % status.st_mode if with_mode else b""
            if status.st_size > _MAX_BYTES:
                return mode + repr((status.st_size, status.st_mtime_ns, status.st_ino)).encode()
            digest = hashlib.sha256()
            for _ in range(0, _MAX_BYTES, _CHUNK):  # bounded: the file may grow while it is read
                digest.update(file.read(_CHUNK))
            return mode + digest.digest()
    except OSError as error:
        if path.exists() and not path.is_file():
            irregular_paths.add((str(path), error.strerror or str(error)))
        return None


def _names_on_path(path: Path) -> Iterable[_WatchedName]:
    """Yield the symbolic links on the way to a file, then its own place or the missing one."""
    at = "/"
    components = list(reversed(path.parts[1:]))
    links = 0
    while components and links <= _MAX_LINKS:
        name = components.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        component = os.path.join(at, name)
        try:
            target = Path(os.readlink(component))
        except OSError:  # not a link
            if not components or not os.path.isdir(component):
                yield _WatchedName(at, _inode(at), name)
                return
            at = component
            continue
        yield _WatchedName(at, _inode(at), name)
        links += 1
        at = "/" if target.is_absolute() else at
        components += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _inode(directory: str) -> int:
    try:
        return os.stat(directory).st_ino
    except OSError:
        return 0
