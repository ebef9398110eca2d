"""What can be read of a SOW file that is damaged: everything but the damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server.cli.amps_sow_dump import main
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from tests.storage.sow.support import Disk

SLAB = 8192
COUNT = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with some slabs of records, all of one size."""
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=SLAB)
    for number in range(COUNT):
        store.put(f"{number}", Record(f"{number}", b"<%03d>" % number * 60, "t"))
    store.close()
    disk.close()
    return tmp_path / "t.sow"


def entry(data: bytes, number: int) -> int:
    """Where the body of a record begins."""
    return data.index(b"<%03d>" % number * 60)


def spoil(data: bytes, place: int, size: int = 1) -> bytes:
    return (
        data[:place] + bytes(byte ^ 1 for byte in data[place : place + size]) + data[place + size :]
    )


def slab_of(data: bytes, number: int) -> int:
    """Where the slab begins that has a record."""
    return form.PAGE + (entry(data, number) - form.PAGE) // SLAB * SLAB


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "a byte": (lambda data: spoil(data, entry(data, 3)), 1),
    "a byte of the last record": (lambda data: spoil(data, entry(data, COUNT - 1)), 1),
    "two places": (lambda data: spoil(spoil(data, entry(data, 3)), entry(data, 40)), 2),
    "two records": (lambda data: spoil(data, entry(data, 7), 400), 1),
    "the length of a record": (lambda data: spoil(data, entry(data, 9) - 100, 90), 1),
    "the commit points": (lambda data: data[:64] + b"\1" * (form.PAGE - 64) + data[form.PAGE :], 0),
    "the header of a slab": (lambda data: spoil(data, slab_of(data, 30), 16), 1),
    "a slab": (
        lambda data: data[: slab_of(data, 30)] + bytes(SLAB) + data[slab_of(data, 30) + SLAB :],
        1,
    ),
    "the end": (lambda data: data[: slab_of(data, COUNT - 1)], 1),
}
"""What is damaged, and how many parts are skipped."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_all_other_records_are_read(
    path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, parts = DAMAGE[kind]
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    data = path.read_bytes()
    assert main([str(path)]) == 1
    captured = capsys.readouterr()
    intact = [
        body
        for number in range(COUNT)
        if (body := f"<{number:03}>" * 60).encode() in data
        and not (kind == "the header of a slab" and slab_of(whole, number) == slab_of(whole, 30))
        and not (kind == "the length of a record" and number in (8, 9))
    ]
    assert 0 < len(intact) <= COUNT
    assert set(captured.out.split()) >= set(intact)
    assert "all that can be read is printed" in captured.err
    skipped = [line for line in captured.err.splitlines() if "skipped" in line]
    if parts:
        [line] = skipped
        assert f"{parts} damaged part{'s' * (parts > 1)} skipped, " in line
    else:
        assert skipped == []
