"""`amps_bio_perf_test` and `amps_upgrade`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from server.cli import amps_bio_perf_test, amps_upgrade

MIX = ["0", "40"]


@pytest.mark.parametrize("mix", MIX)
@pytest.mark.parametrize("options", [[], ["--durable"]])
def test_a_disk_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mix: str, options: list[str]
) -> None:
    file = tmp_path / "data"
    line = ["-b", "16", "-m", "1024", "-s", "2", "-r", mix, "-f", str(file), *options]
    assert amps_bio_perf_test.main(line) == 0
    lines = capsys.readouterr().out.splitlines()
    told = {name.strip(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    assert told["submit count"] == "2048"
    assert told["write count"] == "128"
    assert told["write size"] == "16384 bytes"
    assert (told["read count"] == "0") == (mix == "0")
    assert not file.exists()


def test_what_is_measured_is_added_to_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["-b", "4", "-m", "1024", "-s", "1", "-f", str(tmp_path / "data")]
    for _ in range(2):
        assert amps_bio_perf_test.main(line) == 0
    capsys.readouterr()
    latencies = rows(tmp_path / "data.latency.csv")
    assert [int(row["write"]) for row in latencies] == 2 * [*range(256)]
    assert all(0 < int(row["latency_ns"]) <= int(row["ended_ns"]) for row in latencies)
    throughput = rows(tmp_path / "data.throughput.csv")
    assert sum(int(row["messages"]) for row in throughput) == 2 * 1024
    assert sum(int(row["bytes"]) for row in throughput) == 2 * 1024 * 1024


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


WRONG = {
    "-b 0": "expected a number from 1 to 256, not '0'",
    "-b x": "expected a number from 1 to 256, not 'x'",
    "-m 300": "expected a number from 256 to 131072, a multiple of 256, not '300'",
    "-r 100": "expected a number from 0 to 99, not '100'",
    "-s 8193": "expected a number from 1 to 8192, not '8193'",
    "-b 3 -m 256": "a batch of 3 messages of 256 bytes has 768 bytes: expected a multiple of 4096",
    "-b 256 -m 131072 -s 1": "a file of 1 MB has no room for a batch of 33554432 bytes",
}


@pytest.mark.parametrize("options", WRONG)
def test_what_cannot_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    with pytest.raises(SystemExit) as end:
        amps_bio_perf_test.main([*options.split(), "-f", str(tmp_path / "data")])
    assert end.value.code == 2
    assert WRONG[options] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "data"
    file.write_text("mine")
    assert amps_bio_perf_test.main(["-f", str(file)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["data.latency.csv", "data.throughput.csv"])
def test_nothing_is_added_to_a_table_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table = tmp_path / name
    table.write_text("date,price\n2024-01-02,7\n")
    assert amps_bio_perf_test.main(["-s", "1", "-f", str(tmp_path / "data")]) == 1
    assert f"{table}: rows are added" in capsys.readouterr().err
    assert table.read_text() == "date,price\n2024-01-02,7\n"
    assert list(tmp_path.iterdir()) == [table], "nothing was measured"


CONFIG = """<AMPSConfig>
  <Name>old</Name>
  <SOW>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>./sow/orders.sow</FileName>
    </Topic>
  </SOW>
  <TransactionLog>
    <JournalDirectory>journals</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
</AMPSConfig>"""

KINDS = ["--check-current", "--dry-run", "--upgrade"]


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.xml").write_text(CONFIG)
    for name in ("sow", "journals"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_nothing_to_upgrade(
    instance: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    line = [f"--config={instance}/config.xml", f"--from={instance}", "--tmp-dir=/tmp/no", kind]
    assert amps_upgrade.main(line) == 0
    assert capsys.readouterr().out == (
        "old: all files can be used as they are; there is nothing to upgrade\n"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_others_are_named_and_left_alone(
    instance: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """A relative path begins where it is said to."""
    files = [instance / "sow" / "orders.sow", instance / "journals" / "old.0000000000.journal"]
    for file in files:
        file.write_bytes(b"something else" * 1000)
    line = ["--config", "config.xml", "--work-dir", str(instance), kind]
    assert amps_upgrade.main(line) == 1
    out, err = capsys.readouterr()
    assert "config.xml:4: sow/orders.sow is no SOW file" in out
    assert "old.0000000000.journal" in out
    assert "Nothing has been changed" in err
    assert all(file.read_bytes() == b"something else" * 1000 for file in files)


def test_a_configuration_that_cannot_be_used(
    instance: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (instance / "config.xml").write_text("<AMPSConfig><Name></AMPSConfig>")
    assert amps_upgrade.main(["--config", "config.xml", "--upgrade"]) == 1
    assert "cannot be used" in capsys.readouterr().err
