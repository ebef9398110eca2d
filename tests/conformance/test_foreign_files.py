"""Where AMPS, or anybody else, has left files with the names of ours: none of them is touched."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from tests.support.server import CONFIGURATION, amp_server, free_port, running_server, why_no_start
from tests.support.sow import query

ELEMENTS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/orders.sow</FileName></Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <JournalSize>10MB</JournalSize><PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
NOISE = random.Random(1).randbytes(5_000_000)
FIRST = "journal/test-instance.0000000000.journal"

FOREIGN = {
    FIRST: NOISE,
    "journal/test-instance.0000000001.journal": b"AMPS 5.3.5 JOURNAL".ljust(2_000_000, b"\0"),
    "journal/test-instance.0000000002.journal": b"short",
    "journal/test-instance.0000000000.index.gz": gzip.compress(NOISE[:50_000]),
    "journal/test-instance.0000000000.topic.index": NOISE[:1000],
    "journal/test-instance.clients.ack": NOISE[:100_000],
    "archive/test-instance.0000000003.journal.gz": gzip.compress(NOISE),
    "archive/test-instance.0000000004.journal.gz": NOISE[:3000],
    "sow/orders.sow": NOISE,
}


def contents(directory: Path) -> dict[str, bytes]:
    """All files of the data directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for place in ("journal", "archive", "sow")
        for path in (directory / place).glob("*")
    }


def leave(directory: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_stops_the_start(tmp_path: Path, name: str) -> None:
    """Each kind by itself; it is named, and is what it was."""
    leave(tmp_path, {name: FOREIGN[name]})
    said = why_no_start(tmp_path, ELEMENTS)
    assert f"error: 00-0043 {name} is no " in said
    assert "of Amperage" in said
    assert contents(tmp_path) == {name: FOREIGN[name]}


def test_all_of_them_are_named_at_once_and_beforehand(tmp_path: Path) -> None:
    """With how to go on; the check of the configuration says it, too."""
    leave(tmp_path, FOREIGN)
    path = tmp_path / "config.xml"
    text = CONFIGURATION.format(port=free_port(), elements=ELEMENTS, transports="", level="none")
    path.write_text(text)
    run = amp_server(path, cwd=tmp_path)
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert len(lines) == len(FOREIGN) + 1
    for name in FOREIGN:
        assert any(f": {name} is no " in line for line in lines), name
    assert "--set-aside-foreign-files renames those" in lines[-1]
    checked = amp_server("--verify-config", path, cwd=tmp_path)
    assert checked.returncode == 0
    assert f"0 errors, {len(FOREIGN)} warnings" in checked.stderr
    assert contents(tmp_path) == FOREIGN


def test_they_can_be_renamed(tmp_path: Path) -> None:
    """If that is asked for; what has been renamed before is not overwritten."""
    earlier = {f"{name}.foreign-1": b"earlier" for name in FOREIGN}
    leave(tmp_path, FOREIGN | earlier)
    with running_server(
        tmp_path, elements=ELEMENTS, options=("--set-aside-foreign-files",)
    ) as server:
        for name in FOREIGN:
            assert server.logs(f"it has been renamed to {name}.foreign-2")
        with server.log_on("p") as peer:
            peer.publish("orders", b'{"id":1}', s=1, a="persisted")
            assert peer.receive_header()["status"] == "success"
        server.stop(signal.SIGKILL)
    found = contents(tmp_path)
    for name, content in FOREIGN.items():
        assert found[f"{name}.foreign-2"] == content
        assert found[f"{name}.foreign-1"] == b"earlier"
    with running_server(tmp_path, elements=ELEMENTS) as server, server.log_on() as peer:
        assert len(query(peer, "orders").records) == 1


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server that has written a journal."""
    directory = tmp_path_factory.mktemp("written")
    with running_server(directory, elements=ELEMENTS) as server:
        with server.log_on("p") as peer:
            peer.publish("orders", b'{"id":1}', s=1, a="persisted")
            assert peer.receive_header()["status"] == "success"
        server.stop(signal.SIGKILL)
    return directory


@pytest.fixture
def used(written: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(written, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(
    "name", ["clients.ack", "queues.ack", "0000000000.index.gz", "0000000000.topic.index"]
)
@pytest.mark.parametrize(("make", "said"), [(os.mkfifo, "a fifo"), (os.mkdir, "a directory")])
def test_what_is_no_file_stops_the_start_also_beside_journals_of_ours(
    used: Path, name: str, make: Callable[[Path], None], said: str
) -> None:
    """Opening a fifo would wait for ever."""
    path = used / f"journal/test-instance.{name}"
    path.unlink(missing_ok=True)
    make(path)
    assert f"{path.name} is {said}, where a file is expected" in why_no_start(used, ELEMENTS)


def wipe_all_but_the_header(content: bytearray) -> None:
    content[512:] = random.Random(2).randbytes(len(content) - 512)


def make_newer(content: bytearray) -> None:
    content[8] = 2
    content[2044:2048] = google_crc32c.value(bytes(content[:2044])).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (wipe_all_but_the_header, "is a journal of Amperage that has no intact entry"),
        (make_newer, "its format has version 2; this program reads 1"),
    ],
)
def test_a_journal_of_ours_that_cannot_be_read_is_not_taken_for_an_empty_one(
    used: Path, damage: Callable[[bytearray], None], said: str
) -> None:
    """Nor is it renamed: somebody has to decide what becomes of what was in it."""
    content = bytearray((used / FIRST).read_bytes())
    damage(content)
    (used / FIRST).write_bytes(content)
    for options in ((), ("--set-aside-foreign-files",)):
        assert said in why_no_start(used, ELEMENTS, options=options)
        assert (used / FIRST).read_bytes() == content


def test_a_journal_that_has_lost_its_first_page_is_read(used: Path) -> None:
    """Its entries are enough to make the page again."""
    content = bytearray((used / FIRST).read_bytes())
    content[:4096] = NOISE[:4096]
    (used / FIRST).write_bytes(content)
    with running_server(used, elements=ELEMENTS) as server, server.log_on() as peer:
        assert server.logs("it does not begin like a journal file")
        assert len(query(peer, "orders").records) == 1


def make_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "a fifo"), (make_directory, "a directory")])
@pytest.mark.parametrize("name", [FIRST, "journal/test-instance.clients.ack", "sow/orders.sow"])
def test_what_is_no_file_does_not_hold_up_the_start(
    tmp_path: Path, make: Callable[[Path], None], what: str, name: str
) -> None:
    """Opening a fifo would wait for somebody to write."""
    (tmp_path / name).parent.mkdir()
    make(tmp_path / name)
    assert f"{name} is {what}, where a file is expected" in why_no_start(tmp_path, ELEMENTS)
