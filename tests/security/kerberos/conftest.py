"""A realm with users, and a server that takes their tickets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.kerberos.support import server_for
from tests.support.realm import Realm, running_realm
from tests.support.server import RunningServer, free_port


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    users = {"ann": "ann-s3cret", "bob": "bob-s3cret", "ann/admin": "admin-s3cret"}
    with running_realm(tmp_path_factory.mktemp("realm"), **users) as running:
        yield running


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {"admin": free_port(), "browsers": free_port()}


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, realm: Realm, ports: dict[str, int]
) -> Iterator[RunningServer]:
    with server_for(tmp_path_factory.mktemp("server"), realm, ports) as running:
        yield running


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> dict[str, str]:
    """The environment of a program of ann's."""
    return realm.kinit("ann", "ann-s3cret", tmp_path_factory.mktemp("ann") / "cache")
