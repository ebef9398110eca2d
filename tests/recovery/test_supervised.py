"""What a supervisor such as systemd hears of a server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.server import running_server
from tests.support.waiting import WAIT_SECONDS, wait_until

ELEMENTS = """
<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
<FileName>./orders.sow</FileName></Topic></SOW>
<TransactionLog><JournalDirectory>./journal</JournalDirectory><JournalSize>10MB</JournalSize>
<Topic><Name>orders</Name><MessageType>json</MessageType></Topic></TransactionLog>
<Actions><Action><On><Module>amps-action-on-startup</Module></On>
<Do><Module>amps-action-do-execute-system</Module>
<Options><Command>env > env.txt</Command></Options></Do></Action></Actions>
"""


@dataclass(frozen=True)
class Supervisor:
    """Prepares a process: it is watched from a socket."""

    address: str
    variables: dict[str, str]

    def __call__(self) -> None:
        os.environ["NOTIFY_SOCKET"] = self.address
        os.environ.update(self.variables)


@pytest.fixture(params=["path", "abstract"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Where a supervisor listens, and the socket's name in its notation."""
    path, abstract = str(tmp_path / "notify"), f"amperage-test-{os.getpid()}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(path if request.param == "path" else f"\0{abstract}")
        listening.settimeout(WAIT_SECONDS)
        yield listening, path if request.param == "path" else f"@{abstract}"


def hear(listening: socket.socket, until: str) -> list[str]:
    """Lines, up to the word that has this one."""
    lines: list[str] = []
    while until not in lines:
        lines += listening.recv(4096).decode().splitlines()
    return lines


def test_a_supervisor_hears_of_start_and_end(
    told: tuple[socket.socket, str], tmp_path: Path
) -> None:
    listening, address = told
    watch = Supervisor(address, {"WATCHDOG_USEC": "100000"})
    with running_server(tmp_path, elements=ELEMENTS, prepare=watch) as server:
        start = hear(listening, "READY=1")
        for step in (
            "the transaction log is opened",
            "records of orders are read",
            "records are brought up to date with the log",
            "transports are opened",
        ):
            assert f"STATUS=starting: {step}" in start
        assert "EXTEND_TIMEOUT_USEC=600000000" in start
        assert f"MAINPID={server.process.pid}" in start
        assert "WATCHDOG=1" not in start
        for _ in range(3):
            assert hear(listening, "WATCHDOG=1") == ["WATCHDOG=1"]
        assert server.stop() == 0
        assert "STOPPING=1" in hear(listening, "STATUS=stopping")


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "often"}],
    ids=["no", "somebody else's", "wrong"],
)
def test_nobody_watches_who_has_not_been_asked(tmp_path: Path, variables: dict[str, str]) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(WAIT_SECONDS)
        watch = Supervisor(str(tmp_path / "notify"), variables)
        with running_server(tmp_path, prepare=watch) as server:
            hear(listening, "READY=1")
            assert server.stop() == 0
            assert "WATCHDOG=1" not in hear(listening, "STOPPING=1")


def test_programs_that_the_server_starts_are_not_watched(tmp_path: Path) -> None:
    """And a supervisor that is not there is no trouble."""
    variables = {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": ""}
    watch = Supervisor(str(tmp_path / "nobody"), variables)
    with running_server(tmp_path, elements=ELEMENTS, prepare=watch):
        written = tmp_path / "env.txt"
        wait_until(lambda: written.exists() and "PATH=" in written.read_text())
        assert "NOTIFY_SOCKET" not in written.read_text()
        assert "WATCHDOG" not in written.read_text()
