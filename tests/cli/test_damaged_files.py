"""Every tool, on every kind of file that is not what it should be.

It prints what can be had, says in a line what is wrong with which file, and ends with a status that
tells; nobody sees a traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pytest

from tests.cli.files import DAMAGE, make_files


class Main(Protocol):
    def __call__(self, arguments: list[str]) -> int: ...


class Tool(NamedTuple):
    """How a tool is called on a file.

    Attributes:
        module: where it is.
        file: the end of the name of a good one.
        words: of its command line, with FILE for the file and SCRATCH for one to write.
        bears: damage that does no harm, or that nobody can see.
    """

    module: str
    file: str
    words: str
    bears: frozenset[str] = frozenset()


EVERYTHING: Final = frozenset(DAMAGE)

# What files bear, or what cannot be seen of them.
JOURNAL: Final = frozenset(
    {
        "one bit",  # where no entry is
        "its end in zeros",  # nothing has been written, as it seems
        "zeros",  # not yet used
        "compressed",
    }
)
COMPRESSED: Final = frozenset({"its beginning in zeros", "zeros"})
LOG: Final = EVERYTHING - {
    "zeros",
    "its beginning in zeros",
    "anything",
    "compressed and cut",
    "compressed and overwritten",
}
COMPRESSED_LOG: Final = frozenset({"empty", "one byte", "a text", "a long line"})
RECORDS: Final = frozenset({"cut at the end"})  # behind the last record
DATABASE: Final = frozenset({"cut at the end", "one bit"})  # SQLite has no checksums
USERS: Final = frozenset({"empty", "one byte", "cut in half"})  # a comment is a good file

TOOLS: Final[Mapping[str, Tool]] = {
    "amps_journal_dump": Tool(
        "amps_journal_dump", "0000000001.journal", "FILE --extents --include-noops", JOURNAL
    ),
    "amps_journal_dump of compressed": Tool(
        "amps_journal_dump", "0000000000.journal.gz", "FILE --json", COMPRESSED
    ),
    "amps_journal_search": Tool("amps_journal_search", "0000000001.journal", "FILE -d 4", JOURNAL),
    "amps_journal_search of compressed": Tool(
        "amps_journal_search", "0000000000.journal.gz", "FILE -d 4 --json", COMPRESSED
    ),
    "amps-grep of journals": Tool("amps_grep", "0000000001.journal", "4 FILE", JOURNAL),
    "amps-grep of compressed journals": Tool(
        "amps_grep", "0000000000.journal.gz", "--json 4 FILE", COMPRESSED
    ),
    "amps-grep of logs": Tool("amps_grep", "server.log", "-n a FILE", LOG),
    "amps-grep of compressed logs": Tool(
        "amps_grep", "server.log.gz", "--json a FILE", COMPRESSED_LOG
    ),
    "amps_clients_ack_dump": Tool("amps_client_ack_dump", "clients.ack", "FILE"),
    "amps_clients_ack_dump --json": Tool("amps_client_ack_dump", "clients.ack", "FILE --json"),
    "amps_queues_ack_dump": Tool("amps_queues_ack_dump", "queues.ack", "FILE"),
    "amps_queues_ack_dump --json": Tool("amps_queues_ack_dump", "queues.ack", "FILE --json"),
    "amps_tx_topic_index_dump": Tool(
        "amps_tx_topic_index_dump", "0000000000.topic.index", "FILE --topic orders"
    ),
    "amps_tx_topic_index_dump --json": Tool(
        "amps_tx_topic_index_dump", "0000000000.topic.index", "FILE --json"
    ),
    "amps_sow_dump": Tool("amps_sow_dump", "t.sow", "FILE", RECORDS),
    "amps_sow_dump -v": Tool("amps_sow_dump", "t.sow", "-v FILE", RECORDS),
    "amps_sow_dump --json": Tool("amps_sow_dump", "t.sow", "-v --json FILE", RECORDS),
    "amps_sow_dump --sizing-chart": Tool("amps_sow_dump", "t.sow", "--sizing-chart FILE", RECORDS),
    "amps_sow_dump -z": Tool("amps_sow_dump", "t.sow", "-z SCRATCH FILE", RECORDS),
    "amps-sqlite3": Tool(
        "amps_sqlite3", "stats.db", "FILE --json|select count(*), max(oid) from HCPUS", DATABASE
    ),
    "amps-sqlite3 --size": Tool("amps_sqlite3", "stats.db", "FILE --size", DATABASE),
    "amps_sqlite3_report": Tool("amps_sqlite3_report", "stats.db", "FILE 20180501", DATABASE),
    "amps_sqlite3_report --json": Tool(
        "amps_sqlite3_report", "stats.db", "FILE 20180501 --json", DATABASE
    ),
    "amps_file": Tool("amps_file", "t.sow", "FILE --json", EVERYTHING),
    "amps-users check": Tool("amps_users", "users.toml", "check FILE", USERS),
    "amps-users list": Tool("amps_users", "users.toml", "list FILE --json", USERS),
    "amps-report-minidump": Tool("amps_report_minidump", "minidump.txt", "FILE"),
    "amps-report-minidump --json": Tool(
        "amps_report_minidump", "minidump.txt", "FILE --json --all"
    ),
    "amps_upgrade": Tool("amps_upgrade", "config.xml", "--check-current --config FILE"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return make_files(tmp_path_factory.mktemp("files"))


def run(tool: Tool, path: Path) -> int:
    """The status of a tool that is run on a file."""
    main: Main = importlib.import_module(f"server.cli.{tool.module}").main
    words, _, query = tool.words.partition("|")
    scratch = str(path.with_name("scratch"))
    line = [{"FILE": str(path), "SCRATCH": scratch}.get(word, word) for word in words.split()]
    return main([*line, query] if query else line)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, which some tools leave."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_output(tool: Tool, output: bytes) -> None:
    if "--json" in tool.words:
        for line in output.splitlines():
            assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("name", TOOLS)
def test_a_good_file_is_read_without_a_word(
    name: str,
    files: Mapping[str, Path],
    scratch: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    tool = TOOLS[name]
    assert run(tool, files[tool.file]) == 0
    captured = capsysbinary.readouterr()
    assert captured.err == b""
    assert captured.out or "SCRATCH" in tool.words
    check_output(tool, captured.out)


@pytest.mark.parametrize("name", TOOLS)
def test_a_damaged_file_is_told(
    name: str,
    files: Mapping[str, Path],
    scratch: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    tool = TOOLS[name]
    good = files[tool.file].read_bytes()
    path = scratch / files[tool.file].name
    seen = set()
    for kind, damage in DAMAGE.items():
        path.write_bytes(damage(good))
        path.chmod(0o600)
        status = run(tool, path)
        captured = capsysbinary.readouterr()
        assert status in (0, 1, 2)
        lines = captured.err.splitlines()
        assert all(str(path).encode() in line for line in lines), (kind, lines)
        check_output(tool, captured.out)
        if lines:
            assert status != 0, kind
            seen.add(kind)
    assert seen == EVERYTHING - tool.bears


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, if this is root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


OPENING: Final = [name for name, tool in TOOLS.items() if "SCRATCH" not in tool.words]
OPENING.remove("amps_upgrade")  # configurations have words of their own


@pytest.mark.parametrize("name", OPENING)
def test_what_cannot_be_opened_is_told(
    name: str,
    files: Mapping[str, Path],
    scratch: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """What is not there, what is a directory, and what may not be read."""
    tool = TOOLS[name]
    run(tool, files[tool.file])  # with all that has to be imported
    capsysbinary.readouterr()
    missing, closed = scratch / f"not-{tool.file}", scratch / tool.file
    closed.write_bytes(files[tool.file].read_bytes())
    closed.chmod(0)
    (scratch / "directory").mkdir()
    expected = {
        missing: b"no such file or directory",
        scratch / "directory": b"directory",
        closed: b"permission denied",
    }
    for path, why in expected.items():
        with as_nobody() if path == closed else contextlib.nullcontext():
            status = run(tool, path)
        captured = capsysbinary.readouterr()
        if path.is_dir() and tool.module == "amps_grep":
            assert (status, captured.err) == (1, b"")  # nothing in it
            continue
        assert status in (1, 2)
        assert captured.out == b"" or "report" in name
        told = captured.err.splitlines()
        assert [line for line in told if why in line.lower() and str(path).encode() in line]
