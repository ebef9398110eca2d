"""A directory with people, and a server that asks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.ldap.support import BOTH, PEOPLE, server_for
from tests.support.directory import RunningDirectory, running_directory
from tests.support.server import RunningServer


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDirectory]:
    with running_directory(tmp_path_factory.mktemp("ldap") / "d", PEOPLE, BOTH) as running:
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, directory: RunningDirectory
) -> Iterator[RunningServer]:
    with server_for(tmp_path_factory.mktemp("server"), directory.port) as running:
        yield running
