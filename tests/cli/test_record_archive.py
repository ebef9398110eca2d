"""`amps_sow_dump -z`: nothing but an older archive is replaced, and that only by a complete one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from server.cli.amps_sow_dump import main
from tests.cli.files import make_files

IS_INPUT: Final = "it is one of the files to read: name another archive"
IS_OTHER: Final = "it is there already and no zip archive: name another file"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return make_files(tmp_path_factory.mktemp("files"))


def _older_archive(path: Path) -> None:
    with ZipFile(path, "w") as archive:
        archive.writestr("old", b"old")


WHAT_IS_THERE: Final[Mapping[str, tuple[Callable[[Path, Path], object], str]]] = {
    "a text": (lambda path, _: path.write_text("a text"), IS_OTHER),
    "an empty file": (lambda path, _: path.touch(), IS_OTHER),
    "a SOW file": (lambda path, sow: path.write_bytes(sow.read_bytes()), IS_OTHER),
    "the input": (lambda path, sow: path.hardlink_to(sow), IS_INPUT),
    "a link to the input": (lambda path, sow: path.symlink_to(sow), IS_INPUT),
    "a pipe": (lambda path, _: os.mkfifo(path), "it is a pipe and no file"),
    "a directory": (lambda path, _: path.mkdir(), "Is a directory"),
}


@pytest.mark.parametrize("what", WHAT_IS_THERE)
def test_what_is_no_archive_is_left_alone(
    what: str, files: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sow, target = tmp_path / "t.sow", tmp_path / "z"
    good = files["t.sow"].read_bytes()
    sow.write_bytes(good)
    make, why = WHAT_IS_THERE[what]
    make(target, sow)
    before = target.read_bytes() if target.is_file() else b""
    assert main(["-z", str(target), str(sow)]) == 2
    assert capsys.readouterr().err == f"amps_sow_dump: {target}: {why}\n"
    assert sow.read_bytes() == good
    assert not target.is_file() or target.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"t.sow", "z"}


def test_an_older_archive_is_replaced_and_a_link_to_it_stays_one(
    files: Mapping[str, Path], tmp_path: Path
) -> None:
    _older_archive(tmp_path / "z")
    (tmp_path / "link").symlink_to("z")
    assert main(["-z", str(tmp_path / "link"), str(files["t.sow"])]) == 0
    assert (tmp_path / "link").is_symlink()
    with ZipFile(tmp_path / "z") as made:
        assert len(made.namelist()) == 60


@pytest.mark.parametrize("bad", ["missing", "text"])
def test_an_input_that_cannot_be_read_leaves_the_archive_as_it_was(
    bad: str, files: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "z"
    _older_archive(archive)
    before = archive.read_bytes()
    (tmp_path / "text").write_text("no records")
    assert main(["-z", str(archive), str(files["t.sow"]), str(tmp_path / bad)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert str(tmp_path / bad) in line
    assert archive.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"z", "text"}
