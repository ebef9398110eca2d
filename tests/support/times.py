"""Where the time of a run of tests goes: `make test-times`, or `pytest --times`.

Three tables: the files of tests, the fixtures, and what tests wait for. Seconds are those that
passed, of all processes of tests together, and those of a processor that the process of the tests
and the programs that it has run have used. Servers are not in the latter; they have a row of their
own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

ROWS: Final = 40
"""Rows of a table at most: those that took longest."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")

_used_by: Final[dict[int, float]] = {}
"""By the process of a server, what is known to have been used by it."""

_Table = dict[str, list[float]]
_tables: Final[dict[str, _Table]] = {"files": {}, "fixtures": {}, "waits": {}}
"""By the name of the table, the rows: how often, seconds, seconds of a processor."""


def note(table: str, row: str, seconds: float, used: float) -> None:
    """Add to a row."""
    entry = _tables[table].setdefault(row, [0, 0.0, 0.0])
    for place, value in enumerate((1, seconds, used)):
        entry[place] += value


@contextmanager
def spending(table: str, row: str) -> Iterator[None]:
    """Add the time that something takes to a row."""
    begun, used = time.monotonic(), _used()
    try:
        yield
    finally:
        note(table, row, time.monotonic() - begun, _used() - used)


def note_server(pid: int) -> None:
    """Take note of what a server has used so far; it is about to be sent a signal."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = sum(map(int, fields[11:13])) / _TICKS
        note("waits", "servers, whatever they do", 0.0, used - _used_by.get(pid, 0.0))
        _used_by[pid] = used


class Times:
    """A plugin that measures, in processes of tests, and prints, in the one that begins them."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        time.sleep = _measured(time.sleep, "waits", "sleeps, also those of the rows below")
        subprocess.Popen.communicate = _measured(  # type: ignore[method-assign]
            subprocess.Popen.communicate, "waits", "programs, until they end"
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test."""
        with spending("files", item.nodeid.partition("::")[0]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Measure a fixture; those that it needs have been made before."""
        with spending("fixtures", f"{fixturedef.baseid or 'everywhere'}: {fixturedef.argname}"):
            return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what was measured in a process of tests."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["times"] = _tables

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what was measured in another process."""
        for table, rows in getattr(node, "workeroutput", {}).get("times", {}).items():
            for row, (count, seconds, used) in rows.items():
                note(table, row, seconds, used)
                _tables[table][row][0] += count - 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables."""
        took = time.monotonic() - self._begun
        terminalreporter.section(f"times of {took:.0f} seconds")
        for name, rows in _tables.items():
            for line in _lines(name, rows):
                terminalreporter.write_line(line)


def _lines(name: str, rows: _Table) -> Iterable[str]:
    yield f"{'seconds':>9} {'processor':>9} {'times':>8}  {name}"
    ordered = sorted(rows.items(), key=lambda row: -max(row[1][1:]))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for place, (row, (count, seconds, used)) in enumerate(ordered):
        shown = row if place < ROWS else "others"
        for at, value in enumerate((seconds, used, count)):
            sums[shown][at] += value
            sums["all"][at] += value
    last = sums.pop("all", [0.0] * 3)
    for row, (seconds, used, count) in [*sums.items(), ("all", last)]:
        yield f"{seconds:9.1f} {used:9.1f} {count:8.0f}  {row}"


def _used() -> float:
    """Seconds of a processor that this process has used, and the programs that it has run."""
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _measured(function: Callable[..., Any], table: str, row: str) -> Callable[..., Any]:
    def measured(*arguments: Any, **keys: Any) -> Any:
        with spending(table, row):
            return function(*arguments, **keys)

    return measured
