"""Where queues begin after a restart: queues.ack, RecoveryPoint, and what keeps journals."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Final

import pytest

from amperage.wire.bookmarks import client_hash
from server.cli import amps_journal_dump, amps_queues_ack_dump
from server.storage.journal import Journal, JournalEntryKind, JournalSettings
from tests.support.long_form import spread
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <MaxPerSubscriptionBacklog>5000</MaxPerSubscriptionBacklog>
    {options}
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
PUBLISHER: Final = str(client_hash("publisher"))
CACHE: Final = "journal/test-instance.queues.ack"


def elements(options: str = "") -> str:
    return ELEMENTS.format(options=options)


def publish(peer: RawPeer, numbers: range) -> None:
    with peer.at_once():
        for number in numbers:
            peer.publish("work", json.dumps({"n": number}).encode(), s=number)
    ack = peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
    assert ack["a"] == "persisted"


def consume(server: RunningServer, expected: list[int], *, acknowledged: int = 0) -> None:
    """Have exactly these messages delivered, and acknowledge some of the first."""
    with server.log_on("consumer") as peer:
        peer.subscribe("jobs", "s", o="max_backlog=5000")
        marks: list[str] = []
        for number in expected:
            header, body = peer.receive()
            assert json.loads(body)["n"] == number
            marks.append(header["bm"])
        assert peer.hears_nothing()
        if acknowledged:
            acknowledge(peer, marks[:acknowledged])


def acknowledge(peer: RawPeer, marks: list[str]) -> None:
    header = {"c": "sow_delete", "t": "jobs", "bm": ",".join(marks), "cid": "d", "a": "persisted"}
    peer.send(header)
    while (answer := peer.receive()[0])["c"] != "ack":
        pass  # there is room for others
    assert answer["status"] == "success"


def some_work(directory: Path, options: str, how: signal.Signals) -> None:
    """Ten messages, of which the first six are acknowledged."""
    with running_server(directory, elements=elements(options)) as server:
        with server.log_on("publisher") as peer:
            publish(peer, range(1, 11))
        consume(server, list(range(1, 11)), acknowledged=6)
        server.stop(how)


STARTS: Final = [
    pytest.param("epoch", "epoch", False, [7, 8, 9, 10], id="known"),
    pytest.param("epoch", "epoch", True, [7, 8, 9, 10], id="forgotten"),
    pytest.param("now", "now", False, [7, 8, 9, 10], id="known and new then"),
    pytest.param("now", "now", True, [], id="forgotten and new"),
    pytest.param("epoch", "creation", False, [], id="another point"),
    pytest.param("now", "epoch", False, [7, 8, 9, 10], id="another point before"),
    pytest.param("epoch", "{hash}|9|", True, [9, 10], id="a bookmark"),
    pytest.param("epoch", "20990101T000000Z", True, [], id="a time to come"),
    pytest.param("epoch", "20200101T000000Z", True, [7, 8, 9, 10], id="a time long ago"),
]


@pytest.mark.parametrize(("before", "after", "is_forgotten", "expected"), STARTS)
@pytest.mark.parametrize("how", spread([signal.SIGKILL, signal.SIGTERM], 1))
def test_where_a_queue_begins(
    tmp_path: Path,
    before: str,
    after: str,
    is_forgotten: bool,
    expected: list[int],
    how: signal.Signals,
) -> None:
    some_work(tmp_path, f"<RecoveryPoint>{before}</RecoveryPoint>", how)
    if is_forgotten:
        (tmp_path / CACHE).unlink()
    after = after.format(hash=PUBLISHER)
    point = f"<RecoveryPoint>{after}</RecoveryPoint>"
    with running_server(tmp_path, elements=elements(point)) as server:
        consume(server, expected)


def test_early_acknowledgements_outlive_what_was_before_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their event is older than all that the queue needs of the log, and yet they count."""
    some_work(tmp_path, "", signal.SIGTERM)
    with running_server(tmp_path, elements=elements()) as server, server.log_on("consumer") as peer:
        acknowledge(peer, [f"{PUBLISHER}|{number}|" for number in (7, 8, 9, 10, 12)])
        server.stop()
    assert amps_queues_ack_dump.main([str(tmp_path / CACHE)]) == 0
    assert f"early acks      : 1\n  {PUBLISHER}|12| " in capsys.readouterr().out
    with running_server(tmp_path, elements=elements()) as server:
        with server.log_on("publisher") as peer:
            publish(peer, range(11, 14))
        consume(server, [11, 13])
        server.stop()
    for _ in range(2):
        with running_server(tmp_path, elements=elements()) as server:
            consume(server, [11, 13])
            server.stop(signal.SIGKILL)


def test_an_event_that_cannot_be_read_is_logged(tmp_path: Path) -> None:
    some_work(tmp_path, "", signal.SIGTERM)
    settings = JournalSettings("test-instance", tmp_path / "journal", file_size=10 << 20)
    journal = Journal(settings, lambda: 2_000_000_000_000_000, lambda _: None, lambda _: None)
    journal.start()
    journal.append(
        journal.topic_handle("json", "jobs"), 0, 0, b"no event", JournalEntryKind.QUEUE_EVENT
    )
    journal.close()
    with running_server(tmp_path, elements=elements()) as server:
        assert server.logs("1D-0017 Entry")
        consume(server, [7, 8, 9, 10])


def test_a_damaged_cache_costs_time_only(tmp_path: Path) -> None:
    some_work(tmp_path, "", signal.SIGTERM)
    path = tmp_path / CACHE
    path.write_bytes(path.read_bytes()[:-5] + b"xxxxx")
    with running_server(tmp_path, elements=elements()) as server:
        assert server.logs("its checksum is wrong")
        consume(server, [7, 8, 9, 10])


def test_messages_beyond_the_target_depth_come_when_there_is_room(tmp_path: Path) -> None:
    options = "<TargetQueueDepth>1000</TargetQueueDepth>"
    with running_server(tmp_path, elements=elements(options)) as server:
        with server.log_on("publisher") as peer:
            publish(peer, range(1, 2501))
        consume(server, list(range(1, 1001)), acknowledged=400)
        consume(server, list(range(401, 1401)))
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements(options)) as server:
        consume(server, list(range(401, 1401)), acknowledged=1000)
        consume(server, list(range(1401, 2401)), acknowledged=1000)
        consume(server, list(range(2401, 2501)))


def test_the_dump_of_a_journal_says_what_happened(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    some_work(tmp_path, "", signal.SIGTERM)
    path = tmp_path / "journal" / "test-instance.0000000000.journal"
    assert amps_journal_dump.main([str(path)]) == 0
    mark = PUBLISHER.encode()
    assert b": [acked at=20" in (text := capfdbinary.readouterr().out)
    assert b" %s|1| %s|2| " % (mark, mark) in text
