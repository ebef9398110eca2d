"""Files of a later version: the server does not start beside one, tools say so, nothing is touched.

By contract a file keeps its first word, its version and its checksum in their places, whatever else
a later version changes; see docs/formats.
"""

from __future__ import annotations

import gzip
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import google_crc32c
import pytest

from server.cli import (
    amps_client_ack_dump,
    amps_file,
    amps_grep,
    amps_journal_dump,
    amps_journal_search,
    amps_queues_ack_dump,
    amps_sow_dump,
    amps_tx_topic_index_dump,
    amps_upgrade,
)
from server.statistics import layout
from server.storage.journal import index, publisher_table, queue_points
from server.storage.journal.format import side_files
from server.storage.sow.keys import chain_file
from tests.support.server import amp_server, running_server, why_no_start
from tests.support.sow import CHAINED_TOPIC, CHAINING

ELEMENTS = f"""
<SOW>{CHAINED_TOPIC}</SOW>
{CHAINING}
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>chained</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Admin><FileName>stats.db</FileName></Admin>
"""
JOURNAL = "journal/test-instance.0000000000.journal"
SAID = "its format has version 2; this program reads 1, so a later Amperage has written it"
SIZE_OF_VERSION = 2


def checksum(content: bytes | bytearray) -> bytes:
    value: int = google_crc32c.value(bytes(content))
    return value.to_bytes(4, "little")


def side_file(magic: bytes) -> Callable[[Path], None]:
    """A file as a later version may write it beside the journals."""

    def write(path: Path) -> None:
        content = magic + (2).to_bytes(SIZE_OF_VERSION, "little") + b"what later versions write"
        content += checksum(content)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

    return write


def bump_journal(path: Path) -> None:
    with path.open("r+b") as file:
        half_page = bytearray(file.read(2044))
        half_page[8] = 2
        file.seek(0)
        file.write(half_page + checksum(half_page))


def bump_sow(path: Path) -> None:
    with path.open("r+b") as file:
        header = bytearray(file.read(28))
        header[12] = 2
        file.seek(0)
        file.write(checksum(header[4:]) + header[4:])


def bump_chain(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(chain_file.MAGIC)] = 2
    path.write_bytes(content)


def bump_statistics(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {layout.FORMAT + 1}")
    database.close()


LATER: dict[str, Callable[[Path], None]] = {
    JOURNAL: bump_journal,
    "journal/test-instance.0000000000.index.gz": side_file(index.INDEX_MAGIC),
    "journal/test-instance.0000000000.topic.index": side_file(index.TOPIC_INDEX_MAGIC),
    "journal/test-instance.clients.ack": side_file(publisher_table.MAGIC),
    "journal/test-instance.queues.ack": side_file(queue_points.MAGIC),
    "journal/test-instance.replication.ack": side_file(side_files.REPLICATION_MAGIC),
    "chained.sow": bump_sow,
    "ids.chain": bump_chain,
    "stats.db": bump_statistics,
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of an instance that has run."""
    directory = tmp_path_factory.mktemp("used")
    with running_server(directory, elements=ELEMENTS) as server:
        with server.log_on("p") as peer:
            peer.publish("chained", b'{"id":1}', s=1, a="persisted")
            assert peer.receive_header()["status"] == "success"
        server.stop(signal.SIGTERM)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def directory(used: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(used, tmp_path / "copy"))


def contents(directory: Path) -> dict[str, bytes]:
    """All files of the instance, but for what each start writes anew."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("config.xml", "stdout.log")
    }


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("options", [(), ("--set-aside-foreign-files",)], ids=["plain", "aside"])
def test_a_file_of_a_later_version_stops_the_start(
    directory: Path, name: str, options: tuple[str, ...]
) -> None:
    """It is named, with both versions and what to do; nothing at all is touched."""
    LATER[name](directory / name)
    before = contents(directory)
    said = why_no_start(directory, ELEMENTS, options=options)
    assert f"error: 00-0043 {name} is " in said
    assert SAID in said
    assert "a file is of a later version of this program, and nothing has been touched" in said
    assert "start that version, or go back as docs/upgrading.md says" in said
    assert contents(directory) == before


def test_all_of_them_are_named_at_once_and_beforehand(directory: Path) -> None:
    for name, bump in LATER.items():
        bump(directory / name)
    before = contents(directory)
    run = amp_server(directory / "config.xml", cwd=directory)
    assert run.returncode == 1
    assert f"{len(LATER)} files are of a later version" in run.stderr
    checked = amp_server("--verify-config", directory / "config.xml", cwd=directory)
    for name in LATER:
        assert f": {name} is " in run.stderr
        assert f": {name} is " in checked.stderr
    assert checked.stderr.count(f"{SAID}; the instance would not start") == len(LATER)
    assert contents(directory) == before


@pytest.mark.parametrize("name", [name for name in LATER if name.startswith("journal/")])
def test_a_version_that_is_only_damage_is_no_later_one(directory: Path, name: str) -> None:
    """The checksum tells: what can be made again is made again."""
    LATER[name](directory / name)
    path = directory / name
    damaged = bytearray(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else b"")
    damaged = damaged or bytearray(path.read_bytes())
    damaged[20] ^= 1
    path.write_bytes(gzip.compress(damaged) if path.suffix == ".gz" else damaged)
    with running_server(directory, elements=ELEMENTS) as server:
        assert server.stop() == 0


Tool = Callable[[Sequence[str]], int]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (amps_journal_dump.main, JOURNAL),
        (lambda words: amps_grep.main(["x", *words]), JOURNAL),
        (lambda words: amps_journal_search.main([*words, "1"]), JOURNAL),
        (amps_tx_topic_index_dump.main, "journal/test-instance.0000000000.topic.index"),
        (amps_client_ack_dump.main, "journal/test-instance.clients.ack"),
        (amps_queues_ack_dump.main, "journal/test-instance.queues.ack"),
        (amps_sow_dump.main, "chained.sow"),
    ],
)
def test_tools_say_so(
    directory: Path, capfd: pytest.CaptureFixture[str], tool: Tool, name: str
) -> None:
    path = directory / name
    LATER[name](path)
    assert tool([str(path)]) > 0
    told = capfd.readouterr()
    assert f"{path}: {SAID}" in told.err
    assert told.out == ""
    assert amps_file.main([str(path)]) == 0
    assert capfd.readouterr().out.endswith(" 2.0\n")


def test_there_is_no_way_down(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`amps_upgrade` names the files, and says what there is to do."""
    monkeypatch.chdir(directory)  # which the command changes, too
    bump_sow(directory / "chained.sow")
    config = directory / "config.xml"
    words = [f"--config={config}", f"--work-dir={directory}", "--check-current"]
    assert amps_upgrade.main(words) == 1
    told = capfd.readouterr()
    assert f"chained.sow is of another Amperage: {SAID}" in told.out
    assert "Run that version, or go back as docs/upgrading.md says" in told.err
