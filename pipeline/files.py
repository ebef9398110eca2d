"""Files that a job leaves behind: complete, or not there.

A job writes what it makes into a folder beside the target, so that nobody who looks for files below
the target, however that is done, finds one that is half-made. Then it stores a list of what has to
be moved where, and moves it. If it dies in between, the next run finds the list and moves the rest.

A new file comes into its place at once. Where files replace others, the whole folder that they are
in changes places with one that has been made: whoever lists it sees the one or the other.
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

from pipeline.errors import PipelineError
from pipeline.exchanging import take_place

FOLDER: Final = "_amps_pipeline"
"""The folder in the target that is the job's own: what it remembers. Others hold data."""

_VERSION: Final = 1


class State(msgspec.Struct):
    """What a job remembers from run to run.

    Attributes:
        version: of this format.
        job: the job that it belongs to.
        id: of the work that the runs continue.
        source: what the job reads.
        reached: for each instance the last txid that has been dealt with.
        marks: for each instance a mark of that entry, if it is known; see `pipeline.journal.marks`.
        runs: how many have left files behind.
        batch: the last micro-batch of the stream that has been dealt with, if there is one.
        columns: the fields of messages that the files have; empty if they have whole messages.
        partition_by: the field that the files are divided by, beside topic and date; empty if none.
        format: what the files are part of; empty for nothing.
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


class Swap(msgspec.Struct):
    """A folder that takes the place of another one.

    Attributes:
        made: the new one, relative to the target.
        place: where it belongs, relative to the target.
        mark: a file that is in the new one, and never was in the other.
    """

    made: str
    place: str
    mark: str


class Commit(msgspec.Struct):
    """What has to be done to make a run's results visible.

    Attributes:
        moves: files, from the staging folder, to where they belong; both relative to the target.
        removals: files and folders that go, relative to the target.
        state: what is to be remembered then.
        swaps: folders that take the place of others.
        rows: whether what has been staged is added to a table, or takes the place of what it has;
            None where there are files alone.
    """

    moves: list[tuple[str, str]]
    removals: list[str]
    state: State
    swaps: list[Swap] = []
    rows: Literal["append", "overwrite"] | None = None


class Target:
    """A directory that one job at a time adds files to.

    Args:
        path: the directory; made if it is not there.

    Attributes:
        path: the directory.
        work: a folder on the same file system for what is being made; it is emptied when a run
            begins, and whenever something has come into its place.
        staging: in there, where a run puts its files.
        checkpoint: where a stream keeps its place.
        format: what the files are part of, as a state has it.
        has_folders: whether rows are divided by the folders that their files are in.
    """

    format = ""
    has_folders = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = path / FOLDER
        self._state = self._own / "state.json"
        self._commit = self._own / "commit.json"
        self.work = _beside(path)
        self.staging = self.work / "staging"
        self.checkpoint = self._own / "checkpoint"

    @contextlib.contextmanager
    def possession(self) -> Iterator[None]:
        """Keep other runs out, and put in order what one before may have left.

        Raises:
            PipelineError: another run is at work, or the directory cannot be used.
        """
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as problem:
            raise PipelineError(f"{self.path}: {problem.strerror or problem}") from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PipelineError(f"{self.path}: another run is writing to it") from None
        try:
            self._complete()
            yield
        finally:
            if not self._commit.exists():  # which needs what has been staged
                self._clear()
            os.close(descriptor)

    def state(self) -> State | None:
        """What the runs before remember; None if there were none.

        Raises:
            PipelineError: it cannot be read.
        """
        return read_state(self._state)

    def remember(self, state: State) -> None:
        """Note down what is known before anything is exported.

        Args:
            state: to be remembered.
        """
        store(self._state, msgspec.json.encode(state))

    def is_used(self) -> bool:
        """Whether something has been put there, whatever is remembered of it."""
        return self.checkpoint.exists()

    def finish(self, state: State) -> int:
        """Add what is in the staging folder to what is there.

        Args:
            state: to be remembered.

        Returns:
            How many files there were.
        """
        staged = self._staged()
        state.runs += 1
        moves = []
        for name in staged:
            # Names of later runs come behind those of earlier ones.
            new = Path(name).with_name(f"{state.runs:08}-{Path(name).name}")
            moves.append((self._inside(self.staging / name), str(new)))
        self.commit(Commit(moves, [], state))
        return len(staged)

    def replace(self, state: State) -> int:
        """Have what is in the staging folder, and nothing else; see `finish`."""
        staged = self._staged()
        state.runs += 1
        swaps: dict[str, Swap] = {}
        for name in staged:
            place, *inside = Path(name).parts
            made = self._inside(self.staging / place)
            swaps.setdefault(place, Swap(made, place, str(Path(*inside))))
        gone = {path.name for path in self.path.glob("topic=*")} - swaps.keys()
        self.commit(Commit([], sorted(gone), state, list(swaps.values())))
        return len(staged)

    def swap(self, made: Path, place: Path, mark: str, state: State) -> None:
        """Put a folder into the place of another one.

        Args:
            made: the new one, below `work`.
            place: where it belongs.
            mark: the name of a file in it that is not in the other one.
            state: to be remembered.
        """
        swap = Swap(self._inside(made), self._inside(place), mark)
        self.commit(Commit([], [], state, [swap]))

    def commit(self, commit: Commit) -> None:
        """Make what has been staged visible: all of it, whatever happens meanwhile."""
        store(self._commit, msgspec.json.encode(commit))
        self._complete()

    def _complete(self) -> None:
        if self._commit.exists():
            commit = msgspec.json.decode(self._commit.read_bytes(), type=Commit)
            self._show(commit)
            store(self._state, msgspec.json.encode(commit.state))
            self._commit.unlink()
        self._clear()

    def _show(self, commit: Commit) -> None:
        """Do what a commit says, as far as it has not been done."""
        changed = {self._move(old, new) for old, new in commit.moves}
        changed |= {self._swap(swap) for swap in commit.swaps}
        for name in set(commit.removals) - {new for _, new in commit.moves}:
            self._remove(name)
        for folder in changed:
            sync(folder)

    def _move(self, old: str, new: str) -> Path:
        """Put a file into its place, if it has not been put there; gives the folder."""
        place = self.path / new
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.path / old).replace(place)
        return place.parent

    def _swap(self, swap: Swap) -> Path:
        """Put a folder into its place, if it has not been put there; gives the one around it."""
        place = self.path / swap.place
        if not (place / swap.mark).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            take_place(self.path / swap.made, place)
        return place.parent

    def _remove(self, name: str) -> None:
        """Take a file or folder away at once."""
        self.work.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.path / name).rename(self.work / uuid.uuid4().hex)

    def _clear(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def _staged(self) -> list[str]:
        """The files in the staging folder, relative to it, all of them on stable storage."""
        found = [path for path in sorted(self.staging.rglob("*.parquet")) if path.is_file()]
        for path in found:
            sync(path)
        return [str(path.relative_to(self.staging)) for path in found]

    def _inside(self, path: Path) -> str:
        return os.path.relpath(path, self.path)


def _beside(path: Path) -> Path:
    """A folder on the file system of a target that nobody looks into who looks into the target.

    Beside a target that is a file system of its own there is none.
    """
    path = path.resolve()
    if path.is_mount():
        return path / FOLDER / "work"
    return path.with_name(f".{path.name}{FOLDER}")


def read_state(path: Path) -> State | None:
    """What a job remembers; None if there is nothing yet.

    Raises:
        PipelineError: the file cannot be read.
    """
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as problem:
        raise PipelineError(f"{path}: cannot be read: {problem}; remove it to begin anew") from None
    if state.version != _VERSION:
        raise PipelineError(f"{path}: has version {state.version}; this program reads {_VERSION}")
    return state


@contextlib.contextmanager
def new_path(path: Path) -> Iterator[Path]:
    """Make a new file or directory: all of it, or nothing.

    Args:
        path: where it is to be.

    Yields:
        Where it is made; it is removed if that fails.

    Raises:
        PipelineError: there is something already.
    """
    refuse_existing(path)
    half_made = path.with_name(path.name + ".tmp").resolve()
    _remove(half_made)
    try:
        yield half_made
    except BaseException:
        _remove(half_made)
        raise
    half_made.rename(path)


def refuse_existing(path: Path) -> None:
    """Never write over what is there.

    Raises:
        PipelineError: there is something already.
    """
    if path.exists():
        raise PipelineError(f"{path}: is there already; move it away")


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def store(path: Path, data: bytes) -> None:
    """Put a small file in place: all of it, safely, or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a file or folder on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
