"""What is done to journal files beside writing and reading entries: new ones are made ready in
advance, full ones sealed and indexed, old ones archived, compressed and removed.

All of it runs on one thread, task by task; without `start` each task runs where it is asked for.
"""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from server.journal.batches import LiveFile
from server.journal.clients import ClientsCache, pack_clients
from server.journal.errors import Event, JournalError, JournalUnavailable, Notice, reason
from server.journal.files import FileTable, JournalFile, open_source
from server.journal.index import build_index, build_topic_index, pack_index, pack_topic_index
from server.journal.layout import Seal, pack_seal
from server.journal.naming import (
    COMPRESSED,
    INDEX,
    TOPIC_INDEX,
    UNFINISHED,
    clients_name,
    journal_name,
    sibling,
)
from server.journal.storage import Disk

_COPY: Final = 1 << 20
_SIDE_FILES: Final = (INDEX, TOPIC_INDEX)
Task = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of an instance are.

    Attributes:
        instance: its name.
        directory: of the files in use.
        archive: of files moved away, if there is such a directory.
        file_size: of new files, in bytes.
        with_topic_index: whether topic indexes are made.
    """

    instance: str
    directory: Path
    archive: Path | None
    file_size: int
    with_topic_index: bool


class Upkeep:
    """Looks after the files.

    Args:
        place: where they are.
        table: the files in use.
        ready: empty files for later, in order of their numbers.
        next_number: of the next file to be made.
        disk: how to get at them.
        clock: microseconds since the Unix epoch.
        notice: told of what does not work.
    """

    def __init__(
        self,
        place: Place,
        table: FileTable,
        ready: list[LiveFile],
        next_number: int,
        disk: Disk,
        clock: Callable[[], int],
        notice: Callable[[Notice], None],
    ) -> None:
        self._place = place
        self._table = table
        self._ready = deque(ready)
        self._next_number = next_number
        self._disk = disk
        self._clock = clock
        self._notice = notice
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._settled = {file.number for file in table.files if file.seal is not None}

    def start(self) -> None:
        """Do the work on a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="journal-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Do what has been asked for, and end the thread."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        while self._ready:
            self._disk.close(self._ready.popleft().descriptor)

    def later(self, task: Task) -> None:
        """Have something done; a system's refusal is reported, and costs nothing but the task."""
        if self._thread is None:
            self._attempt(task)
        else:
            self._tasks.put(task)

    def next_file(self) -> LiveFile:
        """An empty file, ready or made on the spot.

        Raises:
            JournalUnavailable: there is none, and none can be made.
        """
        try:
            file = self.take()
        except OSError as problem:
            raise JournalUnavailable(
                f"the transaction log has no space for another file: {reason(problem)}"
            ) from problem
        self.later(self.prepare)
        return file

    def take(self) -> LiveFile:
        """The next empty file; it is made if none is ready."""
        with self._lock:
            return self._ready.popleft() if self._ready else self._make()

    def prepare(self, count: int = 1) -> None:
        """Make files until `count` of them are ready."""
        while len(self._ready) < count:
            self._prepare_one()

    def _prepare_one(self) -> None:
        temporary = self._temporary(".new")
        self._disk.remove(temporary)
        descriptor = self._disk.reserve(temporary, self._place.file_size)
        try:
            self._disk.fill(descriptor, self._place.file_size)
            with self._lock:
                self._ready.append(self._put_in_place(temporary, descriptor))
        except OSError:
            self._disk.close(descriptor)
            self._disk.remove(temporary)
            raise

    def _make(self) -> LiveFile:
        """Reserve a file without filling it with zeros: there is no time for that now."""
        temporary = self._temporary(".urgent")
        self._disk.remove(temporary)
        descriptor = self._disk.reserve(temporary, self._place.file_size)
        try:
            self._disk.sync(descriptor)
            return self._put_in_place(temporary, descriptor)
        except OSError:
            self._disk.close(descriptor)
            self._disk.remove(temporary)
            raise

    def _put_in_place(self, temporary: Path, descriptor: int) -> LiveFile:
        """Give a file its number, now that it is as large as it should be. The lock is held."""
        number = self._next_number
        path = self._place.directory / journal_name(self._place.instance, number)
        self._disk.rename(temporary, path)
        self._next_number += 1
        return LiveFile(number, path, descriptor, self._place.file_size)

    def _temporary(self, what: str) -> Path:
        return self._place.directory / (clients_name(self._place.instance) + what + UNFINISHED)

    def seal(self, live: LiveFile, cache: ClientsCache) -> None:
        """Mark a file as full, make its indexes and store the table of publishers.

        Args:
            live: the file; all of it is on stable storage.
            cache: the table as it was when the file became full.
        """
        file = self._table.find(live.number)
        if file is not None and file.seal is not None:
            offset, block = pack_seal(file.seal)
            self._disk.write(live.descriptor, block, offset)
            self._disk.sync(live.descriptor)
            self._disk.close(live.descriptor)
            self.make_indexes(file, file.seal)
            self._settled.add(live.number)
        self.store_clients(cache)

    def complete(self, file: JournalFile, seal: Seal) -> None:
        """Do for a full file what an interrupted run has not done: seal it, make its indexes."""
        if file.path.suffix != ".gz":
            descriptor = self._disk.open(file.path, writable=True)
            try:
                offset, block = pack_seal(seal)
                self._disk.write(descriptor, block, offset)
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        self.make_indexes(file, seal)

    def is_indexed(self, file: JournalFile) -> bool:
        """Whether a full file has the indexes that are to be made."""
        kinds = _SIDE_FILES if self._place.with_topic_index else (INDEX,)
        return all(sibling(file.path, kind).exists() for kind in kinds)

    def make_indexes(self, file: JournalFile, seal: Seal) -> None:
        """Store the indexes of a full file."""
        source = open_source(file.path)
        index = build_index(source, file.number, file.first_txid, seal.count)
        self._disk.store(sibling(file.path, INDEX), pack_index(index))
        if self._place.with_topic_index:
            topics = build_topic_index(source, seal.count)
            data = pack_topic_index(seal.count, topics)
            self._disk.store(sibling(file.path, TOPIC_INDEX), data)

    def store_clients(self, cache: ClientsCache) -> None:
        """Store the table of publishers."""
        path = self._place.directory / clients_name(self._place.instance)
        self._disk.store(path, pack_clients(cache, self._clock()))

    def archive(self, number: int) -> None:
        """Move a full file and its indexes to the archive directory.

        Raises:
            JournalError: it cannot be moved; it is where it was.
        """
        archive = self._place.archive
        if archive is None:
            raise JournalError(
                "there is nowhere to archive journals to: "
                "the configuration has no JournalArchiveDirectory"
            )
        file = self._full_file(number)
        if file.path.parent == archive:
            return
        try:
            for path in (*self._side_files(file), file.path):
                self._copy(path, archive / path.name)
            self._table.update(number, path=archive / file.path.name)
            for path in (*self._side_files(file), file.path):
                self._disk.remove(path)
        except OSError as problem:
            raise JournalError(f"{file.path}: cannot be archived: {reason(problem)}") from problem

    def compress(self, number: int) -> None:
        """Replace a full file by its compressed form.

        Raises:
            JournalError: it cannot be compressed; it is what it was.
        """
        file = self._full_file(number)
        if file.path.suffix == ".gz":
            return
        target = sibling(file.path, COMPRESSED)
        temporary = target.with_name(target.name + UNFINISHED)
        try:
            with (
                file.path.open("rb") as original,
                temporary.open("wb") as raw,
                gzip.GzipFile("", "wb", 6, raw, 0) as packed,
            ):
                shutil.copyfileobj(original, packed, _COPY)
            self._settle(temporary, target)
            self._table.update(number, path=target)
            self._disk.remove(file.path)
        except OSError as problem:
            self._disk.remove(temporary)
            raise JournalError(f"{file.path}: cannot be compressed: {reason(problem)}") from problem

    def remove(self, number: int) -> None:
        """Remove the oldest file and its indexes.

        Raises:
            JournalError: it is not the oldest, or not full, or cannot be removed.
        """
        file = self._full_file(number)
        oldest = self._table.files[0]
        if oldest.number != number:
            raise JournalError(
                f"{file.path}: cannot be removed before {oldest.path.name}, which is older: "
                "the log must not have gaps"
            )
        self._table.drop(number)
        try:
            for path in (file.path, *self._side_files(file)):
                self._disk.remove(path)
        except OSError as problem:
            raise JournalError(f"{file.path}: cannot be removed: {reason(problem)}") from problem

    def _full_file(self, number: int) -> JournalFile:
        file = self._table.find(number)
        if file is None:
            raise JournalError(f"the log has no journal file with number {number}")
        if number not in self._settled:
            raise JournalError(f"{file.path}: is being written to; only full files can be touched")
        return file

    def _side_files(self, file: JournalFile) -> list[Path]:
        paths = [sibling(file.path, kind) for kind in _SIDE_FILES]
        return [path for path in paths if path.exists()]

    def _copy(self, path: Path, target: Path) -> None:
        temporary = target.with_name(target.name + UNFINISHED)
        try:
            shutil.copyfile(path, temporary)
            self._settle(temporary, target)
        except OSError:
            self._disk.remove(temporary)
            raise

    def _settle(self, temporary: Path, target: Path) -> None:
        descriptor = self._disk.open(temporary, writable=True)
        try:
            os.fsync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(temporary, target)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._attempt(task)

    def _attempt(self, task: Task) -> None:
        try:
            task()
        except OSError as problem:
            text = f"upkeep of the transaction log failed: {reason(problem)}"
            self._notice(Notice(Event.UPKEEP_FAILED, text))
