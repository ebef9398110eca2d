"""A real browser for all tests of the console, and the option for its screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.console.browser import CHROMIUM, DRIVER, Browser, running_browser


def require_chromium() -> None:
    """Skip a test where there is no browser."""
    for program in (CHROMIUM, DRIVER):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here, which shows the console")
    pytest.importorskip("selenium")


@pytest.fixture(scope="session")
def chromium(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    require_chromium()
    with running_browser(tmp_path_factory.mktemp("chromium")) as browser:
        browser.is_thorough = pytestconfig.getoption("--long")
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser. Its pages try nothing that they may not do, and nothing goes wrong in them."""
    chromium.begin()
    yield chromium
    complaints = chromium.complaints()
    chromium.rest()
    assert complaints == []


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """Where screenshots go; None unless they are asked for."""
    given = request.config.getoption("--screenshots")
    return None if given is None else Path(given)
