"""Files and directories that the server may not use: a line says which, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.modes import bind_by_modes
from tests.support.server import CONFIGURATION, running_configuration, running_server, why_no_start
from tests.support.sow import CHAINED_TOPIC, CHAINING

RECORDS = """
<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <FileName>data/orders.sow</FileName></Topic></SOW>
"""
JOURNAL = """
<TransactionLog>
  <JournalDirectory>data</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
CHAINS = f"<SOW>{CHAINED_TOPIC}</SOW>{CHAINING}".replace("ids.chain", "data/ids.chain")
FIRST = "test-instance.0000000000.journal"


def closed(path: Path) -> None:
    """A file that nobody may open."""
    path.write_text("precious")
    path.chmod(0)


def closed_directory(path: Path) -> None:
    path.parent.chmod(0)


def read_only_directory(path: Path) -> None:
    path.parent.chmod(0o555)


@pytest.mark.parametrize(
    ("elements", "name", "make"),
    [
        (RECORDS, "orders.sow", closed),
        (RECORDS, "orders.sow", closed_directory),
        (RECORDS, "orders.sow", read_only_directory),
        (CHAINS, "ids.chain", closed),
        (CHAINS, "ids.chain", closed_directory),
        (CHAINS, "ids.chain", read_only_directory),
        (JOURNAL, FIRST, closed),
        (JOURNAL, "test-instance.clients.ack", closed),
        (JOURNAL, "test-instance.queues.ack", closed),
        (JOURNAL, "test-instance.0000000000.index.gz", closed),
        (JOURNAL, FIRST, closed_directory),
        (JOURNAL, FIRST, read_only_directory),
    ],
)
def test_the_start_says_what_it_may_not_use(
    tmp_path: Path, elements: str, name: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir()
    make(path)
    said = why_no_start(tmp_path, elements, prepare=bind_by_modes)
    path.parent.chmod(0o755)
    [reason] = [line for line in said.splitlines() if "00-0012" in line]
    assert "Permission denied" in reason
    assert "data" in reason
    assert "config.xml:" in reason
    assert not path.exists() or path.stat().st_size == len("precious")


def test_a_port_that_is_only_for_root(tmp_path: Path) -> None:
    text = CONFIGURATION.format(port=80, elements="", transports="", level="info")
    with (
        pytest.raises(AssertionError, match=r"cannot listen on 127\.0\.0\.1:80: Permission denied"),
        running_configuration(tmp_path, text, 80, bind_by_modes),
    ):
        pass


def test_what_it_can_do_without(tmp_path: Path) -> None:
    """Statistics are recorded in memory, minidumps are not written, and the log says both."""
    for name in ("closed", "dumps"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o555)
    elements = """<Admin><FileName>closed/stats.db</FileName></Admin>
      <MiniDumpDirectory>dumps</MiniDumpDirectory>"""
    with running_server(tmp_path, elements=elements, prepare=bind_by_modes) as server:
        assert server.logs("recorded in closed/stats.db: Permission denied")
        assert server.stop() == 0
        assert "Traceback" not in server.log()
