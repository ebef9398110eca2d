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
        location: their location.
        table: the files in use.
        ready: empty files for later, in order of their numbers.
        next_number: number of the next file to be made.
        disk: gives access to them.
        clock: returns microseconds since the Unix epoch.
        notice: called when a task fails.
        publishers_txid: the txid up to which the stored table of publishers is valid.
        on_removal: records the last messages of a file that is to be removed.

    Attributes:
        publishers_txid: the current value of the argument.
        archiver: archives, compresses and removes full files.
    """

    def __init__(
        self,
        location: JournalLocation,
        table: FileTable,
        ready: list[LiveFile],
        next_number: int,
        disk: Disk,
        clock: Callable[[], int],
        notice: Callable[[JournalNotice], None],
        publishers_txid: int,
        on_removal: Callable[[JournalFile], None],
    ) -> None:
        self._location = location
        self._table = table
        self._ready_files = deque(ready)
        self._next_number = next_number
        self._disk = disk
        self._clock = clock
        self._notice = notice
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[MaintenanceTask | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._finalized_files = {file.number for file in table.files if file.seal is not None}
        self.publishers_txid = publishers_txid
        self.archiver = Archiver(
            location.instance,
            location.directory,
            location.archive,
            table,
            disk,
            self.is_finalized,
            lambda: self.publishers_txid,
            on_removal,
        )

    def start(self) -> None:
        """Start the thread that runs the tasks."""
        self._thread = threading.Thread(target=self._run, name="journal-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Run the queued tasks, end the thread, and close the unused files."""
        self.archiver.abort()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        while self._ready_files:
            self._disk.close(self._ready_files.popleft().descriptor)

    def is_finalized(self, number: int) -> bool:
        """Return whether a file is full, and nothing more has to be done to it."""
        return number in self._finalized_files

    def queue_task(self, task: MaintenanceTask) -> None:
        """Queue a task; an OSError is reported, and ends only that task."""
        if self._thread is None:
            self._run_task(task)
        else:
            self._tasks.put(task)

    def next_file(self) -> LiveFile:
        """Return an empty file, prepared or made now, and prepare another one.

        Raises:
            JournalUnavailableError: none is ready, and none can be made.
        """
        try:
            file = self.take_file()
        except OSError as problem:
            raise JournalUnavailableError(
                f"the transaction log has no space for another file: {reason(problem)}"
            ) from problem
        self.queue_task(self.prepare_files)
        return file

    def take_file(self) -> LiveFile:
        """Return the next empty file; make it if none is ready."""
        with self._lock:
            return self._ready_files.popleft() if self._ready_files else self._make_file()

    def prepare_files(self, count: int = 1) -> None:
        """Make files until `count` of them are ready."""
        while len(self._ready_files) < count:
            self._prepare_file()

    def _prepare_file(self) -> None:
        temporary = self._temporary_path("next")
        self._disk.remove(temporary)
        descriptor = self._disk.create_allocated(temporary, self._location.file_size)
        try:
            self._disk.fill_with_zeros(descriptor, self._location.file_size)
            with self._lock:
                self._ready_files.append(self._rename_to_number(temporary, descriptor))
        except OSError:
            self._disk.close(descriptor)
            self._disk.remove(temporary)
            raise

    def _make_file(self) -> LiveFile:
        """Reserve a file without filling it with zeros, which is slow: the engine waits."""
        temporary = self._temporary_path("now")
        self._disk.remove(temporary)
        descriptor = self._disk.create_allocated(temporary, self._location.file_size)
        try:
            self._disk.sync(descriptor)
            return self._rename_to_number(temporary, descriptor)
        except OSError:
            self._disk.close(descriptor)
            self._disk.remove(temporary)
            raise

    def _rename_to_number(self, temporary: Path, descriptor: int) -> LiveFile:
        """Rename a file of full size to its number. The caller holds the lock."""
        number = self._next_number
        path = self._location.directory / journal_name(self._location.instance, number)
        self._disk.rename(temporary, path)
        self._next_number += 1
        return LiveFile(number, path, descriptor, self._location.file_size)

    def _temporary_path(self, what: str) -> Path:
        return self._location.directory / temporary_journal_name(self._location.instance, what)

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
            self.build_indexes(file, file.seal)
        self.store_publisher_table(cache)
        self._finalized_files.add(live.number)

    def finalize_file(self, number: int) -> None:
        """Seal a full file and make its indexes, which an interrupted run has not done."""
        with self.archiver.lock:
            file = self._table.find(number)
            if file is not None and file.seal is not None:
                self._finalize(file, file.seal)

    def _finalize(self, file: JournalFile, seal: FileSeal) -> None:
        if file.path.suffix != ".gz":
            descriptor = self._disk.open(file.path, writable=True)
            try:
                offset, block = pack_seal(seal)
                self._disk.write(descriptor, block, offset)
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        self.build_indexes(file, seal)

    def remove_indexes(self, number: int) -> bool:
        """Remove the indexes of a file if it is full, and return whether it is."""
        file = self._table.find(number)
        if file is None or file.seal is None:
            return False
        for kind in INDEXES:
            self._disk.remove(sibling(file.path, kind))
        return True

    def is_indexed(self, file: JournalFile) -> bool:
        """Return whether a full file has all configured indexes."""
        kinds = INDEXES if self._location.with_topic_index else (INDEX,)
        return all(sibling(file.path, kind).exists() for kind in kinds)

    def build_indexes(self, file: JournalFile, seal: FileSeal) -> None:
        """Build and store the indexes of a full file."""
        source = open_source(file.path)
        index = build_index(source, file.number, file.first_txid, seal.count)
        self._disk.store_atomically(sibling(file.path, INDEX), pack_index(index))
        if self._location.with_topic_index:
            topics = build_topic_index(source, file.first_txid, seal.count)
            data = pack_topic_index(seal.count, topics)
            self._disk.store_atomically(sibling(file.path, TOPIC_INDEX), data)

    def store_publisher_table(self, cache: PublisherTable) -> None:
        """Store the table of publishers."""
        path = self._location.directory / clients_name(self._location.instance)
        self._disk.store_atomically(path, pack_clients(cache, self._clock()))
        self.publishers_txid = cache.txid

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._run_task(task)

    def _run_task(self, task: MaintenanceTask) -> None:
        try:
            task()
        except OSError as problem:
            text = f"upkeep of the transaction log failed: {reason(problem)}"
            self._notice(JournalNotice(JournalEvent.UPKEEP_FAILED, text))
