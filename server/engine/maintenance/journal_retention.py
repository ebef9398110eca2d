"""Retention: archives, compresses and removes old journal files.

Callers only mark files. Marked files are processed one after the other on a separate thread, while
the log is in use. A file that is to be removed waits until it is not needed any more:

- each reader of the log declares the first entry that it needs (`TransactionLog.hold_files`);
- topics with records must have on stable storage all that they would otherwise read from the log
  after a power failure;
- older files are removed first, because the log must not have gaps.

Marks are not persistent; after a restart, the caller has to mark files again.
Source: AMPS User Guide, Manage Transaction Log Journal Files; Managing Journal Files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from server.storage.journal import JournalError
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.storage.journal import Journal
    from server.storage.journal.files import JournalFile
    from server.storage.sow.store import RecordStoreError
    from server.topics.sow_registry import SowRegistry
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_Result = TypeVar("_Result")

_RECHECK_SECONDS: Final = 1.0
"""Interval of the checks whether files to be removed are still needed."""
_SETTLE_SECONDS: Final = 30.0
"""Timeout for writing the records to stable storage."""


class JournalAction(Enum):
    """The operations on journal files."""

    ARCHIVE = "archived"
    COMPRESS = "compressed"
    REMOVE = "removed"


class JournalRetention:
    """Archives, compresses and removes the old journal files of one instance.

    Args:
        transaction_log: the transaction log.
        sow_registry: the topics with records.
        clock: the clock, for the age of files.
        log: gets an entry for each operation, and for those that fail.
    """

    def __init__(
        self,
        transaction_log: TransactionLog,
        sow_registry: SowRegistry,
        clock: Clock,
        log: ServerLog,
    ) -> None:
        self._transaction_log = transaction_log
        self._journal: Journal = transaction_log.journal
        self._sow_registry = sow_registry
        self._clock = clock
        self._log = log
        self._executor = ThreadPoolExecutor(1, "journal-keeping")
        self._marks: dict[tuple[JournalAction, int], None] = {}  # in the order of marking
        self._logged_as_waiting: set[int] = set()
        self._has_new_marks = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def full_file_names(self) -> list[str]:
        """The names of the files that can be processed, oldest first."""
        return [file.name for file in self._journal.files if file.seal is not None]

    async def mark_by_age(self, action: JournalAction, age_s: float) -> None:
        """Mark files for an operation, which begins soon.

        Args:
            action: the operation.
            age_s: minimum time since the last write to a file, in seconds.

        Raises:
            JournalError: no archive directory is configured.
        """
        self._check_archive(action)
        cutoff = self._clock.now() - age_s
        for file, written_s in await self._run_on_thread(self._read_write_times):
            if written_s <= cutoff:
                self._marks[action, file.number] = None
            elif action is JournalAction.REMOVE:  # the log must not have gaps
                break
        self._start_task()

    async def mark_through(self, action: JournalAction, name: str) -> None:
        """Mark a file, and all older ones, for an operation, which begins soon.

        Args:
            action: the operation.
            name: of the file, as in `full_file_names`; if it does not exist any more, nothing is
                done.

        Raises:
            JournalError: no archive directory is configured.
        """
        self._check_archive(action)
        files = [file for file, _ in await self._run_on_thread(self._read_write_times)]
        last_number = next((file.number for file in files if file.name == name), -1)
        for file in files:
            if file.number <= last_number:
                self._marks[action, file.number] = None
        self._start_task()

    def _check_archive(self, action: JournalAction) -> None:
        if action is JournalAction.ARCHIVE and not self._journal.has_archive:
            raise JournalError(
                "there is nowhere to archive journals to: "
                "the configuration has no JournalArchiveDirectory"
            )

    def _start_task(self) -> None:
        self._has_new_marks.set()
        if self._task is None and self._marks:
            self._task = asyncio.get_running_loop().create_task(self._process_marks())

    def _read_write_times(self) -> list[tuple[JournalFile, float]]:
        """Return the full files, each with the time of its last write.

        Called on the thread that processes marked files, so that no file is being moved meanwhile.
        """
        full = [file for file in self._journal.files if file.seal is not None]
        return [(file, self._last_write_time(file)) for file in full]

    def _last_write_time(self, file: JournalFile) -> float:
        """Return the time of the last write to a file, by the current setting of the wall clock."""
        last_txid = (file.end_txid or file.first_txid) - 1
        correction_us = self._journal.clock_steps.correction(last_txid)
        return _last_written(file) + correction_us / MICROSECONDS_PER_SECOND

    async def close(self) -> None:
        """Abort the current operation, and drop all marks; the files stay as they are."""
        self._journal.abort_archiving()
        if self._task is not None:
            self._task.cancel()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)

    async def _process_marks(self) -> None:
        try:
            while self._marks:
                self._has_new_marks.clear()
                if not (await self._remove_oldest() or await self._process_next()):
                    try:
                        async with asyncio.timeout(_RECHECK_SECONDS):
                            await self._has_new_marks.wait()
                    except TimeoutError:
                        continue
        finally:
            self._task = None

    async def _remove_oldest(self) -> bool:
        """Remove the oldest file, if it is marked and not needed. Return whether it was removed."""
        file = self._journal.files[0]
        mark = JournalAction.REMOVE, file.number
        if mark not in self._marks or not self._journal.is_finalized(file.number):
            return False
        if self._is_needed(file) or not await self._store_records() or self._is_needed(file):
            return False
        for action in JournalAction:
            self._marks.pop((action, file.number), None)
        self._logged_as_waiting.discard(file.number)
        with self._transaction_log.during_removal():
            await self._process_file(JournalAction.REMOVE, file, self._journal.remove)
        return True

    def _is_needed(self, file: JournalFile) -> bool:
        needed_from = self._transaction_log.needed_from
        if file.end_txid is not None and needed_from >= file.end_txid:
            return False
        if file.number not in self._logged_as_waiting:
            self._logged_as_waiting.add(file.number)
            self._log.emit("1D-0011", path=file.path, needed=needed_from)
        if file.end_txid is not None:
            self._transaction_log.notify_holders(file.path, file.end_txid)
        return True

    async def _store_records(self) -> bool:
        """Write to stable storage all records that entries of the log have changed.

        Returns:
            Whether that succeeded; if not, the store logs the reason.
        """
        sow_registry = self._sow_registry
        outcome: asyncio.Future[RecordStoreError | None] = (
            asyncio.get_running_loop().create_future()
        )

        def set_outcome(error: RecordStoreError | None) -> None:
            if not outcome.done():
                outcome.set_result(error)

        topics = [sow for sow in sow_registry.topics if sow_registry.is_journaled(sow)]
        sow_registry.when_settled(topics, set_outcome)
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                return await outcome is None
        except TimeoutError:
            return False

    async def _process_next(self) -> bool:
        """Archive or compress the file that was marked first. Return False if there is none."""
        candidates = (mark for mark in self._marks if mark[0] is not JournalAction.REMOVE)
        mark = next((mark for mark in candidates if self._journal.is_finalized(mark[1])), None)
        if mark is None:
            return False
        del self._marks[mark]
        action, number = mark
        file = next(
            (journal_file for journal_file in self._journal.files if journal_file.number == number),
            None,
        )
        if file is not None:
            archive = action is JournalAction.ARCHIVE
            await self._process_file(
                action, file, self._journal.archive if archive else self._journal.compress
            )
        return True

    async def _process_file(
        self, action: JournalAction, file: JournalFile, function: Callable[[int], None]
    ) -> None:
        """Process one file; on failure, drop all marks of this operation: they would fail too."""
        try:
            await self._run_on_thread(partial(function, file.number))
        except JournalError as error:
            dropped = [mark for mark in self._marks if mark[0] is action]
            for mark in dropped:
                del self._marks[mark]
            self._log.emit("1D-0012", text=error, count=len(dropped), operation=action.value)
            return
        new_path = next(
            (
                journal_file.path
                for journal_file in self._journal.files
                if journal_file.number == file.number
            ),
            None,
        )
        if new_path != file.path:
            self._log.emit("1D-0010", path=file.path, operation=action.value, now=new_path)

    async def _run_on_thread(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


def _last_written(file: JournalFile) -> float:
    """Return the time of the last write to a file, in seconds since the Unix epoch.

    That is the time of its last entry, or its modification time if that is earlier: copying a file
    back does not make it newer, and an owner may set an earlier time to make it older.
    """
    last_us = file.created if file.seal is None else file.seal.last_timestamp
    last_s = last_us / MICROSECONDS_PER_SECOND
    try:
        return min(last_s, file.path.stat().st_mtime)
    except OSError:
        return last_s
