"""Maintenance of journal files: prepares new ones in advance, seals and indexes full ones.

Archiving, compression and removal are in archiver.py. All tasks run on one thread, one after the
other; without `start` each runs at once, on the thread of its caller.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from server.storage.journal.errors import (
    JournalEvent,
    JournalNotice,
    JournalUnavailableError,
    reason,
)
from server.storage.journal.files import FileTable, JournalFile, open_source
from server.storage.journal.format.file_names import (
    INDEX,
    INDEXES,
    TOPIC_INDEX,
    clients_name,
    journal_name,
    sibling,
    temporary_journal_name,
)
from server.storage.journal.format.layout import FileSeal, pack_seal
from server.storage.journal.index import (
    build_index,
    build_topic_index,
    pack_index,
    pack_topic_index,
)
from server.storage.journal.publisher_table import PublisherTable, pack_clients
from server.storage.journal.storage import Disk
from server.storage.journal.write.archiver import Archiver
from server.storage.journal.write.commit_queue import LiveFile

MaintenanceTask = Callable[[], None]


@dataclass(frozen=True, slots=True)
class JournalLocation:
    """The location and the form of an instance's files.

    Attributes:
        instance: name of the instance.
        directory: directory of the files in use.
        archive: directory of archived files, if there is one.
        file_size: size of new files in bytes.
        with_topic_index: topic indexes are made.
    """

    instance: str
    directory: Path
    archive: Path | None
    file_size: int
    with_topic_index: bool


class JournalFileMaintenance:
    """Maintains the files.

    Args:
        place: their location.
        table: the files in use.
        ready: empty files for later, in order of their numbers.
        next_number: number of the next file to be made.
        disk: gives access to them.
        clock: returns microseconds since the Unix epoch.
        notice: called when a task fails.
        stored_to: the txid up to which the stored table of publishers is valid.
        take_note: records the last messages of a file that is to be removed.

    Attributes:
        stored_to: the current value of the argument.
        filing: archives, compresses and removes full files.
    """

    def __init__(
        self,
        place: JournalLocation,
        table: FileTable,
        ready: list[LiveFile],
        next_number: int,
        disk: Disk,
        clock: Callable[[], int],
        notice: Callable[[JournalNotice], None],
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
        self._tasks: SimpleQueue[MaintenanceTask | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._settled = {file.number for file in table.files if file.seal is not None}
        self.stored_to = stored_to
        self.filing = Archiver(
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
        """Start the thread that runs the tasks."""
        self._thread = threading.Thread(target=self._run, name="journal-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Run the queued tasks, end the thread, and close the unused files."""
        self.filing.give_up()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        while self._ready:
            self._disk.close(self._ready.popleft().descriptor)

    def is_settled(self, number: int) -> bool:
        """Return whether a file is full, and nothing more has to be done to it."""
        return number in self._settled

    def later(self, task: MaintenanceTask) -> None:
        """Queue a task; an OSError is reported, and ends only that task."""
        if self._thread is None:
            self._attempt(task)
        else:
            self._tasks.put(task)

    def next_file(self) -> LiveFile:
        """Return an empty file, prepared or made now, and prepare another one.

        Raises:
            JournalUnavailableError: none is ready, and none can be made.
        """
        try:
            file = self.take()
        except OSError as problem:
            raise JournalUnavailableError(
                f"the transaction log has no space for another file: {reason(problem)}"
            ) from problem
        self.later(self.prepare)
        return file

    def take(self) -> LiveFile:
        """Return the next empty file; make it if none is ready."""
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
        """Reserve a file without filling it with zeros, which is slow: the engine waits."""
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
        """Rename a file of full size to its number. The caller holds the lock."""
        number = self._next_number
        path = self._place.directory / journal_name(self._place.instance, number)
        self._disk.rename(temporary, path)
        self._next_number += 1
        return LiveFile(number, path, descriptor, self._place.file_size)

    def _temporary(self, what: str) -> Path:
        return self._place.directory / temporary_journal_name(self._place.instance, what)

    def seal(self, live: LiveFile, cache: PublisherTable) -> None:
        """Mark a file as full, make its indexes and store the table of publishers.

        Args:
            live: the file; all of it is on stable storage.
            cache: a snapshot of the table, taken when the file became full.
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
        """Seal a full file and make its indexes, which an interrupted run has not done."""
        with self.filing.lock:
            file = self._table.find(number)
            if file is not None and file.seal is not None:
                self._complete(file, file.seal)

    def _complete(self, file: JournalFile, seal: FileSeal) -> None:
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
        """Remove the indexes of a file if it is full, and return whether it is."""
        file = self._table.find(number)
        if file is None or file.seal is None:
            return False
        for kind in INDEXES:
            self._disk.remove(sibling(file.path, kind))
        return True

    def is_indexed(self, file: JournalFile) -> bool:
        """Return whether a full file has all configured indexes."""
        kinds = INDEXES if self._place.with_topic_index else (INDEX,)
        return all(sibling(file.path, kind).exists() for kind in kinds)

    def make_indexes(self, file: JournalFile, seal: FileSeal) -> None:
        """Build and store the indexes of a full file."""
        source = open_source(file.path)
        index = build_index(source, file.number, file.first_txid, seal.count)
        self._disk.store(sibling(file.path, INDEX), pack_index(index))
        if self._place.with_topic_index:
            topics = build_topic_index(source, file.first_txid, seal.count)
            data = pack_topic_index(seal.count, topics)
            self._disk.store(sibling(file.path, TOPIC_INDEX), data)

    def store_clients(self, cache: PublisherTable) -> None:
        """Store the table of publishers."""
        path = self._place.directory / clients_name(self._place.instance)
        self._disk.store(path, pack_clients(cache, self._clock()))
        self.stored_to = cache.txid

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._attempt(task)

    def _attempt(self, task: MaintenanceTask) -> None:
        try:
            task()
        except OSError as problem:
            text = f"upkeep of the transaction log failed: {reason(problem)}"
            self._notice(JournalNotice(JournalEvent.UPKEEP_FAILED, text))
