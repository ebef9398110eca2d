"""`amps-report-minidump`: what this server writes, what others write, what is left."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from server.cli import amps_report_minidump
from server.process.minidump import write_minidump

SIZES = [("instance/memory at now", [("rss", 1_234_567), ("vmsize", 9)])]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_minidump(str(tmp_path), 0o640, "plant", {"sessions": 4321}, sizes=SIZES)


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = amps_report_minidump.main([*map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_what_the_server_writes_is_shown(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, shown, complaints = report(capsys, dump)
    assert (status, complaints) == (0, "")
    assert "instance plant, Amperage" in shown
    assert "4,321 sessions" in shown
    assert "1,234,567 rss" in shown
    thread = shown[shown.index("thread MainThread, innermost call first") :].splitlines()
    assert "server/process/minidump.py:" in thread[1]


def test_all_calls_are_shown_if_asked_for(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, few, _ = report(capsys, dump)
    _, every, _ = report(capsys, "--all", dump)
    assert "(--all)" in few
    assert "(--all)" not in every
    this = "test_all_calls_are_shown_if_asked_for"  # which is not among those of the dump
    assert this not in every
    assert f"dump, {__file__}:" in every


def test_json_has_everything(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, shown, _ = report(capsys, "--json", dump)
    found = json.loads(shown)
    assert status == 0
    assert (found["kind"], found["instance"], found["missing"]) == ("amperage", "plant", [])
    assert found["tables"]["state"] == {"sessions": 4321}
    assert found["facts"]["time"].endswith("Z")
    assert {thread["name"] for thread in found["threads"]} >= {"MainThread"}
    assert all(call["line"] for thread in found["threads"] for call in thread["calls"])


def test_a_pattern_stands_for_all_files_that_match(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_minidump(str(dump.parent), 0o640, "other", {})
    status, shown, _ = report(capsys, f"{dump.parent}/*.txt")
    assert status == 0
    assert all(f"{path}: instance" in shown for path in (dump, other))


@pytest.mark.parametrize("part", [0.02, 0.1, 0.3, 0.6, 0.99])
def test_a_dump_that_was_cut_short_says_what_is_missing(
    dump: Path, capsys: pytest.CaptureFixture[str], part: float
) -> None:
    octets = dump.read_bytes()
    dump.write_bytes(octets[: max(60, int(len(octets) * part))])
    status, _, complaints = report(capsys, dump)
    assert status == 1
    assert complaints.startswith(f"amps-report-minidump: {dump} is not whole: it lacks ")
    assert "the end: the file was cut short in or behind" in complaints


def test_damage_in_the_middle_is_said(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump.write_bytes(dump.read_bytes().replace(b"4,321", b"\xff\x00?", 1))  # counts may have it
    status, shown, complaints = report(capsys, dump)
    assert status == 1
    assert "it lacks 2 lines, which cannot be read; the counts of the instance" in complaints
    assert "thread MainThread" in shown


def breakpad(*streams: tuple[int, bytes]) -> bytes:
    """A file as Breakpad writes it."""
    start = 32 + 12 * len(streams)
    directory = bodies = b""
    for kind, body in streams:
        directory += struct.pack("<III", kind, len(body), start + len(bodies))
        bodies += body
    header = struct.pack("<4sIIIIIQ", b"MDMP", 0xA793, len(streams), 32, 0, 1_700_000_000, 0)
    return header + directory + bodies


FOREIGN = breakpad((3, struct.pack("<I", 17) + bytes(48)), (0x47670007, b"PATH=/bin"), (99, b""))


def test_a_dump_of_amps_is_known_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.dmp"
    path.write_bytes(FOREIGN)
    status, shown, _ = report(capsys, path)
    assert status == 1
    assert "as AMPS writes them; not one of Amperage" in shown
    assert "2023-11-14 22:13:20" in shown
    assert "threads        17" in shown
    assert "Take care with whom you share it: environment" in shown
    assert "stream 0x63 (0 bytes)" in shown
    assert report(capsys, "--json", path)[0] == 1


@pytest.mark.parametrize("size", [4, 31, 40, 60, len(FOREIGN) - 5])
def test_a_dump_of_amps_that_was_cut_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    path = tmp_path / "x.dmp"
    path.write_bytes(FOREIGN[:size])
    status, _, complaints = report(capsys, path)
    assert status == 1
    assert " is not whole: it lacks " in complaints


@pytest.mark.parametrize("octets", [b"", b"\0" * 100, b"PK\3\4", b"Amperage of old\n"])
def test_what_is_no_minidump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], octets: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(octets)
    status, shown, complaints = report(capsys, path)
    assert (status, shown) == (1, "")
    assert complaints == (
        f"amps-report-minidump: {path} is not a minidump of Amperage:"
        " its first line does not name it\n"
    )


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        status, shown, complaints = report(capsys, path)
        assert (status, shown) == (1, "")
        assert f"{path} cannot be read: {why}" in complaints


def test_options_of_amps_are_taken_and_send_nothing(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-e", "a@b", "-s", "Ticket 1", "-b", "text", "-t", "1", "-c"]
    status, shown, complaints = report(capsys, *words, dump)
    assert status == 0
    assert "instance plant" in shown
    assert complaints == (
        "amps-report-minidump: nothing is sent; amps-doctor packs the files for an analysis\n"
    )
