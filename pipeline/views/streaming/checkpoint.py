"""What a checkpoint belongs to: Spark keeps the state of a query there, and does not ask of which.

State of one view makes nonsense of another, so the first run notes down what it was, and later runs
have to be the same. One run at a time may use it.
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


class Identity(msgspec.Struct, frozen=True):
    """What must not change between two runs.

    Attributes:
        view: the view, and what it is made of, as the configuration says it.
        source: what is followed.
        target: where its records go.
        version: of the state's form.
    """

    view: str
    source: str
    target: str
    version: int = _VERSION


@contextlib.contextmanager
def possession(path: Path, identity: Identity) -> Iterator[bool]:
    """Use a checkpoint, and keep other runs out.

    Args:
        path: its directory; made if it is not there.
        identity: what it is used for.

    Yields:
        Whether it is new. It has to be noted down (`note`) before anything is kept in it.

    Raises:
        PipelineError: it belongs to something else, another run uses it, or it cannot be used.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        there = {one.name for one in path.iterdir()}
        if there and there.isdisjoint((_FILE, _LOCK)):
            raise PipelineError(
                f"checkpoint {path}: has something else in it; name a new directory"
            )
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


def note(path: Path, identity: Identity) -> None:
    """Note down what a checkpoint is for."""
    store(path / _FILE, msgspec.json.encode(identity))


def _is_new(path: Path, identity: Identity) -> bool:
    try:
        text = (path / _FILE).read_bytes()
        before = msgspec.json.decode(text, type=Identity)
    except FileNotFoundError:
        return True
    except (OSError, msgspec.MsgspecError) as problem:
        raise PipelineError(f"checkpoint {path}: {_FILE} cannot be read: {problem}") from None
    for name in Identity.__struct_fields__:
        if getattr(before, name) != getattr(identity, name):
            raise PipelineError(
                f"checkpoint {path}: belongs to another {name}, {getattr(before, name)}; this is"
                f" {getattr(identity, name)}: name a new directory to begin anew"
            )
    return False
