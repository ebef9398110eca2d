"""Group commit of SOW files: one thread syncs them (fdatasync), and notifies the engine.

The engine writes through memory maps, which costs no system call, and never waits for a disk. Each
scheduling round it requests a commit; while the thread is busy with one, further requests gather
and share the next. So thousands may complete at once: their callbacks run in time slices.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeAlias

from server.util.task import EngineTask

_NOTIFY_BATCH_SIZE: Final = 128
"""Callbacks of waiting requests per slice; each has about one ack to send."""

CallScheduler: TypeAlias = Callable[[Callable[[], None]], None]
"""Schedules a function to run soon on the engine's thread."""


class CommitJob(NamedTuple):
    """A request to commit one file.

    Attributes:
        descriptor: the file.
        on_synced: called on the helper thread after the file has been synchronised, to note in the
            file how far it got; raises OSError if the synchronisation is void.
        on_done: called on the engine's thread after that, with the number of the synchronisation:
            jobs that shared one get the same number, and `on_synced` was called for the last of
            them only.
        on_failed: called on the engine's thread instead if the file could not be synchronised.
    """

    descriptor: int
    on_synced: Callable[[], None]
    on_done: Callable[[int], None]
    on_failed: Callable[[OSError], None]


def _run_to_completion(work: EngineTask) -> None:
    while work.step():
        pass


class _CallbackQueue:
    """Calls the callbacks of finished jobs, on the engine's thread and in their order.

    Args:
        start: schedules work that is done in slices.
    """

    def __init__(self, start: Callable[[EngineTask], None]) -> None:
        self._start = start
        self._pending_calls: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    @property
    def task_label(self) -> tuple[str, str]:
        """The client, none as the work is for all publishers, and the work's name."""
        return "", "commit"

    def queue_calls(self, calls: Iterable[Callable[[], None]]) -> None:
        """Queue calls behind those that wait."""
        self._pending_calls.extend(calls)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._start(self)

    def step(self) -> bool:
        """Make a limited number of the calls."""
        self._is_scheduled = False  # if one fails, the next commit makes the others
        for _ in range(min(_NOTIFY_BATCH_SIZE, len(self._pending_calls))):
            self._pending_calls.popleft()()
        self._is_scheduled = bool(self._pending_calls)
        return self._is_scheduled


class SowCommitter:
    """The helper thread for commits, shared by all files of an instance.

    Args:
        post: schedules calls on the engine's thread.
        synchronise: puts a file's content on stable storage.
        start: schedules work that is done in slices, on the engine's thread.
    """

    def __init__(
        self,
        post: CallScheduler,
        synchronise: Callable[[int], None] = os.fdatasync,
        start: Callable[[EngineTask], None] = _run_to_completion,
    ) -> None:
        self._post: Final = post
        self._callback_queue: Final = _CallbackQueue(start)
        self._synchronise: Final = synchronise
        self._sync_count = 0
        self._jobs: SimpleQueue[CommitJob | threading.Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sow-commit", daemon=True)
        self._thread.start()

    def submit(self, job: CommitJob) -> None:
        """Queue a commit of a file."""
        self._jobs.put(job)

    def wait_for_jobs(self) -> None:
        """Wait until all jobs submitted so far are finished."""
        finished = threading.Event()
        self._jobs.put(finished)
        finished.wait()

    def close(self) -> None:
        """Finish the submitted jobs, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            queued = [self._jobs.get()]
            while not self._jobs.empty():
                queued.append(self._jobs.get())
            for jobs in _by_file([entry for entry in queued if isinstance(entry, CommitJob)]):
                self._commit_file(jobs)
            for entry in queued:
                if isinstance(entry, threading.Event):
                    entry.set()
            is_open = None not in queued

    def _commit_file(self, jobs: list[CommitJob]) -> None:
        try:
            self._synchronise(jobs[0].descriptor)
            jobs[-1].on_synced()
        except OSError as error:
            calls = [partial(job.on_failed, error) for job in jobs]
        else:
            self._sync_count += 1
            calls = [partial(job.on_done, self._sync_count) for job in jobs]
        self._post(partial(self._callback_queue.queue_calls, calls))


def _by_file(jobs: list[CommitJob]) -> list[list[CommitJob]]:
    files: dict[int, list[CommitJob]] = {}
    for job in jobs:
        files.setdefault(job.descriptor, []).append(job)
    return list(files.values())
