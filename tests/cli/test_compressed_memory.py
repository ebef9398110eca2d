"""How much memory tools take for what is compressed, which may become any amount."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from server.cli.amps_journal_dump import main
from server.storage.journal.inspection import JournalReader
from tests.cli.files import make_files

MEGABYTE = 1 << 20


def most_memory(work: Callable[[], object]) -> int:
    """The most bytes that Python has had at a time for some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_no_journal_is_seen_from_its_first_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.journal.gz"
    path.write_bytes(gzip.compress(b"no journal\n" * 6_000_000))
    assert main([str(path)]) == 1  # with all that has to be imported
    assert most_memory(lambda: main([str(path)])) < 8 * MEGABYTE
    assert "it does not begin like a journal file" in capsys.readouterr().err


def test_a_compressed_journal_is_in_memory_once(tmp_path: Path) -> None:
    path = make_files(tmp_path)["0000000000.journal.gz"]
    size = JournalReader(path).size
    most = most_memory(lambda: JournalReader(path))
    assert most < size + size // 8 + 4 * MEGABYTE  # with room to grow, and for pieces
