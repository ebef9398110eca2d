"""The jobs of amps-pipeline, as typed at the command line, in the Spark session of the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest

from amperage.client import Client
from pipeline.cli import main
from server.storage.journal.format.entry import JournalEntryKind
from tests.pipeline.journals import journal, message
from tests.pipeline.quick_java import quick_java
from tests.pipeline.streams import until
from tests.pipeline.topics import logged, publish, uri
from tests.pipeline.topics import records as state_records
from tests.support.long_form import spread
from tests.support.server import RunningServer

pytestmark = pytest.mark.usefixtures("spark")


def exported(target: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(target, partitioning="hive").to_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["txid"]))


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [json.loads(row["body"])["id"] for row in rows]


def test_an_export_adds_what_has_come_since_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "journal", tmp_path / "export"
    with journal(source) as writer:
        for number in range(300):
            writer.publish("a/b" if number % 2 else "orders", message(number))
    export = ["export", str(source), str(target)]
    assert main([*export, "--dry-run"]) == 0
    assert "TEST: 303 entries to export" in capsys.readouterr().out
    assert not target.exists()
    assert main(export) == 0
    assert ids(exported(target)) == list(range(300))
    assert {path.name for path in target.iterdir()} == {
        "_amps_pipeline", "topic=a%2Fb", "topic=orders",
    }  # fmt: skip
    assert main(export) == 0
    assert "nothing new" in capsys.readouterr().out
    with journal(source) as writer:
        writer.clock.now += 86_400_000_000
        for number in range(300, 400):
            writer.publish("orders", message(number), client=9)
    assert main(export) == 0
    assert ids(exported(target)) == list(range(400))
    assert len(list((target / "topic=orders").iterdir())) == 2, "one folder for each date"
    assert main([*export, "--topic", "other"]) == 1
    assert "contains the export of" in capsys.readouterr().err


def test_an_export_that_was_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "export"
    with journal(source) as writer:
        for number in range(100):
            writer.publish("orders", message(number))
    assert main(["export", str(source), str(target)]) == 0
    own = target / "_amps_pipeline"
    state = json.loads((own / "state.json").read_text())
    (file,) = target.glob("topic=orders/*/*.parquet")
    staged = own / "staging" / file.relative_to(target)
    staged.parent.mkdir(parents=True)
    file.rename(staged)  # as if the run had died when it had decided what to move
    moves = [[str(staged.relative_to(target)), str(file.relative_to(target))]]
    commit = {"moves": moves, "removals": [], "state": state}
    (own / "commit.json").write_text(json.dumps(commit))
    (own / "state.json").unlink()
    assert main(["export", str(source), str(target)]) == 0
    assert ids(exported(target)) == list(range(100))
    assert json.loads((own / "state.json").read_text()) == state


@pytest.mark.parametrize(
    "cut",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "a_byte_is_missing", "half_is_missing", "zeros_at_the_end", "zeros"],
)
def test_an_export_whose_state_is_cut_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cut: Callable[[bytes], bytes]
) -> None:
    source, target = tmp_path / "journal", tmp_path / "export"
    with journal(source) as writer:
        writer.publish("orders", message(0))
    assert main(["export", str(source), str(target)]) == 0
    with journal(source) as writer:
        writer.publish("orders", message(1))
    state = target / "_amps_pipeline" / "state.json"
    content = cut(state.read_bytes())
    state.write_bytes(content)
    assert main(["export", str(source), str(target)]) == 1
    assert f"{state}: cannot be read" in capsys.readouterr().err
    assert ids(exported(target)) == [0]
    assert state.read_bytes() == content


def test_journals_that_went_before_they_were_exported_are_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "journal", tmp_path / "export"
    with journal(source) as writer:
        writer.publish("orders", message(0))
    assert main(["export", str(source), str(target)]) == 0
    with journal(source) as writer:
        for number in range(1, 5000):
            writer.publish("orders", message(number))
    for gone in source.glob("TEST.0000000000.*"):
        gone.unlink()
    assert main(["export", str(source), str(target)]) == 1
    assert "have not been exported, and their journals are removed" in capsys.readouterr().err
    assert main(["--dry-run", "export", str(source), str(target), "--accept-gap"]) == 0


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a topic with records leaves in a journal: publishes, deltas, deletes, lifetimes."""
    directory = tmp_path_factory.mktemp("records")
    with journal(directory) as writer:
        for number in range(60):
            writer.publish("state", message(number), key=number % 20 + 1)
        writer.publish("state", b'["3","4","77"]', kind=JournalEntryKind.SOW_DELETE)
        writer.publish("state", b'{"id":1000}', key=4, kind=JournalEntryKind.DELTA_PUBLISH)
        writer.publish("state", b'{"id":1001}', key=5, expiration=1)
        writer.publish("state", b'{"id":1002}', key=0, given_key=b"mine")
        writer.clock.now += 2_000_000
        writer.publish("other", b"{}", key=5)
    return directory


def state_at(records: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, int]:
    assert main(["history", str(records), "--topic", "state", *more]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {topic for topic, _, _ in lines} == {"state"}
    return {key: json.loads(body)["id"] for _, key, body in lines}


def test_history_tells_the_records_of_a_moment(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latest = {str(key + 1): 40 + key for key in range(20)}
    assert state_at(records, capsys, "--at", "7|60|") == latest
    assert state_at(records, capsys, "--at", "20250615T150640.010Z") == {
        str(key + 1): key for key in range(10)
    }
    for key in ("3", "5"):
        del latest[key]
    assert state_at(records, capsys) == latest | {"4": 1000, "mine": 1002}


def test_topics_of_one_name_and_two_message_types_have_records_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(tmp_path) as writer:
        writer.publish("state", b'{"id":1}', key=1)
        writer.publish("state", b"id=1\x01", key=1, message_type="nvfix")
    assert main(["history", str(tmp_path), "--topic", "state"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["state\t1\tid=1\x01", 'state\t1\t{"id":1}']
    assert main(["history", str(tmp_path), "--topic", "state", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["data"] for one in records) == ["id=1\x01", '{"id":1}']
    assert {(one["topic"], one["sow_key"]) for one in records} == {("state", "1")}


def test_history_writes_a_whole_directory_or_none(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "state"
    history = ["history", str(records), "--topic", "state", "--output", str(output)]
    assert main(history) == 0
    assert ds.dataset(output, exclude_invalid_files=True).count_rows() == 19
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert main(history) == 1
    assert "exists already" in capsys.readouterr().err
    assert main([*history[:-1], str(tmp_path / "none"), "--at", "yesterday"]) == 1
    assert "--at=yesterday" in capsys.readouterr().err
    assert main([*history[:-1], str(tmp_path / "none"), "--at", "7|9999|"]) == 1
    assert "option bookmark='7|9999|': bookmark not found" in capsys.readouterr().err


def test_stats_count_by_topic_and_hour(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(records), "--top", "2", "--json"]) == 0
    other, state = map(json.loads, capsys.readouterr().out.splitlines())
    assert (other["topic"], other["messages"], other["bytes"]) == ("other", 1, 2)
    assert state["messages"] == 64
    assert state["top_keys"] == [{"key": "4", "messages": 4}, {"key": "5", "messages": 4}]
    assert main(["stats", str(records), "--topic", "state"]) == 0
    assert "4 (4), 5 (4), 1 (3)" in capsys.readouterr().out


def replayed(server: RunningServer, topic: str) -> list[int]:
    with Client() as client:
        client.connect(uri(server))
        client.logon()
        stream = client.subscribe(topic, bookmark="[0:0|1|]", acks=("completed",))
        found: list[int] = []
        for one in stream:
            if one.command == "ack":
                break
            found.append(json.loads(one.body)["id"])
        return found


def sow_key(server: RunningServer, topic: str, record: dict[str, int]) -> str:
    """The key that a server gives a record."""
    publish(server, topic, [record])
    with Client() as client:
        client.connect(uri(server))
        client.logon()
        (found,) = client.sow(topic)
        return str(found.header.sow_key)


def test_a_replay_publishes_again_what_a_journal_or_its_export_has(
    tmp_path: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    source, export = tmp_path / "journal", tmp_path / "export"
    with journal(source) as writer:
        for number in range(2500):
            writer.publish("log-replayed", message(number))
        writer.publish("other", message(0))
    state = tmp_path / "state.json"
    replay = ["replay", str(source), uri(server), "--topic", "log-replayed"]
    assert main([*replay, "--state", str(state), "--rate", "100000"]) == 0
    assert "2500 entries replayed" in capsys.readouterr().out
    assert replayed(server, "log-replayed") == list(range(2500))
    remembered = json.loads(state.read_text())
    remembered["reached"]["TEST"] -= 100
    remembered["marks"] = {}  # as of a run that was killed
    state.write_text(json.dumps(remembered))
    assert main([*replay, "--state", str(state)]) == 0
    assert "100 entries replayed" in capsys.readouterr().out
    assert replayed(server, "log-replayed") == list(range(2500)), "duplicates are dropped"
    assert main(["export", str(source), str(export)]) == 0
    assert main(["replay", str(export), uri(server), "--topic", "log-replayed"]) == 0
    assert replayed(server, "log-replayed") == [*range(2500), *range(2500)]


def test_a_replay_takes_each_instance_and_message_type_for_itself(
    tmp_path: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entries of two instances have the same numbers, and both are published, in turn."""
    for instance in ("A", "B"):
        with journal(tmp_path, instance=instance) as writer:
            for number in range(400):
                writer.publish("log-of-two", message(number))
            writer.publish("log-of-two", b"id=1\x01", message_type="nvfix")
    assert main(["replay", str(tmp_path), uri(server)]) == 1
    assert "those of 'log-of-two' are nvfix" in capsys.readouterr().err
    assert replayed(server, "log-of-two") == []
    assert main(["replay", str(tmp_path), uri(server, "").rstrip("/")]) == 0
    assert replayed(server, "log-of-two") == [*range(400), *range(400)]
    assert logged(server, "log-of-two", "nvfix") == [b"id=1\x01"] * 2


def test_a_replay_that_goes_on_takes_no_record_away(
    tmp_path: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it sends again are duplicates, deletions too; what the server will not have is told."""
    source, state = tmp_path / "journal", tmp_path / "state.json"
    with journal(source) as writer:
        for number in (1, 2):
            writer.publish("both-replayed", b'{"id":%d,"n":1}' % number, key=number)
        key = sow_key(server, "both-replayed", {"id": 1})
        writer.publish("both-replayed", b'["%b"]' % key.encode(), kind=JournalEntryKind.SOW_DELETE)
        writer.publish("both-replayed", b'{"id":1,"n":2}', key=1)
        writer.publish("/AMPS/no", b"{}")
    replay = ["replay", str(source), uri(server), "--state", str(state)]
    assert main(replay) == 1
    assert "the server refused 1 of 5 messages and accepted all others" in capsys.readouterr().err
    wanted = [{"id": 1, "n": 2}, {"id": 2, "n": 1}]
    assert state_records(server, "both-replayed") == wanted
    remembered = json.loads(state.read_text())
    state.write_text(json.dumps(remembered | {"reached": {}}))  # killed before it took note
    assert main(replay) == 1
    assert state_records(server, "both-replayed") == wanted


def test_a_replay_does_not_go_on_in_a_log_that_was_put_back(
    tmp_path: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it has fewer entries than were sent by now, or more."""
    source, backup = tmp_path / "journal", tmp_path / "backup"
    topic = "log-put-back"

    def write(*numbers: int) -> None:
        with journal(source) as writer:
            for one in numbers:
                writer.publish(topic, message(one))

    write(1, 2)
    shutil.copytree(source, backup)
    write(3)
    replay = ["replay", str(source), uri(server), "--state", str(tmp_path / "state.json")]
    assert main(replay) == 0
    write(4)
    assert main(replay) == 0
    assert replayed(server, topic) == [1, 2, 3, 4]
    shutil.rmtree(source)
    shutil.copytree(backup, source)
    assert main(replay) == 1
    assert "restored from a backup; use another file for --st" in capsys.readouterr().err
    write(5, 6, 7)
    assert main(replay) == 1
    assert "have another entry" in capsys.readouterr().err
    assert replayed(server, topic) == [1, 2, 3, 4]
    assert main([*replay[:-1], str(tmp_path / "other.json")]) == 0
    assert replayed(server, topic) == [1, 2, 3, 4, 1, 2, 5, 6, 7]


@pytest.mark.parametrize(
    ("number", "status"), spread([(signal.SIGINT, 130), (signal.SIGTERM, 143)], 1, several=True)
)
def test_a_replay_that_is_interrupted_goes_on(
    number: int, status: int, tmp_path: Path, server: RunningServer
) -> None:
    topic = f"log-interrupted-{status}"
    with journal(tmp_path / "journal") as writer:
        for one in range(60):
            writer.publish(topic, message(one))
    replay = ["replay", str(tmp_path / "journal"), uri(server), "--state", str(tmp_path / "state")]

    def interrupt() -> None:
        until(lambda: replayed(server, topic) != [])
        os.kill(os.getpid(), number)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    assert main([*replay, "--rate", "20"]) == status
    interrupting.join()
    assert 0 < len(replayed(server, topic)) < 60
    assert main(replay) == 0
    assert replayed(server, topic) == list(range(60))


def test_a_replay_says_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with journal(tmp_path) as writer:
        writer.publish("t", message(0))
    assert main(["replay", str(tmp_path), "tcp://127.0.0.1:1/amps/json"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("amps-pipeline: tcp://127.0.0.1:1/amps/json: after 0 of 1 messages: ")


CONFIGURATION = """
<AMPSConfig>
  <Name>TEST</Name>
  <SOW>
    <Topic>
      <Name>state</Name><MessageType>json</MessageType><Key>/id</Key><FileName>{sow}</FileName>
    </Topic>
  </SOW>
  <TransactionLog>
    <JournalDirectory>{journal}</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>state</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
</AMPSConfig>
"""


def test_a_sow_file_is_made_anew_from_journals(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, output = tmp_path / "config.xml", tmp_path / "state.sow"
    config.write_text(CONFIGURATION.format(sow=tmp_path / "old.sow", journal=records))
    rebuild = ["rebuild", str(config), "--topic", "state", "--output", str(output)]
    assert main(["--dry-run", *rebuild]) == 0
    assert not output.exists()
    assert main(rebuild) == 0
    assert "20 records" in capsys.readouterr().out
    dumped = subprocess.run(
        [sys.executable, "-m", "server.cli.amps_sow_dump", str(output)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = [json.loads(line) for line in dumped.splitlines() if line.startswith("{")]
    assert {one["id"] for one in found} == {1000, 1001, 1002, *range(40, 60)} - {42, 43, 44}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
    assert main(rebuild) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["unknown"], 2, "invalid choice"),
        (["--conf", "x", "stats", "."], 2, "expected NAME=VALUE"),
        (["stats", "/nowhere"], 1, "/nowhere: no such directory"),
        (["export", "/nowhere", "/tmp/x"], 1, "/nowhere: no such directory"),
        (["history", "."], 1, "--topic: missing"),
        (["stats", ".", "--top", "-1"], 1, "--top=-1: expected a number of keys"),
        (["replay", ".", "tcp://x", "--rate", "-1"], 1, "--rate=-1: expected messages per second"),
        (["rebuild", "/none.xml", "--topic", "t", "--output", "/tmp/x"], 1, "/none.xml"),
        (["export", "tcp://127.0.0.1:1/amps/json", "/tmp/x"], 1, "--topic: missing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        result = main(arguments)
    except SystemExit as problem:
        result = int(problem.code or 0)
    assert result == status
    assert text in capsys.readouterr().err


def test_a_spark_that_cannot_start_is_said_in_a_line(tmp_path: Path) -> None:
    """In a process of its own, which has no Spark yet."""
    quick = ["--conf", f"spark.driver.extraJavaOptions={quick_java()}"]
    for setting, text in (
        (["--master", "nonsense"], "Spark cannot start: Master must either be yarn or start with"),
        (["--conf", "spark.driver.memory=x"], "Spark cannot start: Invalid maximum heap size"),
    ):
        job = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", *setting, *quick, "stats", str(tmp_path)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert job.returncode == 1
        (line,) = job.stderr.splitlines()
        assert line.startswith(f"amps-pipeline: {text}")


def test_whoever_waits_at_a_terminal_is_told_what_for(tmp_path: Path) -> None:
    """Until Spark has started, or cannot: here for as long as Java likes."""
    java, may_end = tmp_path / "home" / "bin" / "java", tmp_path / "may-end"
    java.parent.mkdir(parents=True)
    version = "echo 'openjdk version \"17.0.1\"' >&2; exit"
    java.write_text(f"#!/bin/sh\n[ $1 = -version ] && {{ {version}; }}\nread _ < {may_end}\nexit 1")
    java.chmod(0o755)
    os.mkfifo(may_end)
    ours, its = os.openpty()
    job = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", "stats", str(tmp_path)],
        env=os.environ | {"JAVA_HOME": str(java.parents[1])},
        stderr=its,
    )
    os.close(its)
    with job, open(ours, "rb", buffering=0) as terminal:
        told = b"Starting Spark ..."
        assert terminal.read(len(told)) == told
        may_end.write_bytes(b"\n")
        wiped, rest = b"\r\x1b[K", b""
        while b"\n" not in rest:
            rest += terminal.read(1000)
        assert rest.startswith(wiped + b"amps-pipeline: Spark cannot start: ")
    assert job.returncode == 1


@pytest.fixture(scope="module")
def of_many_topics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Journals, and an export of them."""
    directory = tmp_path_factory.mktemp("many")
    source, export = directory / "journal", directory / "export"
    with journal(source) as writer:
        for topic in ("orders", "Orders2", "a/b", "quotes", "bills", "fills", "news"):
            writer.publish(topic, b"{}", key=1)
    assert main(["export", str(source), str(export)]) == 0
    return source, export


UNKNOWN: Final = [
    ("ordres", "has no such topic; similar topics: orders, Orders2"),
    ("A/b", "has no such topic; similar topics: a/b"),
    ("^order$", "has no matching topic; similar topics: orders, Orders2"),
    (
        "xyzzy",
        "has no such topic; its topics: Orders2, a/b, bills, fills, news and 2 more",
    ),
]


@pytest.mark.parametrize(("topic", "said"), UNKNOWN)
@pytest.mark.parametrize("job", spread(["history", "stats", "replay"], 1))
@pytest.mark.parametrize("kind", [0, 1], ids=["journals", "export"])
def test_a_topic_that_nobody_knows_is_told_with_those_like_it(
    of_many_topics: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    job: str,
    topic: str,
    said: str,
    kind: int,
) -> None:
    source = of_many_topics[kind]
    to = ["tcp://127.0.0.1:1/amps/json"] if job == "replay" else []
    assert main([job, str(source), *to, "--topic", topic]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"amps-pipeline: --topic={topic}: {source} {said}\n"


def test_a_topic_is_known_that_only_archived_journals_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, archive = tmp_path / "journal", tmp_path / "archive"
    archive.mkdir()
    with journal(source) as writer:
        writer.publish("old", b"{}", key=1)
        for number in range(5000):
            writer.publish("new", message(number), key=1)
    for path in source.glob("TEST.0000000000.*"):
        path.rename(archive / path.name)
    stats = ["stats", str(source), "--topic"]
    assert main([*stats, "old"]) == 1
    assert "has no such topic; its topics: new" in capsys.readouterr().err
    assert main([*stats, "old", "--archive", str(archive)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "old"


def test_journals_without_a_message_have_no_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(tmp_path):
        pass
    assert main(["stats", str(tmp_path), "--topic", "orders"]) == 1
    assert "has no such topic; it has no topics" in capsys.readouterr().err
    assert main(["stats", str(tmp_path), "--topic", "(orders"]) == 1
    assert "option topic='(orders': " in capsys.readouterr().err


def test_damage_found_in_a_task_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(tmp_path) as writer:
        for number in range(200):
            writer.publish("state", message(number), key=1)
            writer.journal.commit()
    path = min(tmp_path.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[9000] ^= 1
    path.write_bytes(data)
    assert main(["history", str(tmp_path), "--topic", "state"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"amps-pipeline: {path}: entry ")
    assert len(error.splitlines()) == 1
