"""Output files of a job: complete, or absent.

A job writes its files into a folder beside the target, so that no reader of the target, by any
method, finds a partial file. Then it stores a list of the moves to make, and makes them. If it is
killed in between, the next run finds the list and makes the remaining moves. A new file appears in
its place atomically. Where files replace others, their whole folder is exchanged for a new one: a
reader that lists it sees either the old or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from pipeline.atomic_swap import swap_folder
from pipeline.errors import PipelineError

FOLDER: Final = "_amps_pipeline"
"""The folder in the target with the job's own state. Other folders hold data."""

_VERSION: Final = 1


class JobState(msgspec.Struct):
    """The state of a job that is kept between runs.

    Attributes:
        version: the version of this format.
        job: the job that the state belongs to.
        id: the id of the work that the runs continue.
        source: the source of the job.
        reached: for each instance the last txid that has been processed.
        marks: for each instance a mark of that entry, if known; see `pipeline.journal.marks`.
        runs: the number of runs that wrote files.
        batch: the last micro-batch of the stream that has been processed, if there is one.
        columns: the fields of messages that the files have; empty if they have whole messages.
        partition_by: the field that partitions the files, besides topic and date; empty if none.
        format: the table format of the files; empty for plain files.
    """

    job: str
    id: str
    source: str
    reached: dict[str, int] = {}
    marks: dict[str, str] = {}
    runs: int = 0
    batch: int = -1
    columns: str = ""
    partition_by: str = ""
    format: str = ""
    version: int = _VERSION


class FolderSwap(msgspec.Struct):
    """A folder that replaces another one.

    Attributes:
        made: the new folder, relative to the target.
        place: its place, relative to the target.
        mark: a file that is in the new folder, and never was in the old one.
    """

    made: str
    place: str
    mark: str


class RunCommit(msgspec.Struct):
    """The steps that make a run's results visible.

    Attributes:
        moves: files in the staging folder, and their places; both relative to the target.
        removals: files and folders to remove, relative to the target.
        state: the state to store then.
        swaps: folders that replace others.
        rows: whether the staged rows are appended to a table, or replace its rows; None for plain
            files.
    """

    moves: list[tuple[str, str]]
    removals: list[str]
    state: JobState
    swaps: list[FolderSwap] = []
    rows: Literal["append", "overwrite"] | None = None


class JobTarget:
    """A directory that one job at a time adds files to.

    Args:
        path: the directory; created if missing.

    Attributes:
        path: the directory.
        work_folder: a folder for files in progress on the same file system; it is emptied when a
            run begins, and after each commit.
        staging_folder: the folder in it where a run puts its files.
        checkpoint_folder: the checkpoint of a stream.
        format: the table format of the files, as in a state.
        has_partition_folders: whether rows are partitioned by the folders of their files.
    """

    format = ""
    has_partition_folders = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._job_folder = path / FOLDER
        self._state_path = self._job_folder / "state.json"
        self._commit_path = self._job_folder / "commit.json"
        self.work_folder = _work_folder_of(path)
        self.staging_folder = self.work_folder / "staging"
        self.checkpoint_folder = self._job_folder / "checkpoint"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out other runs, and complete or clean up after the previous one.

        Raises:
            PipelineError: another run has the lock, or the directory cannot be used.
        """
        try:
            self._job_folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._job_folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as problem:
            raise PipelineError(f"{self.path}: {problem.strerror or problem}") from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PipelineError(f"{self.path}: another run is writing to it") from None
        try:
            self._complete_commit()
            yield
        finally:
            if not self._commit_path.exists():  # a pending commit needs the staged files
                self._clear_work()
            os.close(descriptor)

    def read_state(self) -> JobState | None:
        """Return the state stored by earlier runs; None if there were none.

        Raises:
            PipelineError: it cannot be read.
        """
        return read_state(self._state_path)

    def store_state(self, state: JobState) -> None:
        """Store the state before anything is exported.

        Args:
            state: the state.
        """
        store(self._state_path, msgspec.json.encode(state))

    def is_used(self) -> bool:
        """Return whether the directory has exported files, even if it has no state."""
        return self.checkpoint_folder.exists()

    def append_staged(self, state: JobState) -> int:
        """Add the files in the staging folder to the target.

        Args:
            state: the state to store.

        Returns:
            The number of files.
        """
        staged = self._sync_staged_files()
        state.runs += 1
        moves = []
        for name in staged:
            # Names of later runs sort after those of earlier ones.
            new = Path(name).with_name(f"{state.runs:08}-{Path(name).name}")
            moves.append((self._relative_path(self.staging_folder / name), str(new)))
        self.commit(RunCommit(moves, [], state))
        return len(staged)

    def replace_with_staged(self, state: JobState) -> int:
        """Replace the contents of the target by the staging folder; see `append_staged`."""
        staged = self._sync_staged_files()
        state.runs += 1
        swaps: dict[str, FolderSwap] = {}
        for name in staged:
            place, *inside = Path(name).parts
            made = self._relative_path(self.staging_folder / place)
            swaps.setdefault(place, FolderSwap(made, place, str(Path(*inside))))
        removed_folders = {path.name for path in self.path.glob("topic=*")} - swaps.keys()
        self.commit(RunCommit([], sorted(removed_folders), state, list(swaps.values())))
        return len(staged)

    def swap_folder(self, new_folder: Path, place: Path, mark: str, state: JobState) -> None:
        """Replace a folder by another one.

        Args:
            new_folder: the new folder, below `work_folder`.
            place: its place.
            mark: the name of a file in it that is not in the old one.
            state: the state to store.
        """
        swap = FolderSwap(self._relative_path(new_folder), self._relative_path(place), mark)
        self.commit(RunCommit([], [], state, [swap]))

    def commit(self, commit: RunCommit) -> None:
        """Make the staged files visible: all of them, even after a crash in between."""
        store(self._commit_path, msgspec.json.encode(commit))
        self._complete_commit()

    def _complete_commit(self) -> None:
        if self._commit_path.exists():
            commit = msgspec.json.decode(self._commit_path.read_bytes(), type=RunCommit)
            self._apply_commit(commit)
            store(self._state_path, msgspec.json.encode(commit.state))
            self._commit_path.unlink()
        self._clear_work()

    def _apply_commit(self, commit: RunCommit) -> None:
        """Execute the steps of a commit that have not been executed yet."""
        changed = {self._move_file(old, new) for old, new in commit.moves}
        changed |= {self._swap_into_place(swap) for swap in commit.swaps}
        for name in set(commit.removals) - {new for _, new in commit.moves}:
            self._remove(name)
        for folder in changed:
            sync(folder)

    def _move_file(self, old: str, new: str) -> Path:
        """Move a file into its place, unless that has been done; return its folder."""
        place = self.path / new
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.path / old).replace(place)
        return place.parent

    def _swap_into_place(self, swap: FolderSwap) -> Path:
        """Move a folder into its place, unless that has been done; return its parent."""
        place = self.path / swap.place
        if not (place / swap.mark).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            swap_folder(self.path / swap.made, place)
        return place.parent

    def _remove(self, name: str) -> None:
        """Remove a file or folder atomically."""
        self.work_folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.path / name).rename(self.work_folder / uuid.uuid4().hex)

    def _clear_work(self) -> None:
        shutil.rmtree(self.work_folder, ignore_errors=True)

    def _sync_staged_files(self) -> list[str]:
        """Sync the files in the staging folder; return their paths relative to it."""
        found = [path for path in sorted(self.staging_folder.rglob("*.parquet")) if path.is_file()]
        for path in found:
            sync(path)
        return [str(path.relative_to(self.staging_folder)) for path in found]

    def _relative_path(self, path: Path) -> str:
        return os.path.relpath(path, self.path)


def _work_folder_of(path: Path) -> Path:
    """Return a folder on the file system of a target that readers of the target do not see.

    If the target is a mount point, that is a folder inside it.
    """
    path = path.resolve()
    if path.is_mount():
        return path / FOLDER / "work"
    return path.with_name(f".{path.name}{FOLDER}")


def read_state(path: Path) -> JobState | None:
    """Return the state of a job; None if there is none yet.

    Raises:
        PipelineError: the file cannot be read.
    """
    try:
        state = msgspec.json.decode(path.read_bytes(), type=JobState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as problem:
        raise PipelineError(f"{path}: cannot be read: {problem}; remove it to start anew") from None
    if state.version != _VERSION:
        raise PipelineError(f"{path}: has version {state.version}, expected {_VERSION}")
    return state


@contextlib.contextmanager
def new_path(path: Path) -> Iterator[Path]:
    """Create a new file or directory: completely, or not at all.

    Args:
        path: the path.

    Yields:
        The temporary path; it is removed on failure.

    Raises:
        PipelineError: the path exists already.
    """
    refuse_existing(path)
    temporary = path.with_name(path.name + ".tmp").resolve()
    _remove(temporary)
    try:
        yield temporary
    except BaseException:
        _remove(temporary)
        raise
    temporary.rename(path)


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite a file or directory.

    Raises:
        PipelineError: the path exists.
    """
    if path.exists():
        raise PipelineError(f"{path}: exists already; move it away")


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def store(path: Path, data: bytes) -> None:
    """Write a small file atomically and durably."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
