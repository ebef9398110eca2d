"""The identity of a checkpoint: Spark keeps the state of a query there, but does not check which.

The state of one view is invalid for another, so the first run stores its identity, and later runs
must have the same one. One run at a time may use a checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pipeline.errors import PipelineError
from pipeline.files import store

_FILE: Final = "amps-view.json"
_LOCK: Final = "amps-view.lock"
_VERSION: Final = 1


class ViewIdentity(msgspec.Struct, frozen=True):
    """The properties that must not change between two runs.

    Attributes:
        view: the view, and its underlying topics, as configured.
        source: the source of events.
        target: the destination of its records.
        version: the version of the state's format.
    """

    view: str
    source: str
    target: str
    version: int = _VERSION


@contextlib.contextmanager
def lock_checkpoint(path: Path, identity: ViewIdentity) -> Iterator[bool]:
    """Lock a checkpoint against other runs, and check its identity.

    Args:
        path: its directory; created if missing.
        identity: the identity of the run.

    Yields:
        True if it is new. Its identity has to be stored (`store_identity`) before any state.

    Raises:
        PipelineError: it has another identity, another run uses it, or it cannot be used.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in path.iterdir()}
        if names and names.isdisjoint((_FILE, _LOCK)):
            raise PipelineError(f"checkpoint {path}: contains other files; give a new directory")
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        raise PipelineError(f"checkpoint {path}: {problem.strerror or problem}") from problem
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise PipelineError(f"checkpoint {path}: another run is using it") from None
    try:
        yield _is_new(path, identity)
    finally:
        os.close(descriptor)


def store_identity(path: Path, identity: ViewIdentity) -> None:
    """Store the identity of a checkpoint."""
    store(path / _FILE, msgspec.json.encode(identity))


def _is_new(path: Path, identity: ViewIdentity) -> bool:
    try:
        text = (path / _FILE).read_bytes()
        before = msgspec.json.decode(text, type=ViewIdentity)
    except FileNotFoundError:
        return True
    except (OSError, msgspec.MsgspecError) as problem:
        raise PipelineError(f"checkpoint {path}: {_FILE} cannot be read: {problem}") from None
    for name in ViewIdentity.__struct_fields__:
        if getattr(before, name) != getattr(identity, name):
            raise PipelineError(
                f"checkpoint {path}: belongs to another {name}, {getattr(before, name)}; this is"
                f" {getattr(identity, name)}: give a new directory to start anew"
            )
    return False
