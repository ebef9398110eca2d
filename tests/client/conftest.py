"""Both shells, with one connection and staying connected, for tests that mean either."""

from __future__ import annotations

import pytest

from tests.client.shells import CONNECTS, HA_SHELLS, SHELLS, Connect, NewClient, NewHAClient


@pytest.fixture(params=SHELLS)
def new_client(request: pytest.FixtureRequest) -> NewClient:
    return SHELLS[request.param]


@pytest.fixture(params=HA_SHELLS)
def new_ha_client(request: pytest.FixtureRequest) -> NewHAClient:
    return HA_SHELLS[request.param]


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Connect:
    return CONNECTS[request.param]
