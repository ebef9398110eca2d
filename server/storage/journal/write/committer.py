"""Group commit: writes appended entries and syncs them (fdatasync), on a thread of its own.

A commit begins as soon as there is something to write and the one before is done; entries appended
meanwhile make up the next. Two commits begin at least MIN_COMMIT_INTERVAL_S apart, so that busy
publishers fill batches instead of one write for each message, and no entry waits longer than
FlushInterval before its commit begins.

When a write fails, everything unwritten is kept, the journal refuses new entries and gives the
reason, and the committer retries the same bytes at the same offsets until that succeeds. That holds
for a failed sync too: the system may have dropped the pages, but the commit still has the bytes.

Before a commit is acknowledged, a mark that records it is written after its last record. It is not
synced: it survives the process, and reaches the disk with the next commit, or when the system
writes it back.

Source: AMPS User Guide, Configuring a Transaction Log, FlushInterval.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

from server.storage.journal.errors import JournalEvent, JournalNotice, reason
from server.storage.journal.format.layout import RECORD_SIZE, CommitMark, pack_mark
from server.storage.journal.storage import Disk, WriteChunk
from server.storage.journal.write.commit_queue import CommitGroup, CommitStream
from server.storage.journal.write.writer import JournalWriter
from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.histogram import Histogram

MIN_COMMIT_INTERVAL_S: Final = 0.002  # seconds
_RETRY_INTERVAL_S: Final = 0.25  # between attempts while writes fail


class Committer:
    """Commits the entries that the writer has appended.

    Args:
        writer: the source of entries; the committer updates its `durable_txid` and `write_error`.
        disk: the disk to write to.
        flush_interval: maximum delay in seconds before the commit of an entry begins.
        on_durable: called with the last txid on stable storage, after each commit.
        on_full: called with the last commit of a file when all of it is on stable storage.
        notice: called when writes fail, and when they succeed again.

    Attributes:
        write_latency: durations of writes until they were on stable storage, in microseconds.
        write_sizes: sizes of these writes in bytes.
    """

    def __init__(
        self,
        writer: JournalWriter,
        disk: Disk,
        flush_interval: float,
        on_durable: Callable[[int], None],
        on_full: Callable[[CommitGroup], None],
        notice: Callable[[JournalNotice], None],
    ) -> None:
        self.write_latency: Final = Histogram()
        self.write_sizes: Final = Histogram()
        self._writer = writer
        self._disk = disk
        self._min_interval_s = min(MIN_COMMIT_INTERVAL_S, flush_interval)
        self._on_durable = on_durable
        self._on_full = on_full
        self._notice = notice
        self._unwritten_group: CommitGroup | None = None
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """True if the thread makes the commits."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread that commits."""
        self._thread = threading.Thread(target=self._run, name="journal-commit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and commit all appended entries."""
        if self._thread is not None:
            self._stop_event.set()
            self._writer.commit_queue.wake()
            self._thread.join()
            self._thread = None
        self.commit()

    def commit(self) -> bool:
        """Write everything that has been appended so far.

        Returns:
            Whether all of it is on stable storage.
        """
        with self._lock:
            while (
                commit := self._unwritten_group or self._writer.commit_queue.take_group()
            ) is not None:
                self._unwritten_group = commit
                try:
                    self._write(commit)
                except OSError as problem:
                    self._set_write_error(reason(problem), commit)
                    return False
                self._unwritten_group = None
                self._on_written(commit)
            return True

    def _write(self, commit: CommitGroup) -> None:
        file = commit.stream.file
        mark = make_file_watermark(commit.stream)
        begun = monotonic()
        self._disk.commit(file.descriptor, commit.write_chunks(), file.path, file.size, mark)
        self.write_latency.add(int((monotonic() - begun) * MICROSECONDS_PER_SECOND))
        self.write_sizes.add(commit.size)

    def _on_written(self, commit: CommitGroup) -> None:
        writer = self._writer
        if commit.last_txid > writer.durable_txid:
            writer.durable_txid = commit.last_txid
            self._on_durable(commit.last_txid)
        if commit.finishes_file:
            self._on_full(commit)
        if writer.write_error is not None:
            writer.write_error = None
            text = "the transaction log can be written again"
            self._notice(
                JournalNotice(JournalEvent.WRITE_RESUMED, text, str(commit.stream.file.path))
            )

    def _set_write_error(self, why: str, commit: CommitGroup) -> None:
        if self._writer.write_error is None:
            self._writer.write_error = f"the transaction log cannot be written: {why}"
            path = str(commit.stream.file.path)
            text = f"{path}: cannot be written: {why}; publishes are refused until it can"
            self._notice(JournalNotice(JournalEvent.WRITE_FAILED, text, path, commit.first_txid))

    def _run(self) -> None:
        begun = 0.0
        while not self._stop_event.is_set():
            if self._writer.write_error is None:
                self._writer.commit_queue.wait_for_entries()
                sleep(max(begun + self._min_interval_s - monotonic(), 0))
            else:
                self._stop_event.wait(_RETRY_INTERVAL_S)
            begun = monotonic()
            self.commit()


def make_file_watermark(stream: CommitStream) -> WriteChunk:
    """Return the mark that all entries of a file taken so far are on stable storage.

    It is in the place of the next record, which overwrites it; empty if the file has no space left.
    """
    offset = stream.file.size - RECORD_SIZE * (stream.taken_count + 1)
    if offset < stream.bodies_end:
        return offset, b""
    return offset, pack_mark(CommitMark(stream.next_txid, stream.bodies_end))
