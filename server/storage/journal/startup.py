"""The steps of opening a log: its lock, its clock steps, and the position to append to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from server.storage.journal.clock_steps import ClockSteps, StepFinder, read_steps
from server.storage.journal.errors import JournalError, JournalEvent, JournalNotice, reason
from server.storage.journal.files import FileTable, JournalFile, SourceCache
from server.storage.journal.format.layout import (
    JournalFileHeader,
    JournalFormatError,
    pack_header,
)
from server.storage.journal.format.records import CHUNK, columns
from server.storage.journal.format.side_files import SidecarFile
from server.storage.journal.queue_points import QueuePointTable, unpack_queues
from server.storage.journal.recovery.log_recovery import LogRecoveryResult
from server.storage.journal.settings import JournalSettings
from server.storage.journal.storage import Disk
from server.storage.journal.write.blocks import WritePosition
from server.storage.journal.write.commit_queue import LiveFile
from server.storage.journal.write.file_preparation import JournalFileMaintenance
from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.file_lock import FileInUseError, lock

_MAX_FOREGROUND_FILL: Final = 64 << 20  # larger files get their zeros in the background
_DEFAULT_CACHE: Final = 10 << 30


def lock_directory(settings: JournalSettings) -> int:
    """Lock the directory against other processes; return the descriptor that holds the lock.

    Raises:
        JournalError: another process has locked it, or it cannot be used.
    """
    try:
        settings.directory.mkdir(parents=True, exist_ok=True)
        if settings.archive is not None:
            settings.archive.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(settings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise JournalError(f"the transaction log cannot be used: {reason(problem)}") from problem
    try:
        lock(descriptor)
    except FileInUseError as holder:
        os.close(descriptor)
        raise JournalError(
            f"{settings.directory}: is in use by {holder}; "
            "a JournalDirectory belongs to one instance"
        ) from None
    except OSError as problem:
        os.close(descriptor)
        raise JournalError(f"the transaction log cannot be used: {reason(problem)}") from problem
    return descriptor


def default_cache_limit() -> int:
    """Return the limit in bytes of decompressed files, unless one is configured."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(memory // 10, _DEFAULT_CACHE)


def recover_clock_steps(
    file: SidecarFile,
    recovered: LogRecoveryResult,
    cache: SourceCache,
    notice: Callable[[JournalNotice], None],
) -> ClockSteps:
    """Return the steps of the wall clock: the stored ones, and those in the last file.

    Args:
        file: the stored steps.
        recovered: the result of recovery.
        cache: opens the last file.
        notice: called if the stored steps cannot be read.
    """
    try:
        steps = read_steps(file)
    except (OSError, JournalFormatError) as problem:
        path, steps = file.path, ClockSteps()
        cause = reason(problem) if isinstance(problem, OSError) else str(problem)
        text = f"{path}: {cause}; replays from a moment may begin too early or too late"
        notice(JournalNotice(JournalEvent.DAMAGED, text, str(path)))
    if not recovered.files:
        return steps
    steps.drop_before(recovered.files[0].first_txid)
    if recovered.live_file is not None:
        last_file, finder = recovered.files[-1], StepFinder(steps)
        source, count = cache.open(last_file.path), recovered.live_extent.count
        for start in range(0, count, CHUNK):
            block = columns(source, start, min(start + CHUNK, count))
            block = block[block["txid"] != 0]  # others are damaged
            finder.scan_times(block["txid"], block["timestamp"])
        for step in finder.found_steps:
            steps.add(step)
    return steps


def read_queue_points(
    file: SidecarFile, notice: Callable[[JournalNotice], None]
) -> QueuePointTable | None:
    """Return the stored recovery points of queues, None if they are not known.

    Args:
        file: the stored points.
        notice: called if they cannot be read.
    """
    try:
        data = file.read()
        return None if data is None else unpack_queues(data)
    except (OSError, JournalFormatError) as problem:
        path = file.path
        cause = reason(problem) if isinstance(problem, OSError) else str(problem)
        text = f"{path}: {cause}; queues are recovered from their RecoveryPoint"
        notice(JournalNotice(JournalEvent.DAMAGED, text, str(path)))
        return None


def continue_last_file(recovered: LogRecoveryResult, steps: ClockSteps) -> WritePosition:
    """Return the position after the last entry of the last file, which has free space.

    Args:
        recovered: the result of recovery.
        steps: the steps of the wall clock.
    """
    extent = recovered.live_extent
    position = WritePosition(recovered.files[-1].first_txid + extent.count)
    position.count = extent.count
    position.bodies_end = extent.bodies_end
    position.extras_count = extent.extras_count
    position.first_timestamp = extent.first_timestamp or recovered.files[-1].created
    last_timestamp = extent.last_timestamp or _last_sealed_timestamp(recovered)
    position.last_timestamp = last_timestamp + steps.correction(position.next_txid - 1)
    return position


def begin_new_file(
    instance: str,
    recovered: LogRecoveryResult,
    steps: ClockSteps,
    table: FileTable,
    maintenance: JournalFileMaintenance,
    size: int,
    now: int,
    disk: Disk,
) -> tuple[LiveFile, WritePosition]:
    """Begin a file, since there is none with free space; return it, and the position in it.

    Args:
        instance: the instance's name.
        recovered: the result of recovery.
        steps: the steps of the wall clock.
        table: the files of the log; gets the file.
        maintenance: prepares files.
        size: bytes of a file.
        now: the time in microseconds since the Unix epoch.
        disk: writes to the file.
    """
    # Txids of a discarded log are not used again: clients may have kept its bookmarks.
    last_txid = recovered.last_txid or now // MICROSECONDS_PER_SECOND * 1_000_000_000
    position = WritePosition(last_txid + 1)
    position.first_timestamp = now
    position.last_timestamp = _last_sealed_timestamp(recovered) + steps.correction(last_txid)
    if size <= _MAX_FOREGROUND_FILL:
        maintenance.prepare_files()
    live = maintenance.take_file()
    header = JournalFileHeader(live.number, live.size, last_txid + 1, now, instance)
    # The first txid of a new log is durable before a peer can be ahead of it: if it were lost
    # with the first commit, the next start would choose a later one.
    disk.write(live.descriptor, pack_header(header), 0)
    disk.sync(live.descriptor)
    table.add(
        JournalFile(live.number, live.path, live.size, last_txid + 1, now, None, live.definitions)
    )
    return live, position


def _last_sealed_timestamp(recovered: LogRecoveryResult) -> int:
    seals = [file.seal for file in recovered.files if file.seal is not None]
    return seals[-1].last_timestamp if seals else 0
