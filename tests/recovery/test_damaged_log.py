"""A server finds its transaction log cut, torn or incomplete; so do the tools."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.large_messages import ELEMENTS, SIZE, Publisher, log_on, replay
from tests.support.quick import quick_command
from tests.support.server import RunningServer, running_server, why_no_start

JOURNAL: Final = ELEMENTS.format(sow=".", journal="journal")
OF_ONE_FILE: Final = 10 * 1024 * 1024 // SIZE


@contextmanager
def server_with(directory: Path, messages: int) -> Iterator[RunningServer]:
    """A server that has got some messages on the topic `events`."""
    with running_server(directory, elements=JOURNAL) as server:
        with log_on(server) as peer:
            publisher = Publisher(peer, "events")
            for _ in range(messages):
                assert publisher.publish()["status"] == "success"
        yield server


def tool(name: str, *arguments: str) -> str:
    """What a tool prints."""
    command = [*quick_command(f"server.cli.{name}"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_torn_tail_is_cut_and_said_to_be(tmp_path: Path) -> None:
    """An entry whose commit was not finished is gone; the tools do not show it either."""
    with server_with(tmp_path, 5) as server:
        server.stop(signal.SIGKILL)
    journal = tmp_path / "journal" / "test-instance.0000000000.journal"
    content = bytearray(journal.read_bytes())
    last = len(content) - 96 * 7  # runs, a definition and five messages
    content[last - 96 : last] = bytes(96)  # nothing says any more that the last one was safe
    content[last + 30] ^= 1
    journal.write_bytes(content)
    shown = tool("amps_journal_dump", str(journal))
    assert shown.count("events") >= 4
    assert "|5|" not in shown
    with running_server(tmp_path, elements=JOURNAL) as server:
        assert server.logs("were cut off")
        assert server.logs("1D-0003")
        kept = journal.with_name(f"{journal.name}.cut-1")
        assert server.logs(f"are kept in journal/{kept.name}")
        assert kept.read_bytes()[last : last + 96] == content[last : last + 96]
        assert replay(server, "events") == [1, 2, 3, 4]
        with server.connect() as peer:
            assert peer.log_on("publisher")["s"] == 4
    with running_server(tmp_path, elements=JOURNAL) as server:
        assert "were cut off" not in server.log()


def test_a_flipped_bit_after_a_kill_costs_one_entry(tmp_path: Path) -> None:
    """What had been acknowledged before is known to have been safe, however it was written."""
    with running_server(tmp_path, elements=JOURNAL) as server:
        with log_on(server) as peer:
            for sequence in range(1, 51):
                peer.publish("events", b'{"n":%d}' % sequence, s=sequence, a="persisted")
            while peer.receive_header()["s"] < 50:
                pass
        server.stop(signal.SIGKILL)
    journal = tmp_path / "journal" / "test-instance.0000000000.journal"
    content = bytearray(journal.read_bytes())
    content[content.index(b'{"n":20}') + 5] ^= 1
    journal.write_bytes(content)
    with running_server(tmp_path, elements=JOURNAL) as server:
        assert "were cut off" not in server.log()
        assert server.logs("damaged, although durable before; the others are kept")
        assert replay(server, "events") == [*range(1, 20), *range(21, 51)]
        with server.connect() as peer:
            assert peer.log_on("publisher")["s"] == 50


def test_a_gap_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    """A file missing in the middle, and one missing at the end."""
    count = 3 * OF_ONE_FILE
    with server_with(tmp_path, count) as server:
        assert server.stop() == 0
    files = sorted((tmp_path / "journal").glob("*.journal"))
    aside = tmp_path / "aside"
    files[1].rename(aside)
    said = why_no_start(tmp_path, JOURNAL)
    assert "the transaction log has a gap: number 1 is missing" in said
    assert f"between {files[0].name} and {files[2].name}" in said
    aside.rename(files[1])
    moved = [path.rename(path.with_suffix(".aside")) for path in files[2:]]
    assert "files are missing at the end" in why_no_start(tmp_path, JOURNAL)
    for path in moved:
        path.rename(path.with_suffix(".journal"))
    with running_server(tmp_path, elements=JOURNAL) as server:
        assert replay(server, "events") == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("journal/*0.journal", "AMPS journal 1.0"),
        ("journal/*.clients.ack", "AMPS clients.ack 1.0"),
        ("*.sow", "AMPS sow 1.0"),
    ],
)
def test_files_are_told_apart(files_of_a_server: Path, pattern: str, kind: str) -> None:
    """`amps_file` knows what a server leaves behind."""
    lines = tool("amps_file", str(files_of_a_server / pattern)).splitlines()
    assert lines
    assert all(line.endswith(f": {kind}") for line in lines)


@pytest.fixture(scope="module")
def files_of_a_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that has run."""
    directory = tmp_path_factory.mktemp("server")
    with server_with(directory, 1) as server:
        assert server.stop() == 0
    return directory
