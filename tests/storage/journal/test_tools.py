"""The tools that read journals and what lies beside them."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from amperage.wire.bookmarks import client_hash
from server.cli import (
    amps_client_ack_dump,
    amps_file,
    amps_grep,
    amps_journal_dump,
    amps_journal_search,
    amps_queues_ack_dump,
    amps_tx_topic_index_dump,
)
from server.statistics.database import StatisticsDatabase
from server.storage.journal.format.times import iso_timestamp, raw_timestamp
from server.storage.journal.queue_points import (
    QueuePoint,
    QueuePointTable,
    pack_queues,
    unpack_queues,
)
from server.storage.sow.keys.chain_file import ChainFile
from server.storage.sow.slab.slab_file import SlabFile
from tests.storage.journal.support import opened

PUB = client_hash("pub")


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Two files, the first full; bodies of 50,000 bytes, but for five short ones."""
    with opened(tmp_path, with_topic_index=True) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        origin = bench.journal.origin_handle("ann")
        for sequence in range(1, 6):
            body = f'{{"id":{sequence}}}'.encode()
            bench.journal.append(
                topic, PUB, sequence, body, origin=origin, correlation_id=b"c-%d" % sequence
            )
        bench.journal.append(
            bench.journal.topic_handle("json", "trades"), client_hash("other"), 0, b"x"
        )
        for sequence in range(6, 30):
            bench.journal.append(topic, PUB, sequence, bytes(50_000))
        bench.journal.commit()
        bench.journal.compress(0)
    return tmp_path


def first(journals: Path) -> str:
    return str(journals / "TEST.0000000000.journal.gz")


def output(capsysbinary: pytest.CaptureFixture[bytes]) -> bytes:
    return capsysbinary.readouterr().out


def test_a_dump_shows_all_there_is(
    journals: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert amps_journal_dump.main([first(journals), "-l", "0:4", "--extents"]) == 0
    lines = output(capsysbinary).decode().splitlines()
    assert lines[0] == "File Name       : TEST.0000000000.journal.gz"
    assert "Instance        : TEST" in lines
    assert "First Timestamp : 20250615T150640.000000Z" in lines
    fields = {line[:30].strip(): line[32:].strip() for line in lines if line[30:31] == ":"}
    assert fields["type"] == "publish"
    assert fields["client name hash"] == str(PUB)
    assert fields["client seq"] == "2"
    assert fields["timestamp"] == str(raw_timestamp(1_750_000_000_000_000))
    assert fields["topic"] == "[orders]"
    assert fields["data"] == '[{"id":2}]'
    assert fields["auth id"] == "[ann]"
    assert fields["correlation id"] == "[c-2]"
    assert any(line.startswith("Total Entries   : ") for line in lines)
    assert any(line.startswith("Local           : [") for line in lines)


OPTIONS = [
    (["-l", "5"], 2),
    (["-l", "3:5"], 3),
    (["--include-noops", "-l", "5"], 5),
    (["--no-data", "-l", "4:4"], 1),
]


@pytest.mark.parametrize(("options", "entries"), OPTIONS)
def test_how_much_a_dump_shows(
    journals: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    options: list[str],
    entries: int,
) -> None:
    amps_journal_dump.main([first(journals), *options])
    text = output(capsysbinary)
    assert text.count(b"\nlocal txid ") == entries
    assert (b"\ndata " in text) == ("--no-data" not in options)


SEARCHES = [
    ([f"{PUB}|3|"], 1),
    ([f"{PUB}|77|"], 0),
    (["1750000000000000004"], 1),
    (["-d", '"id":4'], 1),
    (["-d", f"{PUB}|4|"], 1),
    (["-topic=trades"], 1),
    (["--topic", "orders", f"--client={PUB}", "-d", '"id"'], 5),
    (["--client=" + str(client_hash("other"))], 1),
    (["--client=5"], 0),
]


@pytest.mark.parametrize(("search", "found"), SEARCHES)
def test_searching(
    journals: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    search: list[str],
    found: int,
) -> None:
    status = amps_journal_search.main([first(journals), *search])
    assert output(capsysbinary).count(b"\nclient seq ") == found
    assert status == (0 if found else 1)


def test_searches_that_make_no_sense(journals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert amps_journal_search.main([first(journals), "x|y"]) == 2
    assert "neither a txid nor a bookmark" in capsys.readouterr().err
    assert amps_journal_search.main([first(journals)]) == 2
    assert amps_journal_search.main(["/nowhere", "1"]) == 2


# An entry that defines a topic is of that topic.
INDEXED = [
    ([], 3, 0),
    (["--topic", "orders"], 1, 26),
    (["--topic", "trades"], 1, 2),
    (["--topic", "trades", "--message-type", "fix"], 0, 0),
    (["--message-type", "json"], 2, 0),
    (["--topic-hash", str(client_hash("trades"))], 1, 2),
    (["--topic", "nothing"], 0, 0),
]


@pytest.mark.parametrize(("options", "topics", "entries"), INDEXED)
def test_the_entries_of_topics(
    journals: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    options: list[str],
    topics: int,
    entries: int,
) -> None:
    path = str(journals / "TEST.0000000000.topic.index")
    assert amps_tx_topic_index_dump.main([path, *options]) == 0
    text = output(capsysbinary)
    assert text.count(b"\ntopic   ") == topics
    assert text.count(b"\n  entry ") == entries


def test_the_entries_of_a_topic_are_where_it_is_said(
    journals: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    amps_tx_topic_index_dump.main(
        [str(journals / "TEST.0000000000.topic.index"), "--topic", "trades"]
    )
    line = output(capsysbinary).decode().splitlines()[-2]
    txid, place = (int(one.rpartition(" ")[2]) for one in line.split(",")[1:])
    data = gzip.decompress((journals / "TEST.0000000000.journal.gz").read_bytes())
    assert data[place : place + 1] == b"x"
    amps_journal_search.main([first(journals), str(txid)])
    assert b"[trades]" in output(capsysbinary)


def test_topics_without_names(journals: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    (journals / "TEST.0000000000.index.gz").unlink()
    path = journals / "TEST.0000000000.topic.index"
    assert amps_tx_topic_index_dump.main([str(path)]) == 1
    text = output(capsysbinary)
    assert text.count(b"\ntopic           : *** not known") == 3
    path.write_bytes(path.read_bytes()[:-1])
    assert amps_tx_topic_index_dump.main([str(path)]) == 1


def test_publishers(journals: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = str(journals / "TEST.clients.ack")
    assert amps_client_ack_dump.main([path, "-n", "1"]) == 0
    text = output(capsysbinary).decode()
    assert f"{PUB:>20}  {29:>20}  20250615T150640.000000Z\n" in text
    assert amps_client_ack_dump.main([first(journals)]) == 1


QUEUES = QueuePointTable(
    77,
    [
        QueuePoint("json", "jobs", "epoch", 1, 70, [((5, 9), 1_750_000_000_000_000)]),
        QueuePoint("nvfix", "caf\u00e9", "now", 20, 78, []),
    ],
)


def test_queues(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "TEST.queues.ack"
    path.write_bytes(pack_queues(QUEUES, 1_750_000_000_000_000))
    assert unpack_queues(path.read_bytes()) == QUEUES
    assert amps_queues_ack_dump.main([str(path)]) == 0
    text = output(capsysbinary).decode()
    assert "Last txid       : 77\nQueues          : 2\n" in text
    assert "needed from txid: 70\nearly acks      : 1\n  5|9| 20250615T150640.000000Z\n" in text
    assert amps_queues_ack_dump.main([str(path), "-n", "1"]) == 0
    assert b"nvfix" not in output(capsysbinary)
    path.write_bytes(path.read_bytes()[:-1])
    assert amps_queues_ack_dump.main([str(path)]) == 1


KINDS = {
    "TEST.queues.ack": "AMPS queues.ack 1.0",
    "TEST.0000000000.journal.gz": "AMPS journal 1.0",
    "TEST.0000000001.journal": "AMPS journal 1.0",
    "TEST.0000000000.index.gz": "AMPS journal index 1.0",
    "TEST.0000000000.topic.index": "AMPS journal topic index 1.0",
    "TEST.clients.ack": "AMPS clients.ack 1.0",
    "TEST.0000000002.journal": "AMPS journal, not yet used",
    "orders.sow": "AMPS sow 1.0",
    "chains": "AMPS chained keys 1.0",
    "other": "not an AMPS file",
    "stats.db": "AMPS statistics database 1.0",
}


def test_kinds_of_files(journals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (journals / "other").write_text("hello")
    (journals / "TEST.queues.ack").write_bytes(pack_queues(QUEUES, 0))
    SlabFile(journals / "orders.sow", 4096).close()
    ChainFile(journals / "chains").close()
    StatisticsDatabase(str(journals / "stats.db")).close()
    assert amps_file.main([str(journals / "*")]) == 0
    lines = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert lines == KINDS
    assert amps_file.main(["/nowhere"]) == 1


def test_a_statistics_database_is_recognized_while_a_server_writes_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stats.db"
    with closing(StatisticsDatabase(str(path))):
        assert amps_file.main([str(path)]) == 0
    assert capsys.readouterr().out == "stats.db: AMPS statistics database 1.0\n"


LOG = b"""2017-09-28T16:57:49.8267470-07:00 [26] trace: 12-0010 client[A] logon received: pubber
2017-09-28T16:57:49.8269820-07:00 [45] info: 1F-0004 [A] logon for: pubber
client session info:
 client name hash        = 709
2017-09-28T16:57:49.8281840-07:00 [26] error: 07-0013 client[B] disconnected.
"""

GREPS: list[tuple[list[str], list[int]]] = [
    (["pubber"], [1, 2]),
    (["-e", "pubber", "-e", "disconnected"], [1, 2, 5]),
    (["name hash"], [2]),
    (["PUBBER"], []),
    (["-i", "PUBBER"], [1, 2]),
    (["-v", "pubber"], [5]),
    (["client[A]"], [1]),
    (["-E", r"client\[[AB]\]"], [1, 5]),
    (["-E", "info|error"], [2, 5]),
    (["-E", "(?i)PUBBER", "-e", "disconnected"], [1, 2, 5]),
    (["--client", "pubber"], [1, 2]),
]


@pytest.mark.parametrize(("options", "lines"), GREPS)
def test_log_entries_are_found_as_a_whole(
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    options: list[str],
    lines: list[int],
) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    status = amps_grep.main(["-n", *options, str(path)])
    text = output(capsysbinary)
    numbers = [int(line.split(b":")[0]) for line in text.splitlines() if b"2017-" in line]
    assert numbers == lines
    assert (b"name hash" in text) == (2 in lines)
    assert status == (0 if lines else 1)


def test_names_of_files_are_shown_when_there_are_several(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    for path in (one, two):
        path.write_bytes(LOG)
    amps_grep.main(["disconnected", str(one), str(two)])
    assert output(capsysbinary).count(b"one.log:") == 1
    amps_grep.main(["-h", "disconnected", str(one), str(two)])
    assert b"one.log" not in output(capsysbinary)
    amps_grep.main(["-H", "disconnected", str(one)])
    assert b"one.log:2017" in output(capsysbinary)


def test_terms_may_come_from_a_file(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "terms").write_text("disconnected\n1F-0004\n")
    (tmp_path / "log").write_bytes(LOG)
    amps_grep.main(["-f", str(tmp_path / "terms"), str(tmp_path / "log")])
    assert output(capsysbinary).count(b"2017-") == 2
    (tmp_path / "terms").write_text("")
    assert amps_grep.main(["-f", str(tmp_path / "terms"), str(tmp_path / "log")]) == 1
    assert output(capsysbinary) == b""


def test_standard_input_is_searched(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(LOG))))
    assert amps_grep.main(["disconnected"]) == 0
    assert output(capsysbinary).count(b"2017-") == 1


JOURNAL_GREPS = [
    (["orders"], 29),
    (['"id":3'], 1),
    (["--client", "pub"], 29),
    (["--client", str(PUB), "-e", '"id"'], 5),
    (["--client", "other"], 1),
    (["--client", "nobody"], 0),
]


@pytest.mark.parametrize(("options", "found"), JOURNAL_GREPS)
def test_journals_are_searched_with_their_headers(
    journals: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    options: list[str],
    found: int,
) -> None:
    files = [first(journals), str(journals / "TEST.0000000001.journal")]
    assert amps_grep.main([*options, "--no-data", *files]) == (0 if found else 1)
    text = output(capsysbinary)
    assert text.count(b"\nclient seq ") == found
    assert text.count(b"File Name ") == 2
    assert b"\ndata " not in text


def test_what_grep_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert amps_grep.main(["-E", "(", "/nowhere"]) == 2
    assert amps_grep.main(["x", "/nowhere"]) == 2
    (tmp_path / "a.journal").write_text("no journal")
    assert amps_grep.main(["x", str(tmp_path / "a.journal")]) == 2
    assert "a.journal" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        amps_grep.main([])


def test_times_are_written_as_amps_writes_them() -> None:
    # The example of the User Guide, Dump journal File.
    assert raw_timestamp(1_711_058_992_535_075) == 212_577_862_192_535_075
    assert iso_timestamp(1_711_058_992_535_075) == "20240321T220952.535075Z"
    assert iso_timestamp(2**62) == str(2**62)


def test_the_tools_run_as_programs(journals: Path) -> None:
    assert (
        b"+0900"
        in subprocess.run(
            [
                sys.executable,
                "-m",
                "server.cli.amps_journal_dump",
                first(journals),
                "--localtime",
            ],
            capture_output=True,
            check=True,
            env={"TZ": "Asia/Tokyo", "PATH": ""},
        ).stdout
    )
