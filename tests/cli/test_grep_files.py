"""What `amps-grep` searches: archives of journals and logs, and what it leaves alone."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from server.cli.amps_grep import main
from tests.cli.files import LOG, make_files


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Everything that an instance leaves behind, in two directories."""
    directory = tmp_path / "archive"
    (directory / "old").mkdir(parents=True)
    make_files(directory)
    for name in ("TEST.0000000000.journal.gz", "server.log.gz"):
        shutil.move(directory / name, directory / "old" / name)
    return directory


def test_a_directory_stands_for_the_logs_and_journals_in_it(
    archive: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And below, in the order of their names; what else there is is counted."""
    assert main(["-e", "disconnected", "-e", "orders", str(archive)]) == 0
    captured = capfd.readouterr()
    names = [f"{archive}/{name}" for name in ("TEST.0000000001.journal", "server.log")]
    names += [f"{archive}/old/{n}" for n in ("TEST.0000000000.journal.gz", "server.log.gz")]
    places = [captured.out.index(f"{name}:") for name in names]
    assert places == sorted(places)
    # Indexes, the files of publishers and queues, records and statistics.
    assert captured.err == (
        f"amps-grep: {archive}: 6 files that are neither log nor journal passed over,"
        f" such as {archive}/TEST.0000000000.index.gz\n"
    )


def test_the_journals_of_an_archive_have_names_of_their_own(
    archive: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A journal is known by what it holds, compressed or not."""
    plain, compressed = archive / "a", archive / "b"
    shutil.copy(archive / "TEST.0000000001.journal", plain)
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, compressed):
        assert main(["--client", "pub", "-e", "454545", "--no-data", str(path)]) == 0
        assert capfd.readouterr().out.count("client seq   ") == 1


def test_a_link_that_leads_nowhere_is_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "server.log"
    link.symlink_to("gone")
    for given in (tmp_path, link):
        assert main(["a", str(given)]) == 2
        assert capfd.readouterr().err == f"amps-grep: {link}: No such file or directory\n"


def test_what_is_neither_log_nor_journal_is_refused_by_name(
    archive: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("t.sow", "stats.db", "TEST.clients.ack"):
        assert main(["a", str(archive / name)]) == 2
        assert capfd.readouterr().err == (
            f"amps-grep: {archive / name}: neither log nor journal; amps_file tells what it is\n"
        )


def test_what_is_no_log_is_searched_line_by_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """So is the end of an entry with which a file begins."""
    path = tmp_path / "text"
    path.write_bytes(b" the end of an entry\nof another file\n" + LOG)
    assert main(["-n", "another", str(path)]) == 0
    assert capfd.readouterr().out == "2:of another file\n"
    assert main(["-n", "second", str(path)]) == 0
    assert capfd.readouterr().out.count("\n") == 2


def test_a_log_that_is_compressed_comes_from_a_pipe(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(LOG))
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["-e", "disconnected"]) == 0
    assert capfd.readouterr().out.count("disconnected") == 1


def test_what_is_found_counts_also_if_the_rest_is_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is printed, and the status says that there is more."""
    lines = b"".join(b"2026-01-01T00:00:00 [1] info: 00-0015 %d\n" % n for n in range(9000))
    path = tmp_path / "server.log.1.gz"
    path.write_bytes(gzip.compress(lines)[:-1000])
    assert main(["-e", " 7\n", str(path)]) == 2
    captured = capfd.readouterr()
    assert captured.out == "2026-01-01T00:00:00 [1] info: 00-0015 7\n"
    assert str(path) in captured.err
    assert "bytes of text were read, what follows them is skipped" in captured.err
