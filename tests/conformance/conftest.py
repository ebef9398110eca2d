"""A server for the tests of a module, its clients, and directories for what it moves away."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server

server = module_server()


@pytest.fixture
def peer(server: RunningServer) -> Iterator[RawPeer]:
    """A client."""
    with server.log_on() as peer:
        yield peer


@pytest.fixture
def other(server: RunningServer) -> Iterator[RawPeer]:
    """Another one."""
    with server.log_on("other") as peer:
        yield peer


@pytest.fixture
def archive() -> Iterator[Path]:
    """A directory for old journals: on another file system, where there is one."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield directory
    shutil.rmtree(directory)
