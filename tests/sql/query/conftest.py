"""One engine for all tests of a module: it takes a moment to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.sql.query.query_engine import QueryEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[QueryEngine]:
    engine = QueryEngine()
    yield engine
    engine.close()
