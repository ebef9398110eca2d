"""`--json`: what each command prints, and that docs/tools.md tells it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from amperage.wire.bookmarks import client_hash
from server.storage.journal.publisher_table import PublisherTable, pack_clients
from server.storage.sow.records import Record
from tests.cli.files import make_files
from tests.storage.journal.support import opened
from tests.storage.sow.support import Disk

ROOT: Final = Path(__file__).parents[2]
Objects = list[dict[str, Any]]
Print = Callable[..., Objects]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return make_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Print:
    def run(module: str, *words: str | Path) -> Objects:
        import_module(f"server.cli.{module}").main(["--json", *map(str, words)])
        out = capsysbinary.readouterr().out
        if out.startswith(b"{\n"):
            return [json.loads(out)]
        return [json.loads(line) for line in out.splitlines()]

    return run


def of(objects: Objects, record: str) -> Objects:
    return [one for one in objects if one["record"] == record]


def test_a_journal(files: Mapping[str, Path], printed: Print) -> None:
    path = files["0000000001.journal"]
    objects = printed("amps_journal_dump", path, "--extents", "--no-data")
    [journal] = of(objects, "journal")
    assert (journal["file"], journal["instance"]) == (str(path), "TEST")
    entries = of(objects, "entry")
    assert {one["client_name_hash"] for one in entries} == {str(client_hash("pub"))}
    assert [int(one["client_seq"]) for one in entries] == sorted(
        int(one["client_seq"]) for one in entries
    )
    assert (entries[0]["topic"], entries[0]["auth_id"]) == ("orders", "ann")
    assert "data" not in entries[0]
    [end] = of(objects, "end")
    assert end["total_entries"] > len(entries)  # and definitions
    [extent] = of(objects, "extent")
    assert (extent["source"], extent["entries"]) == (None, len(entries))


def test_bytes_that_are_no_text(tmp_path: Path, printed: Print) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("binary", "caf\u00e9")
        bench.journal.append(topic, 1, 1, b"\xff\x00")
        bench.journal.append(topic, 1, 2, "caf\u00e9\n".encode())
        bench.journal.commit()
    [path] = tmp_path.glob("*0.journal")
    first, second = of(printed("amps_journal_dump", path), "entry")
    assert (base64.b64decode(first["data_base64"]), "data" in first) == (b"\xff\x00", False)
    assert (second["data"], second["topic"]) == ("caf\u00e9\n", "caf\u00e9")


def test_a_damaged_entry_has_its_place(
    files: Mapping[str, Path], tmp_path: Path, printed: Print
) -> None:
    path = tmp_path / "damaged.journal"
    data = files["0000000001.journal"].read_bytes()
    path.write_bytes(data.replace(b"45" * 100, b"45" * 99 + b"xx", 1))
    good = of(printed("amps_journal_dump", files["0000000001.journal"]), "entry")
    objects = printed("amps_journal_dump", path)
    [damaged] = of(objects, "damaged entry")
    assert [damaged["local_txid"]] == [
        one["local_txid"] for one in good if one["client_seq"] == "45"
    ]
    assert len(of(objects, "entry")) == len(good) - 1


def test_searches(files: Mapping[str, Path], printed: Print) -> None:
    """Also of all journals in a directory."""
    directory = files["0000000001.journal"].parent
    journal, entry = printed("amps_journal_search", directory, f"{client_hash('pub')}|45|")
    assert (journal["record"], entry["client_seq"]) == ("journal", "45")
    assert journal["file"] == entry["file"] == str(files["0000000001.journal"])


def test_logs(files: Mapping[str, Path], printed: Print) -> None:
    for name in ("server.log", "server.log.gz"):
        objects = printed("amps_grep", "second line", files[name])
        assert len(objects) == 100
        assert objects[1] == {
            "record": "log",
            "file": str(files[name]),
            "line": 5,
            "time": "2026-01-01T00:00:01.1234560+00:00",
            "thread": 4,
            "level": "error",
            "id": "07-0013",
            "text": "client[B] disconnected\n with a second line",
        }


def test_publishers_and_what_is_missing_of_them(tmp_path: Path, printed: Print) -> None:
    path = tmp_path / "clients.ack"
    highest = 2**64 - 1
    cache = PublisherTable(highest, {highest: (7, 1_750_000_000_000_000)}, [(highest, 3, 4)])
    path.write_bytes(pack_clients(cache, 0))
    start = {"file": str(path), "client_name_hash": str(highest)}
    assert printed("amps_client_ack_dump", path)[1:] == [
        {
            "record": "client",
            **start,
            "last_seq": "7",
            "last_message": "20250615T150640.000000Z",
        },
        {"record": "missing", **start, "missing_from": "3", "to": "4"},
    ]


def test_queues(files: Mapping[str, Path], printed: Print) -> None:
    file, first, second = printed("amps_queues_ack_dump", files["queues.ack"])
    assert (file["last_txid"], file["queues"]) == ("77", 2)
    assert first["early_acks"] == [{"bookmark": "5|9|", "came": "20250615T150640.000000Z"}]
    assert (second["queue"], second["early_acks"]) == ("caf\u00e9", [])


def test_records(tmp_path: Path, printed: Print) -> None:
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=8192)
    store.put("A|B", Record("A|B", b'{"id":1}', "t", 1_724_106_316_604_685_123, 0, 7, "c", "1|2|"))
    store.close()
    disk.close()
    [record] = printed("amps_sow_dump", tmp_path / "t.sow")
    assert record["data"] == '{"id":1}'
    assert (record["string_key"], record["local_txid"]) == ("A|B", "7")
    assert record["iso8601_timestamp"] == "20240819T222516.604685Z"


def test_messages_of_the_log(printed: Print) -> None:
    [message] = printed("ampserr", "00-0015")
    assert set(message) == documented("ampserr")
    assert (message["id"], message["level"]) == ("00-0015", "info")


def test_what_a_disk_takes(tmp_path: Path, printed: Print) -> None:
    [metrics] = printed("amps_bio_perf_test", "-s", "1", "-f", tmp_path / "data")
    assert metrics["submit_count"] == metrics["write_count"] * metrics["batch_size"] == 2048
    assert set(metrics) == documented("amps_bio_perf_test")


def test_whether_files_can_be_used(
    files: Mapping[str, Path], printed: Print, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [answer] = printed("amps_upgrade", "--check-current", "--config", files["config.xml"])
    assert answer == {"instance": "TEST", "can_be_used": True, "cannot_be_used": []}


def documented(command: str) -> set[str]:
    """The fields of what a command prints that has no kinds of records."""
    rows = (ROOT / "docs/tools.md").read_text().partition("### Others")[2].splitlines()
    [row] = [row for row in rows if row.startswith(f"| `{command}` |")]
    return set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row))) - {command}


CASES: Final[Mapping[str, Sequence[str]]] = {
    "amps_journal_dump": ["0000000001.journal", "--extents"],
    "amps_grep": ["server.log", "-e", "disconnected"],
    "amps_client_ack_dump": ["clients.ack"],
    "amps_queues_ack_dump": ["queues.ack"],
    "amps_tx_topic_index_dump": ["0000000000.topic.index", "--topic", "orders"],
    "amps_sow_dump": ["t.sow", "-v"],
    "amps_file": ["t.sow"],
    "amps_sow_dump --sizing-chart": ["t.sow", "--sizing-chart"],
}
"""Commands that print all that there is about a file."""


@pytest.mark.parametrize("case", CASES)
def test_each_field_is_documented(case: str, files: Mapping[str, Path], printed: Print) -> None:
    """In the row of its record, which names nothing that there is not."""
    module, words = case.split()[0], CASES[case]
    page = (ROOT / "docs/tools.md").read_text()
    rows = [
        re.findall(r"`(\w+(?: entry)?)`", re.sub(r"\(.*?\)", "", row))
        for row in page.partition("### amps_journal_dump")[2].splitlines()
        if row.startswith("|")
    ]
    for one in printed(module, files[words[0]], *words[1:]):
        record = one.get("record", module)
        fields = set(one) - {"record"}
        documented = [set(row[1:]) for row in rows if row and row[0] == record]
        assert any(fields <= row for row in documented), (record, fields)
        if record not in ("file", "entry"):  # whose rows are of several commands
            assert fields in documented, (record, fields)
