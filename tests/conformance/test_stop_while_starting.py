"""Signals that come while a server still brings its records up to date."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.forked import ForkedProcess
from tests.support.raw import frame
from tests.support.server import RunningServer, running_server, wait_until_started
from tests.support.sow import query
from tests.support.waiting import wait_until

MESSAGES = 60_000
"""Enough for a recovery that can be interrupted."""

ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>64MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do><Module>amps-action-do-echo-message</Module>
      <Options><Message>counted</Message></Options></Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a configuration, and a log whose records have to be brought back."""
    directory = tmp_path_factory.mktemp("filled")
    with running_server(directory, elements=ELEMENTS) as server:
        with server.log_on("p") as peer:
            for start in range(0, MESSAGES, 10_000):
                peer.socket.sendall(
                    b"".join(
                        frame({"c": "publish", "t": "orders"}, b'{"id":%d}' % (number % 100))
                        for number in range(start, start + 10_000)
                    )
                )
            peer.send({"c": "flush", "cid": "flush", "a": "completed"})
            peer.receive()
        assert server.stop() == 0
    return directory


@contextmanager
def recovering(directory: Path) -> Iterator[RunningServer]:
    """A server that has read its log, and is at work on its records."""
    log_file = directory / "again.log"
    process = ForkedProcess(directory, Path("config.xml"), log_file, None)
    server = RunningServer(0, process, log_file)
    try:
        wait_until(lambda: "1D-0009" in server.log(), server.log)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_is_clean_and_does_not_wait_for_the_end(
    filled: Path, number: signal.Signals
) -> None:
    with recovering(filled) as server:
        assert server.stop(number) == 0
        log = server.log()
        assert f"FF-0001 AMPS shutdown requested by signal {number.name}" in log
        assert "FF-0002" in log
        assert "1D-0001" not in log  # it has not got to the end
        assert "initialization completed" not in log


def test_other_signals_are_kept_until_the_start_is_done(filled: Path) -> None:
    with recovering(filled) as server:
        server.process.send_signal(signal.SIGUSR1)
        server.process.send_signal(signal.SIGUSR2)
        server.process.send_signal(signal.SIGQUIT)
        wait_until_started(server)
        assert server.logs("29-0103 counted")
        assert server.logs("entitlement switched on")
        assert server.process.poll() is None
        assert server.stop() == 0
    with running_server(filled, elements=ELEMENTS) as server, server.log_on() as peer:
        assert len(query(peer, "orders").records) == 100
