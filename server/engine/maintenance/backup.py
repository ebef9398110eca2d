"""Backups of the running instance.

The engine's thread determines the points of the backup, and a helper thread copies:

1. Of each topic with records, a commit is requested, then the file is copied up to its commit
   point. Meanwhile none of its slabs is cleaned.
2. The tables beside the journals are copied, then the log is committed. Its last entry on stable
   storage is the last one of the backup. So the log of the backup has all changes that its records
   and tables have, and all that was acknowledged as persisted before the backup began.
3. The journals up to that entry are linked or copied. Until then no journal is removed.
4. Statistics and configuration follow, and the manifest, which makes the backup complete.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from config_schema.version import VERSION
from server.storage.backup.catalogue import BackupRetention, expire_backups
from server.storage.backup.manifest import BackupFileKind
from server.storage.backup.sow_copy import SlabsReusedError
from server.storage.backup.writer import BackupWriter
from server.storage.journal import JournalUnreadableError
from server.storage.journal.errors import reason
from server.storage.journal.format.file_names import (
    clients_name,
    queues_name,
    removal_record_name,
    replication_name,
    steps_name,
)
from server.storage.sow.file_store import FileStore

if TYPE_CHECKING:
    from server.storage.backup.manifest import BackupManifest
    from server.storage.sow.store import RecordStoreError
    from server.topics.sow_registry import SowRegistry
    from server.topics.transaction_log import TransactionLog
    from server.util.log_protocol import ServerLog

_Result = TypeVar("_Result")

_ATTEMPTS: Final = 3
"""Number of attempts to copy a SOW file whose slabs are cleaned, as by a compaction."""
_ABORT_CHECK_S: Final = 0.5
"""Interval of the checks whether a backup that waits is aborted."""
_MAX_KNOWN: Final = 16
"""Number of backups whose state is remembered."""


class BackupError(Exception):
    """A backup could not be made. The text is the reason."""


@dataclass(frozen=True, slots=True)
class BackupSources:
    """The files of an instance that a backup has besides log and records.

    Attributes:
        instance: the instance's name.
        configuration: returns the configuration file, and the files that it includes.
        chain_files: the files of chained ids.
        statistics: the database of statistics; None if it is in memory.
    """

    instance: str
    configuration: Callable[[], tuple[str, ...]]
    chain_files: Sequence[Path]
    statistics: Path | None


@dataclass(slots=True)
class BackupRun:
    """The state of one backup.

    Attributes:
        directory: the directory of all backups.
        id: its name; empty until its directory exists.
        file_count: number of files so far.
        manifest: its manifest, once it is complete.
        error: why it failed; empty if it has not.
        is_running: True until it has failed, or is complete and expired backups are removed.
        is_aborted: set to abort it.
    """

    directory: Path
    id: str = ""
    file_count: int = 0
    manifest: BackupManifest | None = None
    error: str = ""
    is_running: bool = True
    is_aborted: Event = field(default_factory=Event)

    @property
    def state(self) -> str:
        """Its state in a sentence, which begins with running, complete or failed."""
        if self.is_running:
            return f"running: {self.file_count} files so far"
        if self.manifest is None:
            return f"failed: {self.error}"
        return f"complete: {self.file_count} files, {self.manifest.size} bytes"

    def check(self) -> None:
        """Return if the backup may continue.

        Raises:
            BackupError: it is aborted.
        """
        if self.is_aborted.is_set():
            raise BackupError("it was aborted")


class InstanceBackup:
    """Makes backups of one instance, one at a time.

    Args:
        sources: further files of the instance.
        sow_registry: the topics with records.
        transaction_log: the transaction log; None without one.
        log: gets an entry for each backup.
    """

    def __init__(
        self,
        sources: BackupSources,
        sow_registry: SowRegistry,
        transaction_log: TransactionLog | None,
        log: ServerLog,
    ) -> None:
        self._sources = sources
        self._sow_registry = sow_registry
        self._transaction_log = transaction_log
        self._log = log
        self._executor = ThreadPoolExecutor(1, "backup")
        self._runs: deque[BackupRun] = deque(maxlen=_MAX_KNOWN)
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> Sequence[BackupRun]:
        """The last backups since the start, the oldest first."""
        return [run for run in self._runs if run.id]

    async def begin(self, directory: Path, retention: BackupRetention) -> BackupRun:
        """Begin a backup.

        Args:
            directory: the directory of all backups.
            retention: which earlier backups are kept.

        Returns:
            The backup, which goes on.

        Raises:
            BackupError: another one is being made, or the directory cannot be used.
        """
        if self._task is not None:
            raise BackupError(f"the backup {self._runs[-1].id} is still being made")
        run = BackupRun(directory.absolute())
        self._runs.append(run)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._run(run, retention, begun))
        await begun
        if not run.id:
            raise BackupError(run.error)
        return run

    async def create(self, directory: Path, retention: BackupRetention) -> BackupRun:
        """Make a backup; see `begin`.

        Returns:
            The backup, which is complete.

        Raises:
            BackupError: it failed.
        """
        run = await self.begin(directory, retention)
        if self._task is not None and run.is_running:
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError:
                run.is_aborted.set()
                raise
        if run.error:
            raise BackupError(run.error)
        return run

    async def close(self) -> None:
        """Abort the backup in progress; its files are removed."""
        if self._task is not None:
            self._runs[-1].is_aborted.set()
            await asyncio.wait({self._task})
        await asyncio.to_thread(self._executor.shutdown, wait=True)

    async def _run(
        self, run: BackupRun, retention: BackupRetention, begun: asyncio.Future[None]
    ) -> None:
        """Make a backup, and log the result."""
        writer: BackupWriter | None = None
        try:
            writer = await self._on_thread(
                partial(BackupWriter, run.directory, self._sources.instance, VERSION, run.check)
            )
            run.id = writer.id
            begun.set_result(None)
            self._log.emit("2C-0010", path=writer.path)
            manifest = await self._write(run, writer)
            run.manifest = manifest
            self._log.emit(
                "2C-0011",
                path=writer.path,
                files=len(manifest.files),
                bytes=manifest.size,
                txid=manifest.last_txid,
            )
            await self._on_thread(partial(self._expire, run, manifest, retention))
        except (BackupError, OSError, JournalUnreadableError) as error:
            run.error = reason(error) if isinstance(error, OSError) else str(error)
            self._log.emit("2C-0012", path=run.directory / run.id, reason=run.error)
        finally:
            if run.manifest is None and writer is not None:
                await self._on_thread(partial(shutil.rmtree, writer.path, ignore_errors=True))
                run.error = run.error or "an unexpected error has ended it, which the log has"
            run.is_running = False
            self._task = None
            if not begun.done():
                begun.set_result(None)

    async def _write(self, run: BackupRun, writer: BackupWriter) -> BackupManifest:
        """Copy everything; return the manifest."""
        release = self._hold_journals()
        try:
            for sow in self._sow_registry.topics:
                if isinstance(sow.table.store, FileStore):
                    await self._copy_records(run, sow.table.store, writer)
                    run.file_count = len(writer.files)
            for path in self._sources.chain_files:
                await self._on_thread(partial(writer.add_file, path, BackupFileKind.CHAINS))
            end = await self._copy_log(run, writer)
        finally:
            release()
        if self._sources.statistics is not None:
            await self._on_thread(partial(writer.add_statistics, self._sources.statistics))
        await self._on_thread(partial(writer.add_configuration, self._sources.configuration()))
        run.file_count = len(writer.files)
        return await self._on_thread(partial(writer.finish, *end))

    def _hold_journals(self) -> Callable[[], None]:
        """Hold all journals, so that none is removed; return the function that releases them."""
        log = self._transaction_log
        if log is None:
            return lambda: None
        first_txid = log.journal.first_txid
        return log.hold_files(lambda: first_txid, "a backup")

    async def _copy_records(self, run: BackupRun, store: FileStore, writer: BackupWriter) -> None:
        path = Path(store.statistics.path)
        store.keeps_slabs = True
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                await _commit(store, run)
                try:
                    await self._on_thread(partial(writer.add_sow_file, path))
                except SlabsReusedError:
                    if attempt == _ATTEMPTS:
                        raise
                else:
                    return
        finally:
            store.keeps_slabs = False

    async def _copy_log(self, run: BackupRun, writer: BackupWriter) -> tuple[int, int, int, str]:
        """Copy the log; return its first and last entry, with the time and bookmark of the last."""
        log = self._transaction_log
        if log is None:
            return 0, 0, 0, ""
        instance, directory = self._sources.instance, log.journal.directory
        for name in (clients_name, queues_name, replication_name):
            await self._add_sidecar(writer, directory / name(instance))
        await _when_durable(log, run)
        last_txid = log.durable_txid
        bookmark = log.bookmark_at(last_txid) or ""
        last_us = log.timestamp_us_of(last_txid) or 0
        await self._on_thread(partial(writer.add_journals, log.journal, last_txid))
        # These may be ahead of the log: a kill between them and an entry has the same result.
        for name in (removal_record_name, steps_name):
            await self._add_sidecar(writer, directory / name(instance))
        run.file_count = len(writer.files)
        return log.journal.first_txid, last_txid, last_us, bookmark

    async def _add_sidecar(self, writer: BackupWriter, path: Path) -> None:
        await self._on_thread(partial(writer.add_file, path, BackupFileKind.SIDECAR))

    def _expire(self, run: BackupRun, manifest: BackupManifest, retention: BackupRetention) -> None:
        try:
            for backup_id in expire_backups(run.directory, manifest, retention):
                self._log.emit("2C-0013", path=run.directory / backup_id)
        except OSError as error:
            self._log.emit("2C-0014", path=run.directory, reason=reason(error))

    async def _on_thread(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


async def _commit(store: FileStore, run: BackupRun) -> None:
    """Put all changes of a store so far on stable storage.

    Raises:
        BackupError: that failed, or the backup is aborted.
    """
    outcome: asyncio.Future[RecordStoreError | None] = asyncio.get_running_loop().create_future()
    store.commit(outcome.set_result)
    error = await _result_of(outcome, run)
    if error is not None:
        raise BackupError(str(error))


async def _when_durable(log: TransactionLog, run: BackupRun) -> None:
    """Wait until everything appended to the log so far is on stable storage.

    Raises:
        BackupError: the backup is aborted.
    """
    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.when_durable(partial(durable.set_result, None))
    await _result_of(durable, run)


async def _result_of(future: asyncio.Future[_Result], run: BackupRun) -> _Result:
    """Wait for a result as long as the backup is not aborted: a full disk may delay it for long.

    Raises:
        BackupError: the backup is aborted.
    """
    while not future.done():
        await asyncio.wait({future}, timeout=_ABORT_CHECK_S)
        run.check()
    return future.result()
