"""What is done to journal files beside writing and reading entries: new ones are made ready in
advance, full ones sealed and indexed. What becomes of old ones is in filing.py.

All of it runs on one thread, task by task; without `start` each task runs where it is asked for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from server.journal.batches import LiveFile
from server.journal.clients import ClientsCache, pack_clients
from server.journal.errors import Event, JournalUnavailable, Notice, reason
from server.journal.files import FileTable, JournalFile, open_source
from server.journal.filing import Filing
from server.journal.index import build_index, build_topic_index, pack_index, pack_topic_index
from server.journal.layout import Seal, pack_seal
from server.journal.naming import (
    INDEX,
    INDEXES,
    TOPIC_INDEX,
    clients_name,
    journal_name,
    preparing_name,
    sibling,
)
from server.journal.storage import Disk

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
        stored_to: the txid up to which the stored table of publishers is true.
        take_note: notes down what is in a file that is to be removed.

    Attributes:
        stored_to: the same, as it is now.
        filing: archives, compresses and removes full files.
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
        stored_to: int,
        take_note: Callable[[JournalFile], None],
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
        self.stored_to = stored_to
        self.filing = Filing(
            place.instance,
            place.directory,
            place.archive,
            table,
            disk,
            self.is_settled,
            lambda: self.stored_to,
            take_note,
        )

    def start(self) -> None:
        """Do the work on a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="journal-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Do what has been asked for, and end the thread."""
        self.filing.give_up()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        while self._ready:
            self._disk.close(self._ready.popleft().descriptor)

    def is_settled(self, number: int) -> bool:
        """Whether a file is full, and nothing needs to be done to it any more."""
        return number in self._settled

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
        temporary = self._temporary("next")
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
        temporary = self._temporary("now")
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
        return self._place.directory / preparing_name(self._place.instance, what)

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
        self.store_clients(cache)
        self._settled.add(live.number)

    def complete(self, number: int) -> None:
        """Do for a full file what an interrupted run has not done: seal it, make its indexes."""
        with self.filing.lock:
            file = self._table.find(number)
            if file is not None and file.seal is not None:
                self._complete(file, file.seal)

    def _complete(self, file: JournalFile, seal: Seal) -> None:
        if file.path.suffix != ".gz":
            descriptor = self._disk.open(file.path, writable=True)
            try:
                offset, block = pack_seal(seal)
                self._disk.write(descriptor, block, offset)
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        self.make_indexes(file, seal)

    def drop_indexes(self, number: int) -> bool:
        """Remove the indexes of a file, if it is full, and may have any; whether it may."""
        file = self._table.find(number)
        if file is None or file.seal is None:
            return False
        for kind in INDEXES:
            self._disk.remove(sibling(file.path, kind))
        return True

    def is_indexed(self, file: JournalFile) -> bool:
        """Whether a full file has the indexes that are to be made."""
        kinds = INDEXES if self._place.with_topic_index else (INDEX,)
        return all(sibling(file.path, kind).exists() for kind in kinds)

    def make_indexes(self, file: JournalFile, seal: Seal) -> None:
        """Store the indexes of a full file."""
        source = open_source(file.path)
        index = build_index(source, file.number, file.first_txid, seal.count)
        self._disk.store(sibling(file.path, INDEX), pack_index(index))
        if self._place.with_topic_index:
            topics = build_topic_index(source, file.first_txid, seal.count)
            data = pack_topic_index(seal.count, topics)
            self._disk.store(sibling(file.path, TOPIC_INDEX), data)

    def store_clients(self, cache: ClientsCache) -> None:
        """Store the table of publishers."""
        path = self._place.directory / clients_name(self._place.instance)
        self._disk.store(path, pack_clients(cache, self._clock()))
        self.stored_to = cache.txid

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._attempt(task)

    def _attempt(self, task: Task) -> None:
        try:
            task()
        except OSError as problem:
            text = f"upkeep of the transaction log failed: {reason(problem)}"
            self._notice(Notice(Event.UPKEEP_FAILED, text))
