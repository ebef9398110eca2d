"""No tool waits for somebody who writes to a pipe, unless it may be meant to."""

from __future__ import annotations

import importlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from server.cli import amps_file, amps_grep, amps_journal_search
from tests.cli.files import LOG


class Tool(NamedTuple):
    """How a tool is called on a pipe, and with which status it refuses that."""

    module: str
    name: str
    words: tuple[str, ...] = ()
    status: int = 1


TOOLS: Final = {
    "amps_sow_dump": Tool("amps_sow_dump", "t.sow", status=2),
    "amps_journal_dump": Tool("amps_journal_dump", "t.0000000000.journal"),
    "amps_journal_search": Tool("amps_journal_search", "t.0000000000.journal", ("7",), 2),
    "amps-grep of journals": Tool("amps_grep", "t.0000000000.journal.gz", ("-e", "7"), 2),
    "amps_clients_ack_dump": Tool("amps_client_ack_dump", "clients.ack"),
    "amps_queues_ack_dump": Tool("amps_queues_ack_dump", "queues.ack"),
    "amps_tx_topic_index_dump": Tool("amps_tx_topic_index_dump", "0000000000.topic.index"),
    "amps-report-minidump": Tool("amps_report_minidump", "minidump.txt"),
    "amps-sqlite3": Tool("amps_sqlite3", "stats.db", ("--size",)),
    "amps_sqlite3_report": Tool("amps_sqlite3_report", "stats.db", ("20180501",)),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_pipe_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = TOOLS[name]
    pipe = tmp_path / tool.name
    os.mkfifo(pipe)
    main = importlib.import_module(f"server.cli.{tool.module}").main
    assert main([str(pipe), *tool.words]) == tool.status
    [line] = capsys.readouterr().err.splitlines()
    assert str(pipe) in line
    assert "it is a pipe and no file" in line


def test_what_is_no_file_is_identified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "p")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
    assert amps_file.main([str(tmp_path / "*"), os.devnull]) == 0
    assert capsys.readouterr().out == "p: a pipe\ns: a socket\nnull: a device\n"
    assert amps_file.main(["--json", str(tmp_path / "p")]) == 0
    expected = {"file": str(tmp_path / "p"), "kind": "a pipe", "version": None}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log, and pipes under the names of a log and of a journal, and behind a link."""
    (tmp_path / "a.log").write_bytes(LOG)
    for name in ("b.log", "c.0000000000.journal"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "d.log").symlink_to("b.log")
    return tmp_path


def test_pipes_in_directories_are_passed_over(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert amps_grep.main(["disconnected", str(directory)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{directory}/a.log:")
    assert captured.err == ""


def test_a_pipe_among_journals_is_told(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever searches journals may miss what they look for."""
    assert amps_journal_search.main([str(directory), "7"]) == 2
    assert capsys.readouterr().err == (
        f"amps_journal_search: {directory}/c.0000000000.journal: it is a pipe and no file\n"
    )


def test_a_pipe_that_is_named_is_a_log(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = directory / "b.log"
    writing = threading.Thread(target=pipe.write_bytes, args=(LOG,))
    writing.start()
    assert amps_grep.main(["disconnected", str(pipe)]) == 0
    writing.join()
    assert "disconnected" in capsys.readouterr().out
