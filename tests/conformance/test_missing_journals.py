"""Journals that a start does not find: of an instance that was renamed, or removed by hand."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.long_form import spread
from tests.support.raw import QUICK_ACKS
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    amp_server,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.sow import query

ELEMENTS = """
<SOW>
  <Queue><Name>jobs</Name><MessageType>json</MessageType></Queue>
  <Queue><Name>others</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(jobs|others|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
WARNING = (
    "1D-0039 journal contains journals of test-instance, but none of renamed, which begins an empty"
    " transaction log beside them"
)
LARGE = b'{"pad":"%b"}' % (b"x" * 1_000_000)


def said(server: RunningServer, *names: str) -> list[str]:
    """Return the lines of the log with some message ids, from the id on."""
    lines = server.log().splitlines()
    return [line[line.index(name) :] for line in lines for name in names if f" {name} " in line]


def test_a_renamed_instance_is_warned_of(tmp_path: Path) -> None:
    """By its first start, and by the check before; not where both have journals."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=ELEMENTS, transports="", level="info")
    with running_configuration(tmp_path, text, port) as server:
        assert said(server, "1D-0039") == []
        with server.log_on("p", o=QUICK_ACKS) as peer:
            ack = peer.ask({"c": "publish", "t": "jobs", "s": 1, "a": "persisted"}, b'{"id":1}')
            assert ack["status"] == "success"
        server.stop()
    renamed = text.replace("test-instance", "renamed")
    path = tmp_path / "renamed.xml"
    path.write_text(renamed)
    checked = amp_server("--verify-config", path, cwd=tmp_path)
    assert "journal contains journals of test-instance, but none of renamed" in checked.stderr
    assert "0 errors, 1 warning" in checked.stderr
    for again in range(2):
        with running_configuration(tmp_path, renamed, port) as server:
            assert said(server, "1D-0039") == ([] if again else [WARNING])
            server.stop()
    with running_configuration(tmp_path, text, port) as server, server.log_on("reader") as peer:
        assert said(server, "1D-0039") == []
        assert len(query(peer, "jobs").messages) == 1


RECORDS = """
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
    {point}
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(h|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
LOST = "15-0123 SOW topic 'h' (json): h.sow was newly created, and the transaction log begins with"
FILE_LOSSES: dict[str, tuple[Callable[[Path], object], str, bool]] = {
    "file_is_missing": (lambda path: path.unlink(), "", True),
    "file_is_empty": (lambda path: path.write_bytes(b""), "", True),
    "file_is_damaged": (lambda path: path.write_bytes(bytes(1 << 20)), "", True),
    "file_is_there": (lambda _: None, "", False),
    "nothing_before_now_is_wanted": (
        lambda path: path.unlink(), "<RecoveryPoint>now</RecoveryPoint>", False
    ),
    "later_messages_are_wanted": (
        lambda path: path.unlink(), "<RecoveryPoint>29990101T000000Z</RecoveryPoint>", False
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files_of_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a server that had a record in its first journal, and one behind."""
    directory = tmp_path_factory.mktemp("records")
    with running_server(directory, elements=RECORDS.format(point="")) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            for sequence in range(1, 14):
                topic, body = ("events", LARGE) if 1 < sequence < 13 else ("h", b'{"id":%d}')
                head = {"c": "publish", "t": topic, "s": sequence, "a": "persisted"}
                body = body.replace(b"%d", b"%d" % sequence)
                assert peer.ask(head, body)["status"] == "success"
        server.stop()
    return directory


@pytest.mark.parametrize("loss", spread(tuple(FILE_LOSSES), 3))
def test_records_that_were_in_journals_that_are_gone_are_told(
    files_of_records: Path, tmp_path: Path, loss: str
) -> None:
    """Once, where the topic's file has to be made from the log; not where all journals are left."""
    lose, point, is_said = FILE_LOSSES[loss]
    elements = RECORDS.format(point=point)
    for journals_are_gone in (False, True):
        directory = tmp_path / str(journals_are_gone)
        shutil.copytree(files_of_records, directory, ignore=shutil.ignore_patterns("*.log"))
        lose(directory / "h.sow")
        if journals_are_gone:
            for path in (directory / "journal").glob("test-instance.0000000000.*"):
                path.unlink()
        for again in range(2):
            with running_server(directory, elements=elements) as server:
                lines = said(server, "15-0123")
                assert [line[: len(LOST)] for line in lines] == (
                    [LOST] if journals_are_gone and is_said and not again else []
                )
                if is_said:
                    with server.log_on("reader") as peer:
                        assert len(query(peer, "h").messages) == (1 if journals_are_gone else 2)
                server.stop()


def test_journals_that_were_removed_by_hand_are_told(tmp_path: Path) -> None:
    """Once, with the queue that lost messages, and not the one that had none there."""
    with running_server(tmp_path, elements=ELEMENTS) as server:
        with server.log_on("p", o=QUICK_ACKS) as peer:
            for sequence in range(1, 4):
                peer.publish("jobs", b'{"id":1}', s=sequence)
            for sequence in range(4, 16):  # more than a journal takes
                head = {"c": "publish", "t": "events", "s": sequence, "a": "persisted"}
                assert peer.ask(head, LARGE)["status"] == "success"
            head = {"c": "publish", "t": "others", "s": 16, "a": "persisted"}
            assert peer.ask(head, b'{"id":1}')["status"] == "success"
        server.stop()
    for path in (tmp_path / "journal").glob("test-instance.0000000000.*"):
        path.unlink()
    with running_server(tmp_path, elements=ELEMENTS) as server:
        cut, queue = said(server, "1D-0040", "1D-0041")
        assert cut.startswith("1D-0040 The transaction log begins with journal/test-instance.00000")
        assert queue.startswith("1D-0041 Queue jobs has lost its messages from ent")
        with server.log_on("reader") as peer:
            assert query(peer, "jobs").messages == []
            assert len(query(peer, "others").messages) == 1
        server.stop(signal.SIGTERM)
    with running_server(tmp_path, elements=ELEMENTS) as server:
        assert said(server, "1D-0040", "1D-0041") == []
