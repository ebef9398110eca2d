"""`amps_sow_dump`: what it prints of good, running and damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from server.cli.amps_sow_dump import main
from server.cli.spark.sources import read_messages
from server.storage.sow.file_store import FileStore
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from tests.storage.sow.support import Disk

MOMENT = 1_724_106_316_604_685_123


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=8192)
    for number in range(5):
        body = b'{"id":%d}' % number
        store.put(f"{number}", Record(f"{number}", b"old", "t", MOMENT))
        store.put(f"{number}", Record(f"{number}", body, "t", MOMENT, 0, 7, "corr", "1|2|"))
    store.delete("3", 8)
    store.put("A|B", Record("A|B", b"x" * 300, "t", MOMENT, 1_800_000_000_000_000_000, 9))
    yield store
    store.close()
    disk.close()


def test_bodies_of_a_running_instance(
    store: FileStore, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = str(tmp_path / "t.sow")
    expected = [b'{"id":0}', b'{"id":1}', b'{"id":2}', b'{"id":4}', b"x" * 300]
    assert main([path]) == 0
    assert capsysbinary.readouterr().out == b"\n".join(expected) + b"\n"
    assert main(["-n", "2", "-d", "1", path]) == 0
    assert capsysbinary.readouterr().out == b"\x01".join(expected[:2]) + b"\x01"


def test_an_archive_that_can_be_published(
    store: FileStore, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """One member per record, whatever bytes it has; of several files one after the other."""
    path, archive = str(tmp_path / "t.sow"), tmp_path / "records.zip"
    store.put("2", Record("2", b"a\nb", "t", MOMENT))
    assert main(["-z", str(archive), "-n", "3", path, path]) == 0
    assert capsysbinary.readouterr().out == b""
    with ZipFile(archive) as made:
        assert made.namelist() == ["1", "2", "3", "4", "5", "6"]
    one_file = [b'{"id":0}', b'{"id":1}', b"a\nb"]
    read = [body for batch in read_messages(str(archive), 10) for body in batch]
    assert read == one_file * 2
    assert main(["-z", str(tmp_path / "nowhere" / "z.zip"), path]) == 2
    assert b"No such file or directory" in capsysbinary.readouterr().err


def test_all_that_is_stored(
    store: FileStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-v", str(tmp_path / "t.sow")]) == 0
    out = capsys.readouterr().out
    first, *_ = out.split("\n\n")
    lines = [line.partition("=") for line in first.splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    assert fields["key"] == "0"
    assert fields["data size"] == "8"
    assert fields["iso8601 timestamp"] == "20240819T222516.604685Z"
    assert fields["local txid"] == "7"
    assert fields["correlation id"] == "[corr]"
    assert fields["data"] == '[{"id":0}]'
    assert "string key        = [A|B]" in out
    assert "expiration        = 1800000000" in out
    assert f"Version             : {form.FORMAT_NAME:>20}" in out
    assert "Valid Keys          :                    5" in out
    assert "Maximum record size :                  300" in out
    assert "invalid count       :                    7" in out
    assert main(["-v", "-n", "0", str(tmp_path / "t.sow")]) == 0
    assert "data size" not in capsys.readouterr().out


def test_the_sizing_chart(
    store: FileStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--sizing-chart", str(tmp_path / "t.sow")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert rows[0] == ["128", "179", "B", "100.00%", "1"]
    assert rows[2] == ["384", "384", "B", "46.67%", "0"]
    assert len(rows) == 15


def test_a_damaged_file_gives_what_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=8192)
    for number in range(3):
        store.put(f"{number}", Record(f"{number}", b"body %d" % number, "t"))
    store.close()
    disk.close()
    path = tmp_path / "t.sow"
    path.write_bytes(path.read_bytes().replace(b"body 2", b"body X"))
    assert main([str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "body 0\nbody 1\n"
    assert "fails its checksum at byte" in captured.err


@pytest.mark.parametrize("content", [None, b"", b"x" * 10_000])
def test_what_is_no_sow_file_is_refused(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.sow"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.count(str(path)) == 1
