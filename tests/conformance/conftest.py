"""A server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests of a module; each test makes connections and topics of its own."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running
