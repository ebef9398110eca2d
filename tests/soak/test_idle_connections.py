"""Thousands of connections that say nothing cost memory, and nothing else."""

from __future__ import annotations

import contextlib
import resource
import warnings
from pathlib import Path

import pytest

from tests.soak.process import open_files, raise_limit_of_connections, resident_bytes
from tests.support.server import running_server

CONNECTIONS, SOAK_CONNECTIONS = 2_000, 10_000
MAX_BYTES_EACH = 32 * 1024


@pytest.mark.long
def test_thousands_of_connections_stay_and_are_served(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """All log on, none is dropped, the last one still gets its messages; memory stays small."""
    wanted = SOAK_CONNECTIONS if pytestconfig.getoption("--long") else CONNECTIONS
    count = min(wanted, raise_limit_of_connections())
    if count < wanted:
        warnings.warn(f"the limit of open files allows {count} connections only", stacklevel=1)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(tmp_path))
        pid = server.process.pid
        first = stack.enter_context(server.log_on("first"))
        memory, files = resident_bytes(pid), open_files(pid)
        peers = [stack.enter_context(server.log_on(f"idle-{n}")) for n in range(count)]
        bytes_each = (resident_bytes(pid) - memory) / count
        assert open_files(pid) == files + count
        assert bytes_each < MAX_BYTES_EACH
        peers[-1].subscribe("still-there", "1")
        first.publish("still-there", b"yes")
        assert peers[-1].receive()[1] == b"yes"


def test_the_server_uses_all_open_files_that_it_may_have(tmp_path: Path) -> None:
    """A login shell's soft limit is no limit: 64 files would not do for 100 connections."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(tmp_path, prepare=allow_few_files))
        for number in range(100):
            stack.enter_context(server.log_on(f"client-{number}"))


def allow_few_files() -> None:
    """Set the soft limit that a login shell sets, only lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
