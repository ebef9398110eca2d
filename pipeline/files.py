"""Files that a job leaves behind: complete, or not there.

A job writes what it makes into a folder of its own inside the target, whose name begins with an
underscore, so that neither Spark nor Arrow takes it for data. Then it stores a list of what has to
be moved where, and moves it. If it dies in between, the next run finds the list and moves the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pipeline.errors import PipelineError

FOLDER: Final = "_amps_pipeline"
"""The folder in the target that is the job's own."""

_VERSION: Final = 1


class State(msgspec.Struct):
    """What a job remembers from run to run.

    Attributes:
        version: of this format.
        job: the job that it belongs to.
        id: of the work that the runs continue.
        source: what the job reads.
        reached: for each instance the last txid that has been dealt with.
        files: what is in the target because of the last run, where a run replaces them.
    """

    job: str
    id: str
    source: str
    reached: dict[str, int] = {}
    files: list[str] = []
    version: int = _VERSION


class Commit(msgspec.Struct):
    """What has to be done to make a run's results visible.

    Attributes:
        moves: files, from the staging folder, to where they belong; both relative to the target.
        removals: files that they replace.
        state: what is to be remembered then.
    """

    moves: list[tuple[str, str]]
    removals: list[str]
    state: State


class Target:
    """A directory that one job at a time adds files to.

    Args:
        path: the directory; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = path / FOLDER
        self.staging = self._own / "staging"
        self._state = self._own / "state.json"
        self._commit = self._own / "commit.json"

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
            self._complete()
            shutil.rmtree(self.staging, ignore_errors=True)
            yield
        except BlockingIOError:
            raise PipelineError(f"{self.path}: another run is writing to it") from None
        finally:
            os.close(descriptor)

    def state(self) -> State | None:
        """What the runs before remember; None if there were none.

        Raises:
            PipelineError: it cannot be read.
        """
        return read_state(self._state)

    def finish(self, state: State, *, replaces: bool = False) -> int:
        """Put what is in the staging folder in its place.

        Args:
            state: to be remembered.
            replaces: whether the files of the run before go away.

        Returns:
            How many files there were.
        """
        found = [path for path in sorted(self.staging.rglob("*.parquet")) if path.is_file()]
        inside = [str(path.relative_to(self.staging)) for path in found]
        before = self.state()
        removals = before.files if replaces and before is not None else []
        state.files = inside if replaces else []
        staging = self.staging.relative_to(self.path)
        moves = [(str(staging / name), name) for name in inside]
        for path in found:
            _sync(path)
        store(self._commit, msgspec.json.encode(Commit(moves, removals, state)))
        self._complete()
        shutil.rmtree(self.staging, ignore_errors=True)
        return len(found)

    def _complete(self) -> None:
        if not self._commit.exists():
            return
        commit = msgspec.json.decode(self._commit.read_bytes(), type=Commit)
        for old, new in commit.moves:
            target = self.path / new
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # it has been moved already
                (self.path / old).replace(target)
        for name in set(commit.removals) - {new for _, new in commit.moves}:
            (self.path / name).unlink(missing_ok=True)
        store(self._state, msgspec.json.encode(commit.state))
        self._commit.unlink()


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
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
