"""Both shells, for tests that mean either."""

from __future__ import annotations

import pytest

from tests.client.shells import SHELLS, NewClient


@pytest.fixture(params=SHELLS)
def new_client(request: pytest.FixtureRequest) -> NewClient:
    return SHELLS[request.param]
