"""Which tests start processes: those that `make check` leaves out.

A test that starts a server, Spark or any other program takes seconds, any other milliseconds. The
former have the mark `process`. They get it by themselves where the names in the code of a test and
of its fixtures lead to what starts processes, through whatever functions of tests/. Where the
product starts one, the test says so with `@pytest.mark.process`, and `Guard` sees to that: a test
without the mark that starts a process fails.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

import pipeline

MARK: Final = "process"

STARTED: Final = "tests.process_started"
"""The audit event of processes for which Python has none."""

_STARTERS: Final = (subprocess, multiprocessing, os.fork, pipeline.session)
_EVENTS: Final = frozenset(
    {STARTED, "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
)


def mark_tests(items: list[pytest.Item]) -> None:
    """Mark the tests that start processes."""
    known: dict[FunctionType, bool] = {}
    marked: dict[object, bool] = {}  # all cases of a test function have the same fixtures
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        test = (item.parent, item.function)
        if test not in marked:
            marked[test] = any(_leads_to_start(function, known) for function in _functions(item))
        if marked[test]:
            item.add_marker(MARK)


class Guard:
    """A plugin that fails tests that start processes and have no mark."""

    def __init__(self) -> None:
        self._started: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS:
            self._started.append(f"{event} {arguments[:1] or ''}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin anew with every test."""
        self._started.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Look at what the test has done, if it has passed."""
        yield
        if self._started and item.get_closest_marker(MARK) is None:
            pytest.fail(
                f"starts a process ({self._started[0]}), which the tests of `make check` do not:"
                f" mark it with @pytest.mark.{MARK}, or do without",
                pytrace=False,
            )


def _functions(item: pytest.Function) -> Iterator[object]:
    """What runs for a test: its function, and its fixtures'."""
    yield item.function
    for fixtures in item._fixtureinfo.name2fixturedefs.values():
        yield fixtures[-1].func


def _leads_to_start(function: object, known: dict[FunctionType, bool]) -> bool:
    function = inspect.unwrap(function) if callable(function) else function
    if not isinstance(function, FunctionType):
        return False
    if function not in known:
        known[function] = False  # until everything that it names has been looked at
        known[function] = any(
            any(value is starter for starter in _STARTERS)
            or any(_leads_to_start(part, known) for part in _parts(value))
            for value in _named(function)
        )
    return known[function]


def _named(function: FunctionType) -> Iterator[object]:
    """What a function's code names: what its module has, and what modules there have."""
    names = set(_names(function.__code__))
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value)[member] for member in names & vars(value).keys())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _parts(value: Any) -> Iterator[object]:
    """The functions of tests/ that may run where a value is used."""
    if str(getattr(value, "__module__", "")).startswith("tests."):
        yield value
        if isinstance(value, type):
            yield from vars(value).values()
