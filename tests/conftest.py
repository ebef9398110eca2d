"""How all tests run."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.bytecode import import_share
from tests.support.chances import examples
from tests.support.long_form import leave_out_long
from tests.support.processes import MARK, Guard, mark_tests
from tests.support.scheduling import Scheduling, longest_first
from tests.support.times import Times

# A busy machine is no reason to fail: nothing here asserts a time. In CI the same examples are
# tried every time, so that a change is judged by what it changes; elsewhere new ones are looked
# for. Tests that do not say how many they try take 10, and 100 in `make test-long`.
settings.register_profile(
    "default",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("default")

# As pytest does, but before the server is imported, which another conftest may do: its own handler
# of bus errors has to be the first that is asked.
faulthandler.enable()

# A shell starts what runs in the background with interrupts ignored, and every process that tests
# start inherits that; those that are interrupted by a test would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as cores; three more for tests that wait for servers more than they compute."""
    waits: bool = config.getoption("markexpr") != f"not {MARK}"
    return (os.cpu_count() or 1) + 3 * waits


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """See `tests.support.scheduling`."""
    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """See `tests.support.processes` and `tests.support.times`."""
    config.pluginmanager.register(Guard())
    if config.getoption("--times"):
        config.pluginmanager.register(Times())


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests without garbage collections: modules and tests are all kept to the end.

    Later collections do not traverse them either, and are less frequent than by default: tests make
    many objects that go with their last references. See also `tests.support.bytecode`.
    """
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See `tests.support.long_form`, `tests.support.processes` and `tests.support.scheduling`."""
    leave_out_long(config, items)
    mark_tests(items)
    for item in items:
        if "seeds" in getattr(item, "fixturenames", ()):
            item.add_marker("long")
    longest_first(items)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of our own."""
    parser.addoption(
        "--long",
        action="store_true",
        help="also the tests of `make test-long` alone, and minutes instead of seconds for leaks",
    )
    parser.addoption(
        "--times",
        action="store_true",
        help="tell where the time goes: files, fixtures, and what tests wait for",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the program says now into the golden files, to be reviewed as a change",
    )
    parser.addoption(
        "--screenshots",
        metavar="DIRECTORY",
        help="where to put pictures of the console; docs/console has those of its page",
    )
